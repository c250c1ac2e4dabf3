"""Everything private of PyIceberg that Neve uses, and nothing else of the kind is used elsewhere.

Each function says why the public way does not do. `tests/unit/lake/test_pyiceberg_private.py` holds
what we rely on, for the pinned version: run it first after an upgrade.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import requests
from pyiceberg.catalog import Catalog, delete_files
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import _determine_partitions, _pyarrow_to_schema_without_ids
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import AddSnapshotUpdate
from pyiceberg.table.update.snapshot import _MergeAppendFiles
from requests.adapters import BaseAdapter

from neve.lake.postgres_timeout import Timeouts, bound_answers

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.table import CommitTableResponse, StagedTable, Table
    from pyiceberg.table.update import TableRequirement, TableUpdate
    from pyiceberg.typedef import Identifier, Record

__all__ = [
    "NeveRestCatalog",
    "NeveSqlCatalog",
    "append_update",
    "delete_old_metadata",
    "partition_rows",
    "schema_without_ids",
]


def append_update(
    table: Table, files: Iterable[DataFile], summary: Mapping[str, str]
) -> AddSnapshotUpdate:
    """Write the manifests of an append and return the update that adds its snapshot.

    Nothing is sent. The public `append` sends by itself, and again on a base nobody looked at.
    """
    producer = _MergeAppendFiles(
        Operation.APPEND,
        table.transaction(),
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


def delete_old_metadata(io: FileIO, before: TableMetadata, after: TableMetadata) -> None:
    """Delete the metadata files that left the metadata log, if the table's properties say so.

    PyIceberg does it in `Table._do_commit`, which also retries; Neve sends its commits itself.
    A file that cannot be deleted is logged and left.
    """
    Catalog._delete_old_metadata(io, before, after)  # noqa: SLF001 - there is no public way


def schema_without_ids(schema: pa.Schema) -> Schema:
    """Convert an Arrow schema whose fields have no ids; the public function asks for ids."""
    return _pyarrow_to_schema_without_ids(schema)


def partition_rows(
    spec: PartitionSpec, schema: Schema, rows: pa.Table
) -> Iterator[tuple[Record, pa.Table]]:
    """Split rows by any partition spec; yield each partition and its rows.

    The public way writes the files as well, and not in the order that the table wants.
    """
    for part in _determine_partitions(spec, schema, rows):
        yield part.partition_key.partition, part.arrow_table_partition


class NeveRestCatalog(RestCatalog):
    """PyIceberg's REST catalog, each of whose requests ends in time."""

    def __init__(self, name: str, timeouts: Timeouts, **properties: str) -> None:
        # The constructor sends requests already.
        self._timeouts = timeouts
        super().__init__(name, **properties)

    def _config_headers(self, session: requests.Session) -> None:
        # The first thing that is done with a new session, before it sends for a token.
        super()._config_headers(session)
        self._bound(session)

    def _init_sigv4(self, session: requests.Session) -> None:
        super()._init_sigv4(session)
        self._bound(session)

    def _bound(self, session: requests.Session) -> None:
        for prefix, adapter in list(session.adapters.items()):
            if not isinstance(adapter, _BoundedAdapter):
                session.mount(prefix, _BoundedAdapter(adapter, self._timeouts))


class _BoundedAdapter(BaseAdapter):
    """Sends requests through another adapter, with time-outs. Repeats none of them."""

    def __init__(self, adapter: BaseAdapter, timeouts: Timeouts) -> None:
        super().__init__()
        self._adapter = adapter
        self._timeouts = (timeouts.connect_seconds, timeouts.answer_seconds)

    def send(
        self, request: requests.PreparedRequest, *arguments: Any, **options: Any
    ) -> requests.Response:
        options["timeout"] = options.get("timeout") or self._timeouts
        return self._adapter.send(request, *arguments, **options)

    def close(self) -> None:
        self._adapter.close()


class NeveSqlCatalog(SqlCatalog):
    """PyIceberg's catalog in a database.

    Its exchanges with PostgreSQL end in time, and a refused commit leaves no metadata file behind.
    SQLite has a time-out of its own, in its address.
    """

    def __init__(self, name: str, timeouts: Timeouts, **properties: str) -> None:
        self._timeouts = timeouts
        # Commits run on several threads.
        self._staged = threading.local()
        super().__init__(name, **properties)

    def _init_catalog(self) -> None:
        # Called by the constructor when there is an engine, and no connection yet.
        if self.engine.dialect.name == "postgresql":
            bound_answers(self.engine, self._timeouts)
        super()._init_catalog()

    def commit_table(
        self,
        table: Table,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> CommitTableResponse:
        outer = getattr(self._staged, "table", None)
        self._staged.table = None
        try:
            return super().commit_table(table, requirements, updates)
        except CommitFailedException:
            # Certain: the row names another metadata file, and nobody ever saw this one.
            staged = self._staged.table
            if staged is not None:
                delete_files(staged.io, {staged.metadata_location}, "metadata")
            raise
        finally:
            self._staged.table = outer

    def _update_and_stage_table(
        self,
        current_table: Table | None,
        table_identifier: Identifier,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        # Only here is the name of the metadata file known before it is written.
        staged = super()._update_and_stage_table(
            current_table, table_identifier, requirements, updates
        )
        self._staged.table = staged
        return staged
