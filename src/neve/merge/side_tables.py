"""The tables beside a mirror: what was deleted, and what could not be taken.

They are written first, and the mirror's commit names their snapshots. What a crash left there
without a commit of the mirror is undone by restoring the snapshot that the mirror names. What
others do there, such as a compaction, stays.

A table without rows has no snapshot at first: PyIceberg cannot list the files of an empty one.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from neve.lake.create import TableSpec, ensure_table, load_if_exists
from neve.lake.faults import explained
from neve.lake.frames import write_frame
from neve.lake.pyiceberg_private import schema_without_ids
from neve.lake.staging import Change, StagingTable
from neve.merge.checkpoint import BATCH_ID, snapshot_to_restore
from neve.merge.drift import Fit, fit_of
from neve.merge.mirror import SIDE_OF, require_our_side_table

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame

    from neve.lake import Lake
    from neve.lake.identifier import Identifier
    from neve.merge.checkpoint import MirrorState
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


class SideTable:
    """A table that follows the mirror: its `main` is what the mirror's newest commit names."""

    def __init__(
        self, lake: Lake, spec: MergeSpec, identifier: Identifier, schema: pa.Schema
    ) -> None:
        self.lake = lake
        self.spec = spec
        self.identifier = identifier
        self.schema = schema
        self._staging: StagingTable | None = None

    def open(self) -> None:
        """Make the table if it is missing, and widen what became wider.

        Raises:
            ConfigError: somebody else's table is there; nothing is changed then.
        """
        properties = {**_PROPERTIES, SIDE_OF: self.spec.name}
        spec = TableSpec(self.identifier, self.schema, properties=properties)
        profile, catalog = self.lake.profile, self.lake.catalog()
        present = load_if_exists(profile, catalog, self.identifier)
        require_our_side_table(self.spec, self.identifier, present)
        self._widen(present)
        self._staging = StagingTable(profile, ensure_table(profile, catalog, spec))

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
        self.staging.refresh()
        main = self.staging.main_id
        target = snapshot_to_restore(self.staging.table.metadata, state, named)
        if target == main or main is None:
            return main
        if target is None:
            return self.empty()
        return self.staging.apply(Change(base_main=main, to_main=target))

    def snapshot_to_restore(self, state: MirrorState, named: int | None) -> int | None:
        """Return the snapshot whose rows `restore` would leave; None: no rows. Writes nothing."""
        table = load_if_exists(self.lake.profile, self.lake.catalog(), self.identifier)
        return snapshot_to_restore(table.metadata, state, named) if table else None

    def write(self, rows: DataFrame) -> list[DataFile]:
        """Write rows as files; nothing is committed."""
        with self.lake.explaining():
            return write_frame(rows, self.staging.table)

    def append(self, files: list[DataFile], summary: Mapping[str, str]) -> int:
        """Add files to `main` in one commit; return its snapshot."""
        return self.staging.append(files, summary)

    def replace(self, files: list[DataFile], summary: Mapping[str, str]) -> int:
        """Have `main` hold these files instead of all others; return its snapshot. One commit."""
        return self.staging.replace(files, summary)

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
