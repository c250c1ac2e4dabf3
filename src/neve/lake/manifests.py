"""Manifest lists and manifests, read from their Avro with every field they have. Pure.

PyIceberg's reader leaves out what it does not know, so that a copy would lose it. Statistics are
most of a manifest; they are decoded only where a manifest is copied.
"""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache
from itertools import islice
from typing import Any, TypeVar

import fastavro

from neve.lake.avro_blocks import decompress_blocks
from neve.lake.avro_files import AvroHeader, damage_named, read_header, without_logical_types
from neve.lake.shared_lists import ListBlock, SharedLists

ReadFile = Callable[[str], bytes]
T = TypeVar("T")

_READS_AT_ONCE = 8
_MOST_ENTRIES_KEPT = 500_000
ADDED, DELETED = 1, 2  # the status of an entry
_PATH_FIELD = 2147483546  # the reserved id of a position delete's column file_path
# Of manifest lists, by field id: their names have changed over the years.
_LIST_FIELDS = {
    500: "manifest_path",
    501: "manifest_length",
    502: "partition_spec_id",
    517: "content",
    515: "sequence_number",
    516: "min_sequence_number",
    503: "added_snapshot_id",
}
_ENTRY_FIELDS = {"status", "snapshot_id", "sequence_number", "file_sequence_number", "data_file"}
_FILE_FIELDS = {
    "content",
    "file_path",
    "file_format",
    "partition",
    "record_count",
    "file_size_in_bytes",
    "referenced_data_file",
    "content_offset",
    "content_size_in_bytes",
}
_BOUNDS = {"lower_bounds", "upper_bounds"}


class Content(IntEnum):
    """What a file holds."""

    DATA = 0
    POSITION_DELETES = 1
    EQUALITY_DELETES = 2


@dataclass(frozen=True)
class Manifest:
    """One line of a manifest list."""

    path: str
    length: int
    spec_id: int
    has_deletes: bool
    sequence_number: int
    min_sequence_number: int
    added_snapshot_id: int


ManifestBlock = ListBlock[Manifest]


@dataclass(frozen=True)
class FileEntry:
    """A live data or delete file, as a manifest names it."""

    path: str
    content: Content
    format: str
    spec_id: int
    partition: tuple[Any, ...]
    records: int
    bytes: int
    sequence_number: int
    data_file: str | None
    """Of deletes that belong to one data file: its path."""
    offset: int | None
    length: int | None
    manifest: Manifest = field(repr=False)

    @property
    def key(self) -> tuple[str, int | None]:
        """What tells it from others: several deletion vectors share one file."""
        return self.path, self.offset

    @property
    def is_vector(self) -> bool:
        return self.format == "PUFFIN"


@dataclass(frozen=True)
class FileStatistics:
    """A live file with the bounds of some columns.

    Args:
        is_rewritten: whether a rewrite of files made it. Such a file keeps the data sequence number
            of the rows it holds, which is older than the commit that added it.
        lower: by field id, as Iceberg writes single values.
    """

    file: FileEntry
    is_rewritten: bool
    lower: Mapping[int, bytes]
    upper: Mapping[int, bytes]


@dataclass(frozen=True)
class AvroFile:
    """An Avro file that is not decoded yet.

    Args:
        schema: as it was written.
        metadata: what Iceberg has written into the header.
        content: the file, with a header that names no logical types: a date stays a number, so
            that every value is written back as it was.
    """

    schema: dict[str, Any]
    metadata: dict[str, str]
    content: bytes

    def records(self, schema: dict[str, Any] | None = None) -> Iterator[dict[str, Any]]:
        """Decode the records, or what a smaller schema has of them."""
        records: Any = fastavro.reader(io.BytesIO(self.content), schema)
        yield from records


