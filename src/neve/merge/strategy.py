"""The plan of a batch: how rows are found and replaced, why, and what is done if that fails.

All plans give the same rows. Pure: what has to be read for a plan is read in `plan_batch`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from neve.merge.plan import Look
    from neve.merge.report import Counts
    from neve.merge.spec import MergeSpec

# Below this a scan of the keys takes less time than looking after an index.
INDEXED_ROWS = 200_000
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


@dataclass(frozen=True)
class MergePlan:
    """How one batch is merged."""

    strategy: Strategy
    why: str
    # An index is built after the commit, for the next merge.
    builds_index: bool = False
    # False: the mirror has deletes of another kind, so that MERGE INTO is all there is.
    takes_vectors: bool = True

    @property
    def uses_index(self) -> bool:
        return self.strategy is Strategy.INDEX

    @property
    def uses_vectors(self) -> bool:
        return self.strategy is not Strategy.MERGE

    @property
    def fallbacks(self) -> dict[Obstacle, Strategy]:
        """What is done instead, by what may show while the batch is merged."""
        if self.uses_vectors:
            index = (Obstacle.INDEX_BROKEN, Obstacle.DUPLICATE_KEYS) if self.uses_index else ()
            obstacles = (*index, Obstacle.TRUNCATE)
        else:
            obstacles = (Obstacle.DUPLICATE_KEYS,) if self.takes_vectors else ()
        return {obstacle: next_plan(self, obstacle).strategy for obstacle in obstacles}


def first_plan(found: Look, spec: MergeSpec, events: int | None, forced: Strategy) -> MergePlan:
    """Choose by cost, from what the tables' metadata say.

    Args:
        events: how many the batch has, if that is known before it is read.
    """
    rows = found.mirror_rows
    if found.mirror_is_empty:
        why = "a rebuild" if found.rebuild else "the mirror is empty"
        return MergePlan(Strategy.MERGE, why)
    unindexed = _why_unindexed(spec)
    if forced is Strategy.INDEX and unindexed:
        return MergePlan(Strategy.SCAN, unindexed)
    if forced is not Strategy.AUTO:
        return MergePlan(forced, "it was asked for")
    if events is not None and events > MOST_TOUCHED * rows:
        why = f"{events} events for {rows} rows touch most of the table"
        return MergePlan(Strategy.MERGE, why)
    if unindexed:
        return MergePlan(Strategy.SCAN, unindexed)
    if rows < INDEXED_ROWS:
        return MergePlan(Strategy.SCAN, f"{rows} rows are read faster than an index is kept")
    return MergePlan(Strategy.INDEX, f"{rows} rows, of which few change")


def _why_unindexed(spec: MergeSpec) -> str | None:
    if spec.unchanged_marker is not None:
        return "partial events need the mirror's values"
    if spec.tombstone_retention_seconds is not None:
        return "the index does not know when a delete is to be forgotten"
    return None


def find_obstacle(plan: MergePlan, counts: Counts) -> Obstacle | None:
    """Tell from a batch's counts whether another plan has to be made; None: it is done as planned.

    Whatever a broken index was asked for, its answers do not count.
    """
    if plan.uses_index and counts.index_is_broken:
        return Obstacle.INDEX_BROKEN
    if counts.truncated:
        return Obstacle.TRUNCATE if plan.uses_vectors else None
    if not counts.duplicate_keys:
        return None
    # MERGE INTO would write the new row in the place of each of them.
    is_in_the_way = plan.uses_index or (not plan.uses_vectors and plan.takes_vectors)
    return Obstacle.DUPLICATE_KEYS if is_in_the_way else None


def next_plan(plan: MergePlan, obstacle: Obstacle, reason: str = "") -> MergePlan:
    """Return what is done instead of a plan that met an obstacle.

    Args:
        reason: more about the obstacle than its name says.
    """
    if obstacle is Obstacle.NO_INDEX:
        why = f"{obstacle.value}: {reason}"
        return MergePlan(Strategy.SCAN, why, builds_index=True)
    if obstacle is Obstacle.NOT_INDEXABLE:
        return MergePlan(Strategy.SCAN, reason or obstacle.value)
    if obstacle is Obstacle.INDEX_BROKEN:
        why = reason or "the index is broken, and is built anew"
        return MergePlan(Strategy.SCAN, why, builds_index=True)
    if obstacle is Obstacle.DUPLICATE_KEYS:
        if plan.uses_index:
            why = "keys have several rows, which the index does not tell apart"
            return MergePlan(Strategy.SCAN, why, builds_index=True)
        return MergePlan(Strategy.SCAN, "keys have two rows, of which MERGE INTO would keep both")
    if obstacle is Obstacle.TRUNCATE:
        why = "a TRUNCATE touches most of the table"
        return MergePlan(Strategy.MERGE, why, plan.builds_index)
    why = reason or obstacle.value
    return MergePlan(Strategy.MERGE, why, plan.builds_index, takes_vectors=False)
