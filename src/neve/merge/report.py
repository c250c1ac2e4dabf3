"""What a merge did, for people and metrics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from neve.errors import NeveError
    from neve.index.maintain import Refreshed
    from neve.merge.strategy import MergePlan


class Tally(NamedTuple):
    """How many keys came to the same end, and what is counted of them."""

    keys: int = 0
    events: int = 0
    full: int = 0
    known: int = 0
    cached: int = 0
    contested: int = 0
    broken: int = 0
    away: int = 0

    def plus(self, other: Tally) -> Tally:
        return Tally(*(mine + more for mine, more in zip(self, other, strict=True)))


@dataclass
class Counts:
    """What one batch holds and changes."""

    # Events read; what became of each is in one of the next six (`double_entry.py`).
    scanned: int = 0
    # The mirror, its tombstones or its barrier say now what they say.
    applied: int = 0
    # Another event of their key and batch, or a newer TRUNCATE of the batch, made them void.
    superseded: int = 0
    late: int = 0
    # The same event merged before, or another one of the same sequence that loses.
    repeated: int = 0
    set_aside: int = 0
    # A TRUNCATE of a greater sequence has ended them.
    truncated: int = 0
    reduced: int = 0
    upserted: int = 0
    deleted: int = 0
    # Written beside the mirror for keys that are deleted, and for a TRUNCATE.
    tombstones: int = 0
    # Events that a newer partial one has overtaken: what they would have filled in stays unknown.
    late_full: int = 0
    # Keys of which two events have the same sequence and say different things.
    ties: int = 0
    # Those of them for which the events that are merged already have to be read.
    unresolved_ties: int = 0
    # Rows beside another one of the same key, which somebody else wrote, and which go.
    duplicate_keys: int = 0
    has_truncate: bool = False
    # Keys that the index knew and did not know, and parts of it that were in memory already.
    index_hits: int = 0
    index_misses: int = 0
    index_cache_hits: int = 0
    # A part of the index is missing or damaged: nothing else here counts.
    index_is_broken: bool = False
    # The store did not let the index be read, which says nothing of the index.
    index_is_away: bool = False
    vectors_written: int = 0


@dataclass(frozen=True)
class Preview:
    """What the next commit to a mirror would change."""

    table: str
    # Snapshots of the changelog that are waiting; the commit may take fewer.
    snapshots: int = 0
    counts: Counts = field(default_factory=Counts)
    # How it would be merged; None when there is nothing to merge.
    plan: MergePlan | None = None
    notes: list[str] = field(default_factory=list)
    # Why the mirror cannot be merged; None when it can be.
    error: NeveError | None = None

    @property
    def strategy(self) -> str:
        return self.plan.strategy.value if self.plan else ""

    @property
    def why(self) -> str:
        return self.plan.why if self.plan else ""

    @property
    def otherwise(self) -> str:
        """What is done instead if the batch turns out to be another, or the index broken."""
        fallbacks = self.plan.fallbacks if self.plan else {}
        return ", ".join(f"{how.value} if {met.value}" for met, how in fallbacks.items())


@dataclass(frozen=True)
class MergedBatch:
    """What one commit has changed in a mirror."""

    table: str
    number: int
    events: int
    rows_upserted: int
    rows_deleted: int
    rows_set_aside: int
    seconds: float
    # Age of the oldest event that was waiting, when it was committed.
    lag_seconds: float | None

    def __str__(self) -> str:
        set_aside = f", {self.rows_set_aside:,} set aside" if self.rows_set_aside else ""
        return (
            f"{self.table}: batch {self.number}, {self.events:,} events: "
            f"{self.rows_upserted:,} rows written, {self.rows_deleted:,} deleted{set_aside} "
            f"in {self.seconds:.1f} s"
        )


@dataclass
class TableReport:
    """How a cycle ended for one mirror."""

    table: str
    # idle, merged or failed
    outcome: str = "idle"
    error: NeveError | None = None
    batches: int = 0
    # Events read, and what became of them: each is in one of the next six.
    rows_scanned: int = 0
    applied: int = 0
    superseded: int = 0
    late_dropped: int = 0
    repeated: int = 0
    set_aside: int = 0
    truncated: int = 0
    rows_upserted: int = 0
    rows_deleted: int = 0
    late_full: int = 0
    ties: int = 0
    conflicts: int = 0
    merge_seconds: list[float] = field(default_factory=list)
    duration_seconds: float = 0.0
    # None: the changelog could not be looked at.
    lag_seconds: float | None = None
    lag_snapshots: int = 0
    notes: list[str] = field(default_factory=list)
    # How the last batch was applied, and why so.
    strategy: str = ""
    why: str = ""

    # The index: is one to be built, and what was done to it.
    index_wanted: bool = False
    index_rebuilds: int = 0
    index_files_indexed: int = 0
    index_entries: int = 0
    index_bytes: int = 0
    index_hits: int = 0
    index_misses: int = 0
    index_cache_hits: int = 0
    vectors_written: int = 0

    def count_index(self, index: Refreshed) -> None:
        """Count what bringing an index up to date took."""
        self.index_rebuilds += index.rebuilt
        self.index_files_indexed += index.files_indexed
        self.index_entries, self.index_bytes = index.root.rows, index.root.size

    def take_plan(self, plan: MergePlan) -> None:
        """Say how the newest batch was merged."""
        self.strategy, self.why = plan.strategy.value, plan.why
        self.index_wanted |= plan.builds_index

    def add(self, counts: Counts, seconds: float) -> MergedBatch:
        """Count a batch that was committed, and return what is told of it."""
        self.outcome = "merged"
        self.batches += 1
        self.rows_scanned += counts.scanned
        self.applied += counts.applied
        self.superseded += counts.superseded
        self.repeated += counts.repeated
        self.truncated += counts.truncated
        self.rows_upserted += counts.upserted
        self.rows_deleted += counts.deleted
        self.late_dropped += counts.late
        self.late_full += counts.late_full
        self.ties += counts.ties
        self.set_aside += counts.set_aside
        self.index_hits += counts.index_hits
        self.index_misses += counts.index_misses
        self.index_cache_hits += counts.index_cache_hits
        self.vectors_written += counts.vectors_written
        self.merge_seconds.append(seconds)
        return MergedBatch(
            self.table,
            self.batches,
            counts.scanned,
            counts.upserted,
            counts.deleted,
            counts.set_aside,
            seconds,
            None if self.lag_seconds is None else round(self.lag_seconds + seconds, 3),
        )

    def note(self, text: str | None) -> None:
        if text and text not in self.notes:
            self.notes.append(text)
