"""Between staging and publishing: audit the staged rows, then publish, hold, or set aside."""

from __future__ import annotations

import logging
import operator
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from neve.config import AuditSettings
from neve.errors import NeveError
from neve.lake.staged_snapshot import StagedSnapshot
from neve.publish.batch import Outcome, batch_id_of
from neve.publish.publisher import Publisher
from neve.publish.ranges import REJECTED_SNAPSHOT
from neve.publish.rejected_rows import BATCH, REJECTED_BY, RejectedRows

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyspark.sql import Column, DataFrame

    from neve.lake import Lake
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
    # The batch is published, and its rejected rows are not shown yet: the next run does that.
    unfinished: NeveError | None = None


@dataclass
class AuditedPublisher:
    """Lets audited batches of one table through."""

    lake: Lake
    publisher: Publisher
    audits: Sequence[AuditSettings]
    # The rejected table has this batch's failing rows already: they are left out.
    is_in_rejected: bool = False

    def __post_init__(self) -> None:
        self.rejected = RejectedRows(self.lake, self.publisher)

    def audit_and_publish(self, staged: StagedSnapshot) -> AuditedOutcome:
        """Audit a staged batch and bring it to its end.

        Idempotent: done again after a kill, it comes to the same end or finds it reached.
        """
        if REJECTED_SNAPSHOT in staged.summary:
            # Clean rows, which were audited before a kill.
            return self._publish_clean(staged, ())
        if not self.audits:
            return AuditedOutcome(self.publisher.publish(staged), staged)
        results = self._run_audits(staged)
        for result in results:
            if not result.passed:
                logger.warning(
                    "%s: audit %s failed for %d of %d rows",
                    self.publisher.table.name,
                    result.name,
                    result.failing,
                    result.total,
                )
        if any(result.blocks for result in results):
            max_held = self.lake.settings.consolidate.max_held
            return AuditedOutcome(self.publisher.hold(staged, max_held, results), staged, results)
        if any(result.sets_aside for result in results):
            return self._set_aside(staged, results)
        return AuditedOutcome(self.publisher.publish(staged), staged, results)

    def _run_audits(self, staged: StagedSnapshot) -> tuple[AuditResult, ...]:
        from neve.publish.audits import run_audits

        with self.lake.explaining():
            total = int(staged.summary.get("added-records", 0))
            return tuple(run_audits(self._rows(staged), self.audits, total))

    def _set_aside(
        self, staged: StagedSnapshot, results: tuple[AuditResult, ...]
    ) -> AuditedOutcome:
        """Stage failing rows in `<table>_rejected`, the rest in the batch's place, and publish."""
        batch_id = f"{batch_id_of(staged)}-{secrets.token_hex(ATTEMPT_BYTES)}"
        clean_files, rejected_files = self._split(staged, batch_id)
        rejected_id = None
        if not (self.is_in_rejected or self.rejected.has_batch(batch_id_of(staged))):
            rejected_id = self.rejected.stage(batch_id, rejected_files, staged).snapshot_id
        clean = self.publisher.stage_clean(staged, batch_id, clean_files, rejected_id)
        if clean is None:
            # `RejectedRows.finish` discards the rejected rows, once that is proven to be right.
            return AuditedOutcome(Outcome.SUPERSEDED, staged, results)
        if rejected_id is None:
            return AuditedOutcome(self.publisher.publish(clean), clean, results)
        set_aside = sum(file.record_count for file in rejected_files)
        return self._publish_clean(clean, results, set_aside)

    def _publish_clean(
        self, clean: StagedSnapshot, results: tuple[AuditResult, ...], set_aside: int = 0
    ) -> AuditedOutcome:
        outcome = self.publisher.publish(clean)
        if outcome is not Outcome.PUBLISHED:
            return AuditedOutcome(outcome, clean, results)
        unfinished = None
        try:
            self.rejected.publish(batch_id_of(clean))
        except NeveError as error:
            unfinished = error
        return AuditedOutcome(outcome, clean, results, set_aside, unfinished)

    def _rows(self, staged: StagedSnapshot) -> DataFrame:
        from neve.lake.frames import added_rows

        ref = self.publisher.table.ref
        return added_rows(self.lake.spark, ref, staged.snapshot_id, staged.parent_id)

    def _split(
        self, staged: StagedSnapshot, batch_id: str
    ) -> tuple[list[DataFile], list[DataFile]]:
        """Write the rows that pass, and those that do not, as files of their tables."""
        from pyspark.sql import functions as F  # noqa: N812 - as everywhere

        from neve.lake.frames import write_frame
        from neve.publish.audits import is_good

        strict = [audit for audit in self.audits if audit.on_failure == "set_aside"]
        good: list[Column] = [column for audit in strict if (column := is_good(audit)) is not None]
        is_clean = reduce(operator.and_, good)
        names = [
            F.when(~column, F.lit(audit.name)) for audit, column in zip(strict, good, strict=True)
        ]
        with self.lake.explaining():
            rows = self._rows(staged)
            bad = rows.where(~is_clean).select(
                "*",
                F.array_compact(F.array(*names)).alias(REJECTED_BY),
                F.lit(batch_id).alias(BATCH),
            )
            rejected_files = write_frame(bad, self.rejected.open().table)
            clean_files = write_frame(rows.where(is_clean), self.publisher.table)
        return clean_files, rejected_files
