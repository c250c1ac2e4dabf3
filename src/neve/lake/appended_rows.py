"""Read the rows that a few snapshots appended, here, without Spark or Java.

As in Iceberg's incremental scan, the rows are those of files that an append has added. What Spark
might read otherwise, and all that is larger than the limits, raises `NeedsSparkError`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.table.snapshots import Operation

from neve.lake.chosen_files import ChosenFile
from neve.lake.manifests import FileEntry, ManifestReader, in_parallel
from neve.lake.metadata_json import MetadataJson
from neve.lake.plain_rows import Allowance, PlainReader
from neve.lake.plain_types import NeedsSparkError

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot


def read_appended(
    table: TableMetadata,
    io: FileIO,
    snapshots: Iterable[Snapshot],
    columns: Collection[str],
    limit: Allowance,
) -> pa.Table:
    """Return some columns of the rows that snapshots appended, as Spark's tasks would get them.

    Raises:
        NeedsSparkError: they are too many, or might not be exactly what Spark would read.
    """
    appends = _appends(snapshots)
    _require_few(appends, limit.fresh())
    files = _Files(table, io, columns)
    reader = PlainReader(files, table.current_schema_id, limit.fresh())
    entries = list(files.appended(appends))
    # Decided by metadata, before a file is opened.
    limit.fresh().take(
        files=len(entries),
        stored_bytes=sum(entry.bytes for entry in entries),
        rows=sum(entry.records for entry in entries),
    )
    chosen = [ChosenFile(entry, 0) for entry in entries]
    reader.fetch(chosen)
    parts = [reader.rows(file).rows for file in chosen]
    rows = pa.concat_tables([reader.schema.empty_table(), *parts])
    return rows.rename_columns(reader.columns.names)


def _appends(snapshots: Iterable[Snapshot]) -> list[Snapshot]:
    return [
        snapshot
        for snapshot in snapshots
        if snapshot.summary is None or snapshot.summary.operation is not Operation.REPLACE
    ]


def _require_few(appends: Iterable[Snapshot], limit: Allowance) -> None:
    """Decide by what snapshots say of themselves, before a manifest is read."""
    for snapshot in appends:
        summary = snapshot.summary
        files = None if summary is None else summary["added-data-files"]
        if summary is None or files is None:
            raise NeedsSparkError("a snapshot does not say how many files it has added")
        limit.take(
            # Also one without files has a manifest list.
            files=max(1, int(files)),
            stored_bytes=int(summary["added-files-size"] or 0),
            rows=int(summary["added-records"] or 0),
        )


class _Files:
    """A table's files, read by PyIceberg; of its columns, some."""

    def __init__(self, table: TableMetadata, io: FileIO, columns: Collection[str]) -> None:
        self._table = table
        self._io = io
        self._columns = columns

    @cached_property
    def metadata(self) -> MetadataJson:
        schema = json.loads(self._table.schema().model_dump_json())
        fields = [field for field in schema["fields"] if field["name"] in self._columns]
        specs = [json.loads(spec.model_dump_json()) for spec in self._table.partition_specs]
        document = {"schemas": [{**schema, "fields": fields}], "partition-specs": specs}
        return MetadataJson("", document)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        try:
            with self._io.new_input(path).open() as stream:
                stream.seek(offset)
                return stream.read() if length is None else stream.read(length)
        except OSError as error:
            # Java says what is wrong with it, above all that it has expired.
            raise NeedsSparkError(f"a file cannot be read here: {type(error).__name__}") from error

    def read_many(self, paths: Sequence[str]) -> list[bytes]:
        return in_parallel(self.read, paths)

    def appended(self, snapshots: Iterable[Snapshot]) -> Iterable[FileEntry]:
        lists = [(snapshot.snapshot_id, snapshot.manifest_list) for snapshot in snapshots]
        if not all(path for _, path in lists):
            raise NeedsSparkError("a snapshot is of an old format")
        return ManifestReader(self.read).added_by(lists)
