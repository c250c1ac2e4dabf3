"""Read chosen files of a table, each with chosen deletes: a table in memory that has only these.

A manifest of which only some entries are chosen is copied without the others into a temporary
directory of this machine; only the driver plans, so that only the driver reads it. It is removed
when no DataFrame needs it any more, at the latest when the process ends. Iceberg plans and reads as
it does with any table: projection, filters, statistics, splits, deletes.

Rows know which group of files they come from by a trick: each group has a partition spec of its
own, a copy of the one that its files have, and Iceberg offers a file's `_spec_id` as a constant.
"""

from __future__ import annotations

import json
import secrets
import shutil
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro

from neve.errors import UnsupportedError
from neve.lake.jvm.local_rows import local_rows
from neve.lake.jvm.table_files import TableFiles
from neve.lake.manifests import (
    DELETED,
    AvroFile,
    FileEntry,
    Manifest,
    ManifestReader,
    in_parallel,
    inherit,
)
from neve.lake.metadata_json import MetadataJson, decode_document
from neve.lake.paths import local_address, local_path
from neve.lake.temporary_manifests import manifest_directory

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from neve.lake.lake import Lake
    from neve.lake.table_ref import TableRef

# What Iceberg knows of a row. A table's own column of such a name would hide it.
_METADATA_COLUMNS = frozenset(
    (
        "_deleted",
        "_file",
        "_last_updated_sequence_number",
        "_partition",
        "_pos",
        "_row_id",
        "_spec_id",
    )
)
_EXISTING = 0
_FIRST_SPEC = 1_000_000
SPEC_ID = "_spec_id"


@dataclass(frozen=True)
class ChosenFile:
    """A data file to read, the deletes that hide rows of it, and the group its rows belong to."""

    entry: FileEntry
    group: int
    deletes: tuple[FileEntry, ...] = ()


@dataclass(frozen=True)
class ChosenRows:
    """The rows of chosen files. `group_of_spec[row._spec_id - first_spec]` is a row's group.

    The columns stand in their order. One that has the name of a metadata column has another name.
    """

    frame: DataFrame
    group_of_spec: tuple[int, ...]
    first_spec: int = _FIRST_SPEC


