"""How a batch reaches the mirror, and which strategy is the cheapest. All give the same rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile

    from neve.merge.batch import BatchWork
    from neve.merge.plan import Look
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
    # Both by MERGE INTO.
    MERGE = "merge"


@dataclass(frozen=True)
class Choice:
    """A strategy, and why it was taken."""

    strategy: Strategy
    why: str


ON_TRUNCATE = Choice(Strategy.MERGE, "a TRUNCATE touches most of the table")
ON_DOUBLED = Choice(Strategy.SCAN, "keys have two rows, of which MERGE INTO would keep both")


def choose(found: Look, spec: MergeSpec, events: int | None, forced: Strategy) -> Choice:
    """Choose by cost.

    Args:
        events: how many the batch has, if that is known before it is read.
    """
    rows = found.mirror_rows
    if found.mirror_is_empty:
        return Choice(Strategy.MERGE, "the mirror is empty" if not found.rebuild else "a rebuild")
    unindexed = _why_unindexed(spec)
    if forced is Strategy.INDEX and unindexed:
        return Choice(Strategy.SCAN, unindexed)
    if forced is not Strategy.AUTO:
        return Choice(forced, "it was asked for")
    if events is not None and events > MOST_TOUCHED * rows:
        return Choice(Strategy.MERGE, f"{events} events for {rows} rows touch most of the table")
    if unindexed:
        return Choice(Strategy.SCAN, unindexed)
    if rows < INDEXED_ROWS:
        return Choice(Strategy.SCAN, f"{rows} rows are read faster than an index is kept")
    return Choice(Strategy.INDEX, f"{rows} rows, of which few change")


def _why_unindexed(spec: MergeSpec) -> str | None:
    if spec.unchanged_marker is not None:
        return "partial events need the mirror's values"
    if spec.tombstone_retention_seconds is not None:
        return "the index does not know when a delete is to be forgotten"
    return None


class Writer(Protocol):
    """Brings a batch that is decided into the mirror."""

    def write(self, work: BatchWork, batch_id: str, now: datetime) -> list[DataFile]:
        """Write what can be written before the commit; return the files of tombstones."""

    def commit(self, work: BatchWork, summary: Mapping[str, str]) -> None:
        """Commit one snapshot with the summary on it, if `main` is where the batch was decided.

        Raises:
            ConflictError: `main` has moved; nothing was applied.
            UnknownOutcomeError: the answer was lost.
        """
