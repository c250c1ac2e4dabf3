"""What a run of consolidation tells."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from neve.consolidate.replay_plan import Unavailable
from neve.publish.batch import Outcome
from neve.publish.ledger import LedgerEntry
from neve.publish.publisher import PublishCounters

if TYPE_CHECKING:
    from neve.publish.audit_result import AuditResult


@dataclass(frozen=True)
class TableResult:
    """What one batch did to one table."""

    batch_id: str
    # Namespace and table, with dots.
    table: str
    outcome: str
    rows: int
    files: int
    bytes: int
    seconds: float
    error: str | None = None
    # Age of the oldest request of the batch when it was published; None where that is not known.
    lag_seconds: float | None = None


@dataclass
class Report:
    """What a run did."""

    results: list[TableResult] = field(default_factory=list)
    ledger: list[LedgerEntry] = field(default_factory=list)
    audits: list[tuple[str, AuditResult]] = field(default_factory=list)
    set_aside: int = 0
    dead_letters: int = 0
    # Dead letters that were removed: past their retention, and past the limit on their bytes.
    expired_dead_letters: int = 0
    dead_letters_over_limit: int = 0
    # Records of requests that two receivers got, stored once.
    duplicate_records: int = 0
    unfit_values: int = 0
    retired_segments: int = 0
    # How many batches are held, of each table that was worked at.
    held_batches: dict[str, int] = field(default_factory=dict)
    # Signals that another worker was at.
    left_to_others: list[str] = field(default_factory=list)
    commits: PublishCounters = field(default_factory=PublishCounters)
    # What ended the run as a whole.
    error: str | None = None

    @property
    def trouble(self) -> str | None:
        """What kept the run or a table from going on; None when nothing did."""
        if self.error is not None:
            return self.error
        return next((f"{result.table}: {result.error}" for result in self.failures), None)

    @property
    def failures(self) -> list[TableResult]:
        """The tables that failed, in their order."""
        return [result for result in self.results if result.error]

    @property
    def rows(self) -> int:
        published = Outcome.PUBLISHED.value
        return sum(result.rows for result in self.results if result.outcome == published)

    @property
    def failed(self) -> bool:
        held = Outcome.HELD.value
        return any(result.error or result.outcome == held for result in self.results)


@dataclass
class ReplayReport:
    """What a replay did."""

    table: str
    # What was written again: segments, the requests in them, and the rows of those.
    segments: int = 0
    requests: int = 0
    rows: int = 0
    # Rows that audits kept out: set aside, and held back.
    rows_set_aside: int = 0
    rows_held: int = 0
    duplicate_records: int = 0
    # Retained segments that were not written: the table has them, or --from leaves them out.
    segments_contained: int = 0
    segments_before_from: int = 0
    retained_segments: int = 0
    unavailable: Unavailable = field(default_factory=lambda: Unavailable({}, {}, ()))