class TableReader:
    """A table's metadata and files as Java sees them, so that any catalog and any type will do.

    Raises:
        UnsupportedError: it is a branch or a tag by the name of a table.
    """

    def __init__(self, lake: Lake, ref: TableRef) -> None:
        self._lake = lake
        with lake.explaining():
            self._files = TableFiles(lake.spark, ref)
            is_whole = self._files.is_whole(ref)
        if not is_whole:
            raise UnsupportedError(
                f"{ref.name} is a part of a table, and changes are those of a whole one",
                hint="name the table, and the branch or tag as a version",
            )
        self.metadata = self._read_metadata()
        self.manifests = ManifestReader(self.read)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Read a file, or a part of it."""
        content = _read_local(path, offset, length)
        if content is not None:
            return content
        with self._lake.explaining():
            return self._files.read(path, offset, length)

    def read_many(self, paths: Sequence[str]) -> list[bytes]:
        """Read whole files at the same time."""
        return in_parallel(self.read, paths)

    def _read_metadata(self) -> MetadataJson:
        location = self._files.metadata_location()
        content = _read_local(location)
        if content is not None:
            metadata = MetadataJson(location, decode_document(content))
            # Java adds what older writers left out.
            if metadata.format_version > 1:
                return metadata
        with self._lake.explaining():
            return MetadataJson(location, json.loads(self._files.metadata_json()))

    def rows(
        self,
        files: Sequence[ChosenFile],
        schema_id: int,
        delete_manifests: Iterable[Manifest] = (),
    ) -> ChosenRows:
        """Return the rows of chosen files; no path may occur twice.

        Args:
            schema_id: the columns; they are found in files by their ids.
            delete_manifests: deletes besides those of the files. Iceberg decides to which of the
                files they apply: then all files must be of one group.
        """
        directory = manifest_directory()
        deletes = list(delete_manifests)
        specs = _Specs(self.metadata, keep_ids={one.spec_id for one in deletes} or None)
        chosen = _manifests(files, specs)
        times = Counter(manifest.path for manifest, _, _ in chosen)
        lines = []
        for number, (manifest, spec_id, keys) in enumerate(chosen):
            path, length = manifest.path, manifest.length
            # Iceberg takes two manifests of one path for the same.
            if times[path] > 1 or not self._has_only(manifest, keys):
                copy = directory / f"{number}.avro"
                _copy(copy, self.manifests.avro(manifest), manifest, keys)
                path, length = local_address(copy), copy.stat().st_size
            # The spec in the manifest list decides, not the one in the manifest.
            lines.append({**_line(manifest, path, length), "partition_spec_id": spec_id})
        lines += [_line(manifest, manifest.path, manifest.length) for manifest in deletes]
        manifest_list = directory / "list.avro"
        _write_list(manifest_list, lines)
        total = sum(file.entry.records for file in files)
        document = _document(self.metadata, schema_id, specs.specs.values(), manifest_list, total)
        with self._lake.explaining():
            frame = self._files.scan(
                self.metadata.metadata_location, json.dumps(document), str(directory)
            )
            # A follower that waits lives for months.
            for unused in self._files.unused_directories():
                shutil.rmtree(unused, ignore_errors=True)
        return ChosenRows(frame, tuple(specs.groups))

    def frame(self, rows: pa.Table, columns: StructType) -> DataFrame:
        """Return rows that are here as a DataFrame; Spark then needs no file to read them."""
        with self._lake.explaining():
            return local_rows(self._lake.spark, rows, columns)

    def _has_only(self, manifest: Manifest, keys: set[tuple[str, int | None]]) -> bool:
        return keys == {entry.key for entry in self.manifests.entries([manifest])}


def _read_local(path: str, offset: int = 0, length: int | None = None) -> bytes | None:
    """Read a file of this machine; sooner than through Java, which says what is wrong with it."""
    local = local_path(path)
    if local is None:
        return None
    try:
        with local.open("rb") as file:
            file.seek(offset)
            return file.read(-1 if length is None else length)
    except OSError:
        return None


class _Specs:
    """Partition specs for groups of files: copies of the table's own, under new ids.

    Args:
        keep_ids: the specs of manifests that are not copied. With any, all keep their ids.
    """

    def __init__(self, metadata: MetadataJson, keep_ids: set[int] | None) -> None:
        self._keep_ids = keep_ids is not None
        self._known = {spec["spec-id"]: spec for spec in metadata.partition_specs}
        self._ids: dict[tuple[int, int], int] = {}
        self.groups: list[int] = []
        self.specs: dict[int, Mapping[str, Any]] = {one: self._known[one] for one in keep_ids or ()}

    def id_for(self, spec_id: int, group: int) -> int:
        if self._keep_ids:
            self.specs[spec_id] = self._known[spec_id]
            return spec_id
        if (spec_id, group) not in self._ids:
            new_id = _FIRST_SPEC + len(self.groups)
            self._ids[spec_id, group] = new_id
            self.groups.append(group)
            self.specs[new_id] = {**self._known[spec_id], "spec-id": new_id}
        return self._ids[spec_id, group]


def _manifests(
    files: Sequence[ChosenFile], specs: _Specs
) -> list[tuple[Manifest, int, set[tuple[str, int | None]]]]:
    """Return which entries are wanted of which manifest, under which spec."""
    entries: dict[tuple[Manifest, int], set[tuple[str, int | None]]] = defaultdict(set)
    for file in files:
        for entry in (file.entry, *file.deletes):
            spec_id = specs.id_for(entry.spec_id, file.group)
            entries[entry.manifest, spec_id].add(entry.key)
    return [(manifest, spec_id, keys) for (manifest, spec_id), keys in entries.items()]


def _copy(
    target: Path, avro: AvroFile, manifest: Manifest, keys: set[tuple[str, int | None]]
) -> None:
    """Copy entries of a manifest into a new one."""
    records = []
    for record in avro.records():
        file = record["data_file"]
        is_chosen = (file["file_path"], file.get("content_offset")) in keys
        if is_chosen and record["status"] != DELETED:
            inherit(record, manifest)
            record["status"] = _EXISTING
            records.append(record)
    with target.open("wb") as stream:
        fastavro.writer(stream, avro.schema, records, metadata=avro.metadata)


def _line(manifest: Manifest, path: str, length: int) -> dict[str, Any]:
    return {
        "manifest_path": path,
        "manifest_length": length,
        "partition_spec_id": manifest.spec_id,
        "content": int(manifest.has_deletes),
        "sequence_number": manifest.sequence_number,
        "min_sequence_number": manifest.min_sequence_number,
        "added_snapshot_id": manifest.added_snapshot_id,
        # Only whether there are any matters to those who plan.
        "added_files_count": 0,
        "existing_files_count": 1,
        "deleted_files_count": 0,
        "added_rows_count": 0,
        "existing_rows_count": 0,
        "deleted_rows_count": 0,
    }


_LIST_TYPES = {
    "manifest_path": (500, "string"),
    "manifest_length": (501, "long"),
    "partition_spec_id": (502, "int"),
    "content": (517, "int"),
    "sequence_number": (515, "long"),
    "min_sequence_number": (516, "long"),
    "added_snapshot_id": (503, "long"),
    "added_files_count": (504, "int"),
    "existing_files_count": (505, "int"),
    "deleted_files_count": (506, "int"),
    "added_rows_count": (512, "long"),
    "existing_rows_count": (513, "long"),
    "deleted_rows_count": (514, "long"),
}
_LIST_SCHEMA = fastavro.parse_schema(
    {
        "type": "record",
        "name": "manifest_file",
        "fields": [
            {"name": name, "type": kind, "field-id": number}
            for name, (number, kind) in _LIST_TYPES.items()
        ],
    }
)


def _write_list(target: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    with target.open("wb") as stream:
        fastavro.writer(stream, _LIST_SCHEMA, lines)


def _document(
    metadata: MetadataJson,
    schema_id: int,
    specs: Iterable[Mapping[str, Any]],
    manifest_list: Path,
    records: int,
) -> dict[str, Any]:
    """Return metadata whose one snapshot has the manifests of a list."""
    original = metadata.document
    # The default one: Iceberg refuses there a column that was dropped, and nowhere else.
    unpartitioned = {"spec-id": _FIRST_SPEC - 1, "fields": []}
    # Spark takes two scans of one table and one snapshot for the same, and runs one of them.
    snapshot_id = secrets.randbits(62)
    snapshot: dict[str, Any] = {
        "snapshot-id": snapshot_id,
        "sequence-number": original.get("last-sequence-number", 0),
        "timestamp-ms": original["last-updated-ms"],
        "summary": {"operation": "append", "total-records": str(records)},
        "manifest-list": local_address(manifest_list),
        "schema-id": schema_id,
    }
    if metadata.format_version > 2:
        snapshot |= {"first-row-id": 0, "added-rows": 0}
    document = {
        **original,
        # Format version 1 allows to leave it out, and Spark does not.
        "table-uuid": original.get("table-uuid") or str(uuid.uuid4()),
        "partition-specs": [unpartitioned, *specs],
        "default-spec-id": unpartitioned["spec-id"],
        "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0,
        "current-snapshot-id": snapshot_id,
        "snapshots": [snapshot],
        "refs": {},
        "properties": {
            **metadata.properties,
            "read.data-planning-mode": "local",
            "read.delete-planning-mode": "local",
        },
        "schemas": [_without_metadata_columns(metadata.schema(schema_id))],
        "current-schema-id": schema_id,
    }
    for name in ("snapshot-log", "metadata-log", "statistics", "partition-statistics"):
        document[name] = []
    # Format version 1 repeats the current ones; the lists above are what counts.
    for name in ("schema", "partition-spec"):
        document.pop(name, None)
    return document


def _without_metadata_columns(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Rename columns that have the names of metadata columns; files know columns by their ids."""
    fields = [
        {**field, "name": f"{field['name']} of the table"}
        if field["name"].lower() in _METADATA_COLUMNS
        else field
        for field in schema["fields"]
    ]
    return {**schema, "fields": fields}