class ManifestReader:
    """Reads manifests by a function that reads whole files; keeps what it has read."""

    def __init__(self, read: ReadFile) -> None:
        self._read = read

    def manifests(self, manifest_list: str) -> list[Manifest]:
        """Return the manifests of a snapshot."""
        return [each for block in self.blocks(manifest_list) for each in block.lines]

    def blocks(self, manifest_list: str) -> tuple[ManifestBlock, ...]:
        """Return the manifests of a snapshot, those together that other lists may share."""
        return _lists_kept.get(manifest_list, self._read)

    def entries(self, manifests: Iterable[Manifest]) -> Iterator[FileEntry]:
        """Yield the live files that manifests name."""
        for entries in in_parallel(self._entries, list(manifests)):
            yield from entries

    def statistics(
        self, manifests: Iterable[Manifest], field_ids: Collection[int]
    ) -> Iterator[FileStatistics]:
        """Yield the live files with the bounds of some columns; keeps none, a few at a time."""
        wanted = frozenset(field_ids)

        def read(manifest: Manifest) -> list[FileStatistics]:
            return list(self._read_statistics(manifest, wanted))

        remaining = iter(manifests)
        while some := list(islice(remaining, _READS_AT_ONCE)):
            for statistics in in_parallel(read, some):
                yield from statistics

    def prefetch(self, manifest_lists: Sequence[str]) -> None:
        """Read manifest lists at the same time, since each costs a request."""
        in_parallel(self.blocks, manifest_lists)

    def avro(self, manifest: Manifest) -> AvroFile:
        """Return a manifest for copying."""
        return open_avro(self._read(manifest.path), manifest.path)

    def _entries(self, manifest: Manifest) -> list[FileEntry]:
        return _entries_kept.get(manifest.path, lambda: list(self._read_entries(manifest)))

    def read_list(self, manifest_list: str) -> Iterator[Manifest]:
        """Yield the manifests of a snapshot; keeps none."""
        yield from _listed(open_avro(self._read(manifest_list), manifest_list))

    def added_by(self, snapshots: Sequence[tuple[int, str]]) -> Iterator[FileEntry]:
        """Yield the data files that snapshots have added; keeps none.

        Args:
            snapshots: the id and the manifest list of each.
        """
        lists = in_parallel(
            lambda path: list(self.read_list(path)), [path for _, path in snapshots]
        )
        written = [
            manifest
            for (snapshot_id, _), manifests in zip(snapshots, lists, strict=True)
            for manifest in manifests
            if not manifest.has_deletes and manifest.added_snapshot_id == snapshot_id
        ]
        for entries in in_parallel(lambda manifest: list(self._added(manifest)), written):
            yield from entries

    def _added(self, manifest: Manifest) -> Iterator[FileEntry]:
        avro = self.avro(manifest)
        for record in avro.records(file_entry_schema(avro.schema, _FILE_FIELDS)):
            inherit(record, manifest)
            is_own = record["snapshot_id"] == manifest.added_snapshot_id
            if record["status"] == ADDED and is_own:
                yield _entry(record, manifest)

    def _read_entries(self, manifest: Manifest) -> Iterator[FileEntry]:
        avro = self.avro(manifest)
        wanted = _FILE_FIELDS | (_BOUNDS if manifest.has_deletes else set())
        for record in avro.records(file_entry_schema(avro.schema, wanted)):
            if record["status"] != DELETED:
                yield _entry(record, manifest)

    def _read_statistics(
        self, manifest: Manifest, field_ids: frozenset[int]
    ) -> Iterator[FileStatistics]:
        avro = self.avro(manifest)
        for record in avro.records(file_entry_schema(avro.schema, _FILE_FIELDS | _BOUNDS)):
            if record["status"] != DELETED:
                entry = _entry(record, manifest)
                file_number = record.get("file_sequence_number") or entry.sequence_number
                lower, upper = (
                    {
                        each["key"]: each["value"]
                        for each in record["data_file"].get(name) or ()
                        if each["key"] in field_ids
                    }
                    for name in ("lower_bounds", "upper_bounds")
                )
                is_rewritten = entry.sequence_number < file_number
                yield FileStatistics(entry, is_rewritten, lower, upper)


def in_parallel(work: Callable[[Any], T], items: Sequence[Any]) -> list[T]:
    """Read several files at the same time, since each may cost a request."""
    if len(items) < 2:
        return [work(item) for item in items]
    return list(_readers().map(work, items))


@cache
def _readers() -> ThreadPoolExecutor:
    """Return threads that stay: each has a connection to Java, which outlives its thread."""
    return ThreadPoolExecutor(_READS_AT_ONCE, "neve-reads-manifests")


def inherit(record: dict[str, Any], manifest: Manifest) -> None:
    """Write into an entry what it takes from the manifest list: its snapshot and sequence."""
    if record.get("snapshot_id") is None:
        record["snapshot_id"] = manifest.added_snapshot_id
    for name in ("sequence_number", "file_sequence_number"):
        if name in record and record[name] is None:
            record[name] = manifest.sequence_number


