"""The private functions of PyIceberg that Neve uses; nobody else imports any.

Each says why the public way does not do. `pyiceberg_catalogs.py` overrides what else is private.
`tests/unit/lake/test_pyiceberg_private.py` holds what we rely on, for the pinned version: run it
first after an upgrade.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import _determine_partitions, _pyarrow_to_schema_without_ids
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import AddSnapshotUpdate
from pyiceberg.table.update.snapshot import _MergeAppendFiles

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.table import Table
    from pyiceberg.typedef import Record

__all__ = [
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
