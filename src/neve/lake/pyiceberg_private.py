"""The private functions of PyIceberg that Neve uses; nobody else imports any.

Each says why the public way does not do. `pyiceberg_catalogs.py` overrides what else is private.
`tests/unit/lake/test_pyiceberg_private.py` holds what we rely on, for the pinned version: run it
first after an upgrade.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest.response import _handle_non_200_response
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
from pyiceberg.manifest import DataFile, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table import Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import (
    Operation,
    SnapshotSummaryCollector,
    Summary,
    update_snapshot_summaries,
)
from pyiceberg.table.update import AddSnapshotUpdate, UpdatesAndRequirements
from pyiceberg.table.update.snapshot import _MergeAppendFiles, _OverwriteFiles
from pyiceberg.typedef import EMPTY_DICT

if TYPE_CHECKING:
    import pyarrow as pa
    import requests
    from pyiceberg.table import Table

__all__ = [
    "append_update",
    "delete_old_metadata",
    "overwrite_update",
    "raise_for_answer",
    "schema_without_ids",
]


def append_update(
    table: Table, files: Iterable[DataFile], summary: Mapping[str, str]
) -> AddSnapshotUpdate:
    """Write the manifests of an append and return the update that adds its snapshot.

    Nothing is sent. The public `append` sends by itself, and again on a base nobody looked at.
    """
    producer = _AppendByPartitionSpec(
        Operation.APPEND,
        _TransactionWithoutCopies(table),
        table.io,
        snapshot_properties=dict(summary),
        branch=None,
    )
    for file in files:
        producer.append_data_file(file)
    (added,), _ = producer._commit()  # noqa: SLF001 - the only way to build without sending
    if not isinstance(added, AddSnapshotUpdate):
        raise TypeError(added)
    return added


class _TransactionWithoutCopies(Transaction):
    """A transaction that holds no update, so that its metadata is the table's own.

    PyIceberg's makes a deep copy each time it is asked for metadata, and an append asks ten times:
    half of the time of a commit to a table with a hundred snapshots. An append only reads them.
    """

    @property
    def table_metadata(self) -> TableMetadata:
        return self._table.metadata


def overwrite_update(
    table: Table, files: Iterable[DataFile], summary: Mapping[str, str]
) -> AddSnapshotUpdate:
    """Write the manifests of a snapshot that has these data files instead of all present ones.

    Nothing is sent. The public `delete` and `overwrite` send by themselves, and again on a base
    nobody looked at.
    """
    producer = _OverwriteFiles(
        Operation.OVERWRITE,
        table.transaction(),
        table.io,
        snapshot_properties=dict(summary),
        branch=MAIN_BRANCH,
    )
    for task in table.scan().plan_files():
        producer.delete_data_file(task.file)
    for file in files:
        producer.append_data_file(file)
    (added, *_), _ = producer._commit()  # noqa: SLF001 - the only way to build without sending
    if not isinstance(added, AddSnapshotUpdate):
        raise TypeError(added)
    return added


class _AppendByPartitionSpec(_MergeAppendFiles):
    """An append whose manifests name the partition spec that each file was written under.

    PyIceberg names the table's current spec for all files. Files of an older one, written or held
    before somebody changed the partitioning, would get a partition that they are not of, and
    filters would not find their rows.
    """

    def _commit(self) -> UpdatesAndRequirements:
        current = self._transaction.table_metadata.default_spec_id
        # PyIceberg's own writer leaves it out.
        for file in self._added_data_files:
            file.spec_id = getattr(file, "spec_id", current)
        self._older_files = [file for file in self._added_data_files if file.spec_id != current]
        self._added_data_files = [
            file for file in self._added_data_files if file.spec_id == current
        ]
        return super()._commit()

    def _manifests(self) -> list[ManifestFile]:
        manifests = super()._manifests()
        for spec_id in sorted({file.spec_id for file in self._older_files}):
            with self.new_manifest_writer(self.spec(spec_id)) as writer:
                for file in self._older_files:
                    if file.spec_id == spec_id:
                        writer.add(self._added_entry(file))
            manifests.append(writer.to_manifest_file())
        return manifests

    def _added_entry(self, file: DataFile) -> ManifestEntry:
        return ManifestEntry.from_args(
            status=ManifestEntryStatus.ADDED,
            snapshot_id=self._snapshot_id,
            sequence_number=None,
            file_sequence_number=None,
            data_file=file,
        )

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        if not self._older_files:
            return super()._summary(snapshot_properties)
        metadata = self._transaction.table_metadata
        counts = SnapshotSummaryCollector()
        for file in (*self._added_data_files, *self._older_files):
            counts.add_file(file, metadata.schema(), metadata.specs()[file.spec_id])
        parent_id = self._parent_snapshot_id
        parent = None if parent_id is None else metadata.snapshot_by_id(parent_id)
        return update_snapshot_summaries(
            Summary(operation=self._operation, **counts.build(), **snapshot_properties),
            parent.summary if parent is not None else None,
        )


def delete_old_metadata(io: FileIO, before: TableMetadata, after: TableMetadata) -> None:
    """Delete the metadata files that left the metadata log, if the table's properties say so.

    PyIceberg does it in `Table._do_commit`, which also retries; Neve sends its commits itself.
    A file that cannot be deleted is logged and left.
    """
    Catalog._delete_old_metadata(io, before, after)  # noqa: SLF001 - there is no public way


def schema_without_ids(schema: pa.Schema) -> Schema:
    """Convert an Arrow schema whose fields have no ids; the public function asks for ids."""
    return _pyarrow_to_schema_without_ids(schema)


def raise_for_answer(error: requests.HTTPError, errors: Mapping[int, type[Exception]]) -> None:
    """Raise what PyIceberg raises for an answer of a REST catalog, with the server's reason.

    There is no public way: its own requests parse answers into a model without row ids.

    Args:
        errors: what certain statuses mean to this request.
    """
    _handle_non_200_response(error, dict(errors))
