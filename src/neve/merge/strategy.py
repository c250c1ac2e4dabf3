"""The plan of a batch: how rows are found and replaced, why, and what is done if that fails.

All plans give the same rows. Pure: what has to be read for a plan is read in `carry_out`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from neve.config.merging import INDEXED_ROWS as INDEXED_ROWS
from neve.merge.report import Counts

if TYPE_CHECKING:
    from neve.merge.plan import Look

# Above this share of the rows a statement that rewrites what it meets is the cheapest.
MOST_TOUCHED = 0.3


class Strategy(str, Enum):
    """How rows are found and replaced."""

    AUTO = "auto"
    # Found by the index, replaced by deletion vectors.
    INDEX = "index"
    # Found by reading all keys, replaced by deletion vectors.
    SCAN = "scan"
    # Found by reading all keys, replaced by MERGE INTO.
    MERGE = "merge"


class Obstacle(str, Enum):
    """What keeps a batch from being merged as planned."""

    NO_INDEX = "there is no index yet"
    NOT_INDEXABLE = "the mirror cannot be indexed"
    INDEX_BROKEN = "the index is broken"
    DUPLICATE_KEYS = "a key has several rows"
    TRUNCATE = "there is a TRUNCATE"
    OTHER_DELETES = "the mirror has deletes that are no deletion vectors"


_WHY = {
    Obstacle.INDEX_BROKEN: "the index is broken, and is built anew",
    Obstacle.DUPLICATE_KEYS: "keys have several rows, which only a scan tells apart",
    Obstacle.TRUNCATE: "a TRUNCATE touches most of the table",
}


@dataclass(frozen=True)
class MergePlan:
    """How one batch is merged."""

    strategy: Strategy
    why: str
    # An index is built after the commit, for the next merge.
    builds_index: bool = False

    @property
    def uses_index(self) -> bool:
        return self.strategy is Strategy.INDEX

    @property
    def uses_vectors(self) -> bool:
        return self.strategy is not Strategy.MERGE

    @property
    def fallbacks(self) -> dict[Obstacle, Strategy]:
        """What is done instead, by what may show while the batch is merged."""
        met = (Counts(index_is_broken=True), Counts(duplicate_keys=1), Counts(has_truncate=True))
        obstacles = filter(None, (find_obstacle(self, counts) for counts in met))
        return {obstacle: next_plan(self, obstacle).strategy for obstacle in obstacles}


def first_plan(tables: Look, events: int | None, forced: Strategy) -> MergePlan:
    """Choose by cost, from what the tables' metadata say.

    Args:
        events: how many the batch has, if that is known before it is read.
    """
    rows = tables.mirror_rows
    if tables.mirror_is_empty:
        why = "a rebuild" if tables.rebuild else "the mirror is empty"
        return MergePlan(Strategy.MERGE, why)
    if forced is not Strategy.AUTO:
        return MergePlan(forced, "it was asked for")
    if events is not None and events > MOST_TOUCHED * rows:
        why = f"{events} events for {rows} rows touch most of the table"
        return MergePlan(Strategy.MERGE, why)
    if rows < INDEXED_ROWS:
        return MergePlan(Strategy.SCAN, f"{rows} rows are read faster than an index is kept")
    return MergePlan(Strategy.INDEX, f"{rows} rows, of which few change")


def find_obstacle(plan: MergePlan, counts: Counts) -> Obstacle | None:
    """Tell from a batch's counts whether another plan has to be made; None: it is done as planned.

    Whatever a broken index was asked for, its answers do not count.
    """
    if plan.uses_index and counts.index_is_broken:
        return Obstacle.INDEX_BROKEN
    if counts.has_truncate:
        return Obstacle.TRUNCATE if plan.uses_vectors else None
    # Of such a key the index says only that it has several rows.
    return Obstacle.DUPLICATE_KEYS if plan.uses_index and counts.duplicate_keys else None


def next_plan(plan: MergePlan, obstacle: Obstacle, reason: str = "") -> MergePlan:
    """Return what is done instead of a plan that met an obstacle.

    Args:
        reason: says more about the obstacle than its name does.
    """
    strategy = Strategy.SCAN
    if obstacle in (Obstacle.TRUNCATE, Obstacle.OTHER_DELETES):
        strategy = Strategy.MERGE
    # After duplicate keys, too: until it is built anew the index says that they have several rows.
    leaves_index = (Obstacle.NO_INDEX, Obstacle.INDEX_BROKEN, Obstacle.DUPLICATE_KEYS)
    why = reason or _WHY.get(obstacle, obstacle.value)
    return MergePlan(strategy, why, builds_index=obstacle in leaves_index or plan.builds_index)
