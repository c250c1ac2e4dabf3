"""The tables of a mirror: itself, what was deleted, and what could not be taken.

The tables beside it are written first, and the mirror's commit names their snapshots. What a crash
left there without a commit of the mirror is undone by restoring the snapshot that the mirror names.
What others do there, such as a compaction, stays.

A table without rows has no snapshot at first: PyIceberg cannot list the files of an empty one.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from neve.errors import ConflictError
from neve.lake.create import TableSpec, ensure_table
from neve.lake.faults import explained
from neve.lake.frames import write_frame
from neve.lake.java_tables import JavaTable
from neve.lake.pyiceberg_private import schema_without_ids
from neve.lake.staging import Change, StagingTable, find_staging_table
from neve.merge.checkpoint import (
    BATCH_ID,
    CHECKPOINT,
    Checkpoint,
    side_summary,
    snapshot_to_restore,
)
from neve.merge.double_entry import require_written
from neve.merge.drift import Fit, fit_of
from neve.merge.mirror import (
    SIDE_OF,
    changed_schema,
    mirror_properties,
    partition_spec,
    require_our_side_table,
    source_properties,
)

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame

    from neve.lake import Lake
    from neve.lake.identifier import Identifier
    from neve.merge.batch import BatchWork
    from neve.merge.checkpoint import MirrorState
    from neve.merge.plan import Look, Observe
    from neve.merge.rejected import RejectedEvents
    from neve.merge.spec import MergeSpec

KIND, BATCH, AT = "neve_kind", "neve_batch_id", "neve_merged_at"
DELETED, TRUNCATED = "delete", "truncate"
TIMESTAMP = pa.timestamp("us", tz="UTC")
_PROPERTIES = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}

REJECTED_SCHEMA = pa.schema(
    [
        pa.field("reason", pa.string()),
        pa.field("event", pa.string()),
        pa.field("changelog_file", pa.string()),
        pa.field("changelog_position", pa.int64()),
        pa.field(BATCH, pa.string()),
        pa.field(AT, TIMESTAMP),
    ]
)


def tombstones_schema(spec: MergeSpec, mirror: Schema) -> pa.Schema:
    """Return keys and sequence as the mirror has them, and what kind of tombstone it is."""
    columns = schema_to_pyarrow(mirror, include_field_ids=False)
    wanted = dict.fromkeys((*spec.keys, *spec.sequence))
    return pa.schema(
        [
            *(pa.field(name, columns.field(name).type) for name in wanted),
            pa.field(KIND, pa.string()),
            pa.field(BATCH, pa.string()),
            pa.field(AT, TIMESTAMP),
        ]
    )


@dataclass
class SideTable:
    """A table that follows the mirror: its `main` is what the mirror's newest commit names."""

    lake: Lake
    spec: MergeSpec
    identifier: Identifier
    schema: pa.Schema
    _staging: StagingTable | None = None

    def open(self) -> None:
        """Load the table, once; make it if it is missing, and widen what became wider.

        Raises:
            ConfigError: somebody else's table is there; nothing is changed then.
        """
        if self._staging is not None:
            return
        properties = {**_PROPERTIES, SIDE_OF: self.spec.name}
        spec = TableSpec(self.identifier, self.schema, properties=properties)
        profile, catalog = self.lake.profile, self.lake.catalog()
        staging = find_staging_table(profile, catalog, self.identifier)
        present = staging.table if staging else None
        require_our_side_table(self.spec, self.identifier, present)
        self._widen(present)
        table = ensure_table(profile, catalog, spec, present=present)
        if staging is None or staging.document.metadata_location != table.metadata_location:
            staging = StagingTable(profile, table)
        self._staging = staging

    def empty(self) -> int | None:
        """Delete all rows; return the snapshot without rows, or None: there is no snapshot.

        Carries a batch's mark, so that the rows come back if the mirror never names it.
        """
        self.open()
        if self.staging.table.scan(limit=1).to_arrow().num_rows:
            self.staging.replace((), {BATCH_ID: uuid.uuid4().hex})
        return self.staging.main_id

    def restore(self, state: MirrorState, named: int | None) -> int | None:
        """Undo what merges wrote that the mirror does not name; return the snapshot that is left.

        Args:
            named: the snapshot of this table that the mirror's newest merge names.
        """
        self.open()
        main = self.staging.main_id
        target = snapshot_to_restore(self.staging.table.metadata, state, named)
        if target == main or main is None:
            return main
        if target is None:
            return self.empty()
        return self.staging.apply(Change(base_main=main, to_main=target))

    def write(self, rows: DataFrame) -> list[DataFile]:
        """Write rows as files; nothing is committed."""
        with self.lake.explaining():
            return write_frame(rows, self.staging.table)

    @property
    def staging(self) -> StagingTable:
        if self._staging is None:
            raise RuntimeError("the side table was not opened")
        return self._staging

    def _widen(self, table: Table | None) -> None:
        if table is None:
            return
        present = {field.name: field.field_type for field in table.schema().fields}
        wider = {
            field.name: field.field_type
            for field in schema_without_ids(self.schema).fields
            if field.name in present and fit_of(present[field.name], field.field_type) is Fit.WIDENS
        }
        if wider:
            with explained(self.lake.profile), table.update_schema() as update:
                for name, kind in wider.items():
                    update.update_column(name, kind)


