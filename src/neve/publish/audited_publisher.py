"""Between staging and publishing: audit the staged rows, then publish, hold, or set aside."""

from __future__ import annotations

import logging
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa

from neve.config import AuditSettings
from neve.lake.create import FEW_METADATA_FILES, TableSpec, ensure_table
from neve.lake.staging import StagedSnapshot, StagingTable
from neve.publish.publisher import Outcome, Publisher
from neve.publish.ranges import BATCH_ID, decode_ranges

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from neve.lake import Lake
    from neve.publish.audit_result import AuditResult

logger = logging.getLogger(__name__)

REJECTED_SUFFIX = "_rejected"
REJECTED_BY = "rejected_by"
BATCH = "batch_id"


@dataclass(frozen=True)
class AuditedOutcome:
    """What became of a staged batch."""

    outcome: Outcome
    results: tuple[AuditResult, ...] = ()
    set_aside: int = 0


@dataclass
class AuditedPublisher:
    """Lets audited batches of one table through."""

    lake: Lake
    publisher: Publisher
    audits: Sequence[AuditSettings]

    def audit_and_publish(self, staged: StagedSnapshot) -> AuditedOutcome:
        """Audit a staged batch and bring it to its end.

        Idempotent: done again after a kill, it comes to the same end or finds it reached.
        """
        if not self.audits:
            return AuditedOutcome(self.publisher.publish(staged))
        from neve.publish.audits import run_audits

        with self.lake.explaining():
            rows = self._rows(staged)
            total = int(staged.summary.get("added-records", 0))
            results = tuple(run_audits(rows, self.audits, total))
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
            return AuditedOutcome(self.publisher.hold(staged, max_held), results)
        aside = 0
        if any(result.sets_aside for result in results):
            with self.lake.explaining():
                staged, aside = self._set_aside(staged, rows)
        return AuditedOutcome(self.publisher.publish(staged), results, aside)

    def _rows(self, staged: StagedSnapshot) -> DataFrame:
        from neve.lake.frames import added_rows
        from neve.lake.table_ref import TableRef

        ref = TableRef.of(self.publisher.table.table)
        return added_rows(self.lake.spark, ref, staged.snapshot_id, staged.parent_id)

    def _set_aside(self, staged: StagedSnapshot, rows: DataFrame) -> tuple[StagedSnapshot, int]:
        """Move failing rows to `<table>_rejected` and stage the rest in the batch's place.

        The rejected table has marks of its own: the same batch is set aside once.
        """
        from pyspark.sql import functions as F  # noqa: N812 - as everywhere

        from neve.lake.frames import write_frame
        from neve.publish.audits import is_good

        strict = [audit for audit in self.audits if audit.on_failure == "set_aside"]
        good: list[Column] = [column for audit in strict if (column := is_good(audit)) is not None]
        is_clean = reduce(operator.and_, good)
        names = [
            F.when(~column, F.lit(audit.name)) for audit, column in zip(strict, good, strict=True)
        ]
        batch_id = staged.summary[BATCH_ID]
        bad = rows.where(~is_clean).select(
            "*",
            F.array_compact(F.array(*names)).alias(REJECTED_BY),
            F.lit(batch_id).alias(BATCH),
        )
        ranges = decode_ranges(staged.summary)
        rejected = self._rejected_publisher()
        files = write_frame(bad, rejected.table.table)
        if files and (aside := rejected.stage(batch_id, files, ranges)):
            rejected.publish(aside)
        clean = write_frame(rows.where(is_clean), self.publisher.table.table)
        again = self.publisher.stage(f"{batch_id}-clean", clean, ranges)
        self.publisher.discard(staged)
        return again or staged, sum(file.record_count for file in files)

    def _rejected_publisher(self) -> Publisher:
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        table = self.publisher.table.table
        namespace, name = table.name()[:-1], table.name()[-1]
        schema: pa.Schema = schema_to_pyarrow(table.schema(), include_field_ids=False)
        schema = schema.append(pa.field(REJECTED_BY, pa.list_(pa.string())))
        schema = schema.append(pa.field(BATCH, pa.string()))
        identifier = (*namespace, f"{name}{REJECTED_SUFFIX}")
        spec = TableSpec(identifier, schema, properties=FEW_METADATA_FILES)
        made = ensure_table(self.lake.profile, self.lake.catalog(), spec)
        return Publisher(
            StagingTable(self.lake.profile, made),
            self.publisher.streams,
            counters=self.publisher.counters,
        )
