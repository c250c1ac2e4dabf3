"""Between staging and publishing: audit the staged rows, then publish, hold, or set aside."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from neve.config import AuditSettings
from neve.errors import NeveError, UnbalancedError
from neve.lake.staged_snapshot import StagedSnapshot
from neve.publish.batch import Outcome, batch_id_of
from neve.publish.batch_counts import BatchCounts, added_records, require_balance
from neve.publish.publisher import Publisher
from neve.publish.ranges import REJECTED_SNAPSHOT
from neve.publish.rejected_rows import BATCH, REJECTED_BY, RejectedRows

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyspark.sql import DataFrame

    from neve.lake import Lake
    from neve.lake.frames import SplitRows
    from neve.publish.audit_result import AuditResult

logger = logging.getLogger(__name__)

# Random digits behind a batch's id: each audit that sets rows aside stages them on its own.
ATTEMPT_BYTES = 4


@dataclass(frozen=True)
class AuditedOutcome:
    """What became of a staged batch."""

    outcome: Outcome
    # What was published or held: the batch as it was, or its clean rows.
    staged: StagedSnapshot
    results: tuple[AuditResult, ...] = ()
    set_aside: int = 0
    # What is left to do: rejected rows that are not shown yet, which the next run does, or a batch
    # whose counts do not add up, which a person decides on.
    unfinished: NeveError | None = None


@dataclass
class AuditedPublisher:
    """Lets audited batches of one table through."""

    lake: Lake
    publisher: Publisher
    audits: Sequence[AuditSettings]
    # The rejected table may have rows of this batch already: those are not set aside again.
    is_in_rejected: bool = False

    def __post_init__(self) -> None:
        self.rejected = RejectedRows(self.lake, self.publisher)

    def audit_and_publish(self, staged: StagedSnapshot) -> AuditedOutcome:
        """Audit a staged batch and bring it to its end.

        Idempotent: done again after a kill, it comes to the same end or finds it reached. A batch
        whose counts do not add up stays staged.
        """
        try:
            require_balance(self.publisher.table.name, staged)
            if REJECTED_SNAPSHOT in staged.summary:
                # Clean rows, which were audited before a kill.
                return self._publish_clean(staged, ())
            if not self.audits:
                return AuditedOutcome(self.publisher.publish(staged), staged)
            batch = self._with_known_parent(staged)
            if batch is None:
                return AuditedOutcome(Outcome.SUPERSEDED, staged)
            return self._audit_and_publish(batch)
        except UnbalancedError as error:
            return AuditedOutcome(Outcome.UNBALANCED, staged, unfinished=error)

    def _with_known_parent(self, staged: StagedSnapshot) -> StagedSnapshot | None:
        """Stage the batch again on `main` if its parent is not known; None if another was first.

        PyIceberg's expiry clears the parent of the oldest snapshots that it keeps. Without one,
        Spark reads a snapshot as a whole: the audits would see all rows of the table.
        """
        if staged.parent_id is not None or self.publisher.table.main_id is None:
            return staged
        files = self.publisher.table.added_files(staged.snapshot_id)
        return self.publisher.stage_clean(staged, new_attempt(staged), files, None)

    def _audit_and_publish(self, staged: StagedSnapshot) -> AuditedOutcome:
        checked = self._checked(staged)
        results = self._run_audits(staged, checked)
        if any(result.blocks for result in results):
            self._warn(results)
            max_held = self.lake.settings.consolidate.max_held
            return AuditedOutcome(self.publisher.hold(staged, max_held, results), staged, results)
        if any(result.sets_aside for result in results):
            return self._set_aside(staged, results, checked)
        self._warn(results)
        return AuditedOutcome(self.publisher.publish(staged), staged, results)

    def _warn(self, results: Sequence[AuditResult]) -> None:
        for result in results:
            if not result.passed:
                logger.warning(
                    "%s: audit %s failed for %d of %d rows",
                    self.publisher.table.name,
                    result.name,
                    result.failing,
                    result.total,
                )

    def _checked(self, staged: StagedSnapshot) -> DataFrame:
        from neve.publish.audits import with_checks

        with self.lake.explaining():
            return with_checks(self._rows(staged), self.audits)

    def _run_audits(self, staged: StagedSnapshot, checked: DataFrame) -> tuple[AuditResult, ...]:
        from neve.publish.audits import run_audits

        with self.lake.explaining():
            rows = self._rows(staged)
            return tuple(run_audits(rows, checked, self.audits, added_records(staged)))

    def _set_aside(
        self, staged: StagedSnapshot, results: tuple[AuditResult, ...], checked: DataFrame
    ) -> AuditedOutcome:
        """Stage failing rows in `<table>_rejected`, the rest in the batch's place, and publish."""
        batch_id = new_attempt(staged)
        may_be_stored = self.is_in_rejected or self.rejected.has_batch(batch_id_of(staged))
        left = self._without_stored(checked) if may_be_stored else checked
        split = self._split(left, batch_id)
        set_aside, clean_rows = count_records(split.failed), count_records(split.passed)
        if may_be_stored:
            # The others are in the rejected table.
            set_aside = self._count_failing(checked)
        else:
            results = tuple(result.recounted(split.failing) for result in results)
        self._warn(results)
        counts = BatchCounts.decode(staged.summary) or BatchCounts(added_records(staged))
        # What is staged may be the clean rows of a worker that was killed.
        counts = counts.with_set_aside(counts.set_aside + set_aside)
        counts.require_balance(self.publisher.table.name, batch_id_of(staged), clean_rows)
        rejected_id = None
        if split.failed:
            rejected_id = self.rejected.stage(batch_id, split.failed, staged).snapshot_id
        clean = self.publisher.stage_clean(staged, batch_id, split.passed, rejected_id, counts)
        if clean is None:
            # `RejectedRows.finish` discards the rejected rows, once that is proven to be right.
            return AuditedOutcome(Outcome.SUPERSEDED, staged, results)
        if rejected_id is None:
            return AuditedOutcome(self.publisher.publish(clean), clean, results)
        return self._publish_clean(clean, results)

    def _publish_clean(
        self, clean: StagedSnapshot, results: tuple[AuditResult, ...]
    ) -> AuditedOutcome:
        outcome = self.publisher.publish(clean)
        if outcome is not Outcome.PUBLISHED:
            return AuditedOutcome(outcome, clean, results)
        unfinished = None
        try:
            self.rejected.publish(batch_id_of(clean))
        except NeveError as error:
            unfinished = error
        counts = BatchCounts.decode(clean.summary)
        set_aside = counts.set_aside if counts else 0
        return AuditedOutcome(outcome, clean, results, set_aside, unfinished)

    def _rows(self, staged: StagedSnapshot) -> DataFrame:
        from neve.lake.frames import added_rows

        ref = self.publisher.table.ref
        return added_rows(self.lake.spark, ref, staged.snapshot_id, staged.parent_id)

    def _split(self, checked: DataFrame, batch_id: str) -> SplitRows:
        """Write the rows that pass, and those that do not, as files of their tables."""
        from pyspark.sql import functions as F  # noqa: N812 - as everywhere

        from neve.lake.frames import write_split
        from neve.publish.audits import with_failed_audits

        with self.lake.explaining():
            rows = with_failed_audits(checked, self.audits, REJECTED_BY)
            return write_split(
                rows.withColumn(BATCH, F.lit(batch_id)),
                REJECTED_BY,
                self.publisher.table,
                self.rejected.open().table,
                BATCH,
            )

    def _without_stored(self, checked: DataFrame) -> DataFrame:
        from neve.publish.audits import is_set_aside

        with self.lake.explaining():
            return self.rejected.without_stored(checked, is_set_aside(self.audits))

    def _count_failing(self, checked: DataFrame) -> int:
        from neve.publish.audits import is_set_aside

        with self.lake.explaining():
            return checked.where(is_set_aside(self.audits)).count()


def new_attempt(staged: StagedSnapshot) -> str:
    """Return an id for what is staged in a batch's place."""
    return f"{batch_id_of(staged)}-{secrets.token_hex(ATTEMPT_BYTES)}"


def count_records(files: Sequence[DataFile]) -> int:
    """Return how many rows there are in files."""
    return sum(file.record_count for file in files)