@dataclass(frozen=True)
class MirrorTables:
    """The tables of one mirror."""

    lake: Lake
    spec: MergeSpec

    def prepare(self, tables: Look, observe: Observe) -> Look:
        """Make the mirror, or give it the columns it lacks; return how it is then. Idempotent.

        Args:
            observe: looks at the tables once more.
        """
        mirror = JavaTable(self.lake, self.lake.spark, self.lake.ref(self.spec.mirror))
        if tables.mirror is None or tables.state is None:
            partitions = partition_spec(self.spec, tables.schema)
            sides = side_summary(self.tombstones(tables).empty(), self.rejected().empty())
            mirror.create(
                tables.schema.model_dump_json(),
                partitions.model_dump_json(),
                mirror_properties(self.spec, str(tables.changelog.table_uuid)),
                {CHECKPOINT: Checkpoint(str(tables.changelog.table_uuid)).encode(), **sides},
            )
            return self.prepare(observe(self.lake, self.spec), observe)
        # Where all rows are replaced, the commit that does so says what they come from.
        remembered = {} if tables.rebuild else source_properties(self.spec, tables)
        grown = tables.drift.changes_mirror
        if grown or not remembered.items() <= tables.mirror.properties.items():
            changed = changed_schema(tables.drift).model_dump_json()
            mirror.union_schema(changed, remembered, dict(tables.drift.renamed))
        return self.prepare(observe(self.lake, self.spec), observe) if grown else tables

    def restore_side_tables(self, tables: Look) -> None:
        """Restore the tables beside the mirror after another worker was first.

        What that worker had written there looked like something left behind, until its commit.
        """
        state = tables.state
        if state is None:
            return
        tombstones, rejected = self.tombstones(tables), self.rejected()
        for table, named in ((tombstones, state.tombstones_id), (rejected, state.rejected_id)):
            table.restore(state, named)

    def tombstones(self, tables: Look) -> SideTable:
        schema = tombstones_schema(self.spec, tables.schema)
        return SideTable(self.lake, self.spec, self.spec.tombstones, schema)

    def rejected(self) -> SideTable:
        return SideTable(self.lake, self.spec, self.spec.rejected, REJECTED_SCHEMA)


def write_rejected(
    work: BatchWork, rejected: SideTable, present: int | None, batch_id: str, now: datetime
) -> int | None:
    """Add what cannot be taken to `<mirror>_rejected`, or remove what was; return its snapshot.

    A rebuild leaves there what it rejects itself, and nothing else.

    Args:
        present: its snapshot before.

    Raises:
        UnbalancedError: other events would be written than were counted.
    """
    mark = {BATCH_ID: batch_id}
    if work.retried is not None:
        return _write_remaining(work, work.retried, rejected, present, mark)
    replaces = work.tables.rebuild and present is not None
    if not work.counts.set_aside:
        return rejected.empty() if replaces else present
    # What was rejected before a rebuild is an event of this batch, too, or of a changelog that was
    # dropped: taken back later, those would be rows of nothing.
    known = None if replaces else present
    files = rejected.write(work.rejected(batch_id, now, known))
    if work.tables.pending.whole is None or known is None:
        _require_written(rejected, work.counts.set_aside, files)
    return (rejected.staging.replace if replaces else rejected.staging.append)(files, mark)


def _write_remaining(
    work: BatchWork,
    retried: RejectedEvents,
    rejected: SideTable,
    present: int | None,
    mark: Mapping[str, str],
) -> int | None:
    """Leave in `<mirror>_rejected` what still cannot be taken; return its snapshot."""
    if work.batch.rejected_id != present:
        raise ConflictError(
            f"{rejected.staging.name}: main has moved away from snapshot {work.batch.rejected_id}",
            hint="it is tried again",
            retryable=True,
        )
    files = rejected.write(retried.remaining)
    if work.batch.recorded is not None:
        # Rejected events = events that are taken now + those that stay.
        _require_written(rejected, work.batch.recorded - work.counts.scanned, files)
    return rejected.staging.replace(files, mark)


def _require_written(rejected: SideTable, counted: int, files: Iterable[DataFile]) -> None:
    written = sum(file.record_count for file in files)
    require_written(rejected.staging.name, "rejected events", counted, written)