def open_avro(content: bytes, path: str) -> AvroFile:
    """Decompress an Avro file.

    Raises:
        CorruptionError: it is none, or it is damaged.
        UnsupportedError: it is compressed by a codec that Iceberg does not write.
    """
    header = read_header(content, path)
    with damage_named(path):
        return _plain_avro(header, content[header.length :])


def _plain_avro(header: AvroHeader, blocks: bytes) -> AvroFile:
    metadata = {
        key: value.decode() for key, value in header.metadata.items() if not key.startswith("avro.")
    }
    plain = header.encode(without_logical_types(header.schema), "null")
    return AvroFile(
        header.schema, metadata, plain + decompress_blocks(blocks, header.codec, header.sync)
    )


def file_entry_schema(schema: dict[str, Any], wanted: set[str]) -> dict[str, Any]:
    """Return the schema of entries without what is not wanted of their files."""
    fields = []
    for one in without_logical_types(schema["fields"]):
        if one["name"] == "data_file":
            inner = [each for each in one["type"]["fields"] if each["name"] in wanted]
            fields.append({**one, "type": {**one["type"], "fields": inner}})
        elif one["name"] in _ENTRY_FIELDS:
            fields.append(one)
    return {**schema, "fields": fields}


def _decode_lines(header: AvroHeader, blocks: bytes) -> Iterator[Manifest]:
    return _listed(_plain_avro(header, blocks))


def _listed(avro: AvroFile) -> Iterator[Manifest]:
    fields = {one.get("field-id"): one["name"] for one in avro.schema["fields"]}
    names = {known: fields.get(number, known) for number, known in _LIST_FIELDS.items()}
    for record in avro.records():
        values: dict[str, Any] = {known: record.get(name) for known, name in names.items()}
        yield Manifest(
            path=values["manifest_path"],
            length=values["manifest_length"],
            spec_id=values["partition_spec_id"],
            has_deletes=bool(values["content"]),
            sequence_number=values["sequence_number"] or 0,
            min_sequence_number=values["min_sequence_number"] or 0,
            added_snapshot_id=values["added_snapshot_id"] or 0,
        )


def _entry(record: dict[str, Any], manifest: Manifest) -> FileEntry:
    inherit(record, manifest)
    file = record["data_file"]
    return FileEntry(
        path=file["file_path"],
        content=Content(file.get("content") or 0),
        format=file["file_format"].upper(),
        spec_id=manifest.spec_id,
        partition=tuple(map(_comparable, file["partition"].values())),
        records=file["record_count"],
        bytes=file["file_size_in_bytes"],
        sequence_number=record.get("sequence_number") or 0,
        data_file=_data_file(file),
        offset=file.get("content_offset"),
        length=file.get("content_size_in_bytes"),
        manifest=manifest,
    )


def _data_file(file: Mapping[str, Any]) -> str | None:
    """Return the one data file that deletes belong to, as far as it can be told."""
    if file.get("referenced_data_file"):
        return str(file["referenced_data_file"])
    if file.get("content") != Content.POSITION_DELETES:
        return None
    lower, upper = (
        {one["key"]: one["value"] for one in file.get(name) or ()}.get(_PATH_FIELD)
        for name in ("lower_bounds", "upper_bounds")
    )
    return lower.decode() if lower is not None and lower == upper else None


def _comparable(value: Any) -> Any:
    return repr(value) if isinstance(value, float) else value


class _Kept:
    """Lists by the file they were read from, the least recently used given up first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._lists: OrderedDict[str, list[Any]] = OrderedDict()
        self._count = 0

    def get(self, path: str, read: Callable[[], list[T]]) -> list[T]:
        with self._lock:
            if path in self._lists:
                self._lists.move_to_end(path)
                return self._lists[path]
        values = read()
        with self._lock:
            if path not in self._lists:
                self._lists[path] = values
                self._count += len(values) + 1
            while self._count > self._most and self._lists:
                self._count -= len(self._lists.popitem(last=False)[1]) + 1
        return values

    def clear(self) -> None:
        with self._lock:
            self._lists.clear()
            self._count = 0


def shared_lists(most: int) -> SharedLists[Manifest]:
    """Return a memory of manifest lists of its own, up to so many lines."""
    return SharedLists(most, _decode_lines)


# Files of a table never change once they are written.
_entries_kept = _Kept(_MOST_ENTRIES_KEPT)
_lists_kept = shared_lists(_MOST_ENTRIES_KEPT)
