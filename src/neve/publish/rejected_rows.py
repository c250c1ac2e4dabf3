"""`<table>_rejected`: rows that audits set aside, shown exactly once.

They are staged there first, under a tag. The staging of the clean rows has the same batch id and
names that snapshot; the commit that publishes the clean rows sets a property of the main table,
`neve.rejected.<batch id>`, in the same swap. Only what such a property names is shown. The property
goes with a later commit of the main table.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from neve import failpoints
from neve.buffer.stream_states import StreamState
from neve.lake.create import FEW_METADATA_FILES, TableSpec, widen_columns
from neve.lake.identifier import quote_identifier
from neve.lake.staged_snapshot import StagedSnapshot
from neve.lake.staging import StagingTable, ensure_staging_table, find_staging_table
from neve.publish.batch import STAGED_PREFIX, batch_id_of
from neve.publish.contains import READ_FROM, overlaps
from neve.publish.publisher import Publisher
from neve.publish.ranges import (
    BATCH_ID,
    BATCH_RANGES,
    REJECTED_PREFIX,
    REPLAY,
    decode_ranges,
    encode_ranges,
    read_marks,
)
from neve.publish.replay_publisher import consumed_in

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyspark.sql import Column, DataFrame

    from neve.lake import Lake
    from neve.lake.identifier import Identifier

logger = logging.getLogger(__name__)

REJECTED_SUFFIX = "_rejected"
REJECTED_BY = "rejected_by"
BATCH = "batch_id"
# Columns while rows are compared: all their values as one text, and how often that is shown.
_VALUES, _NUMBER, _TIMES = "__neve_values", "__neve_number", "__neve_times"
_WHOLE_TIME = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"


class _RejectedPublisher(Publisher):
    """A `Publisher` of a table without marks."""

    def __init__(self, table: StagingTable, main: Publisher) -> None:
        super().__init__(table, main.streams, main.retry, main.counters)
        self.main = main

    def _streams_to_state(self, streams: Collection[str]) -> set[str]:
        """Return the streams that a statement still has to name.

        Of our own, those that are present and those that the main table has a mark of: such a
        stream may be away for a while. Others were dropped, and cannot be replayed.
        """
        states = self.streams.stream_states(streams)
        marks = read_marks(self.main.table.properties)
        return {
            stream
            for stream, state in states.items()
            if state is StreamState.PRESENT or stream in marks or not self.streams.owns(stream)
        }


class RejectedRows:
    """The rejected rows of one table."""

    def __init__(self, lake: Lake, main: Publisher) -> None:
        self.lake = lake
        self.main = main
        self._publisher: Publisher | None = None

    @property
    def identifier(self) -> Identifier:
        *namespace, name = self.main.table.identifier
        return (*namespace, f"{name}{REJECTED_SUFFIX}")

    def open(self) -> Publisher:
        """Make the table, or give it the columns that the main table has by now."""
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        if self._publisher is None:
            of_main = self.main.table.metadata.schema()
            schema: pa.Schema = schema_to_pyarrow(of_main, include_field_ids=False)
            schema = schema.append(pa.field(REJECTED_BY, pa.list_(pa.string())))
            schema = schema.append(pa.field(BATCH, pa.string()))
            spec = TableSpec(self.identifier, schema, properties=FEW_METADATA_FILES)
            profile, catalog = self.lake.profile, self.lake.catalog()
            widen_columns(profile, catalog, spec)
            self._use(ensure_staging_table(profile, catalog, spec))
        return self._use()

    def stage(
        self, batch_id: str, files: Sequence[DataFile], batch: StagedSnapshot
    ) -> StagedSnapshot:
        """Stage rows of a batch; nobody sees them yet.

        Args:
            batch: as it was staged in the main table.
        """
        carried = {key: batch.summary[key] for key in (READ_FROM, REPLAY) if key in batch.summary}
        summary = {**carried, BATCH_RANGES: encode_ranges(decode_ranges(batch.summary))}
        staged = self.open().stage(batch_id, files, {}, summary)
        if staged is None:
            raise RuntimeError("rows without ranges cannot have been consumed")
        failpoints.reach("publish.rejected_staged")
        return staged

    def has_batch(self, batch_id: str) -> bool:
        """Tell whether the rows of a batch are shown under its own id.

        Earlier versions showed them before they staged the clean rows, and may have been killed in
        between.
        """
        summaries = self.open().table.main_summaries()
        return any(summary.get(BATCH_ID) == batch_id for summary in summaries)

    def without_stored(self, rows: DataFrame, is_failing: Column) -> DataFrame:
        """Leave out the failing rows of a batch that are shown here, each as often as it is.

        That their segments were looked at before is no proof: audits may have changed since, or ask
        the clock. Only its values tell a row from others.
        """
        from pyspark.sql import Window
        from pyspark.sql import functions as F  # noqa: N812 - as everywhere

        columns = [
            quote_identifier([column.name]) for column in self.main.table.metadata.schema().fields
        ]
        values = F.to_json(F.struct(*columns), {"timestampFormat": _WHOLE_TIME}).alias(_VALUES)
        shown = rows.sparkSession.table(self.open().table.ref.quoted)
        times = shown.select(values).groupBy(_VALUES).agg(F.count("*").alias(_TIMES))
        number = F.row_number().over(Window.partitionBy(_VALUES).orderBy(F.lit(0)))
        numbered = rows.select("*", values).withColumn(_NUMBER, number).join(times, _VALUES, "left")
        is_new = ~is_failing | (F.col(_NUMBER) > F.coalesce(_TIMES, F.lit(0)))
        return numbered.where(is_new).drop(_VALUES, _NUMBER, _TIMES)

    def publish(self, batch_id: str) -> None:
        """Show the rows of a batch that the main table has published. Idempotent."""
        publisher = self.open()
        publisher.table.refresh()
        if (staged := publisher.find(f"{STAGED_PREFIX}{batch_id}")) is not None:
            publisher.show(staged, lambda: failpoints.reach("publish.rejected_ready"))
            failpoints.reach("publish.rejected_published")
        self.main.finished_properties.add(f"{REJECTED_PREFIX}{batch_id}")

    def finish(self) -> None:
        """Show what the main table names and a kill has left, and discard what lost.

        A table that is not there may be away for a while: the main table goes on naming its rows.
        What is staged here is read before the main table: a staging is discarded only if the main
        table, read later, has moved past it and does not name it.
        """
        table = find_staging_table(self.lake.profile, self.lake.catalog(), self.identifier)
        if table is not None and self._publisher is None:
            self._use(table)
        stagings = self._publisher.table.staged(STAGED_PREFIX) if self._publisher else []
        self.main.marks()
        named = {
            key.removeprefix(REJECTED_PREFIX)
            for key in self.main.table.properties
            if key.startswith(REJECTED_PREFIX)
        }
        for batch_id in named if table is not None else ():
            self.publish(batch_id)
        for staged in stagings:
            if batch_id_of(staged) not in named and self._has_lost(staged):
                self.open().discard(staged)

    def _has_lost(self, staged: StagedSnapshot) -> bool:
        ranges = decode_ranges(staged.summary, BATCH_RANGES)
        if REPLAY in staged.summary:
            return overlaps(consumed_in(self.main.table), ranges)
        return self.main.has_consumed(ranges)

    def _use(self, table: StagingTable | None = None) -> Publisher:
        if table is not None:
            self._publisher = _RejectedPublisher(table, self.main)
        if self._publisher is None:
            raise RuntimeError("the table of rejected rows was not opened")
        return self._publisher
