"""The data files of a snapshot and what deletes their rows, read from manifests. No JVM.

Java could plan the same, but handing files over one by one costs more than reading them here: each
manifest once, since manifests never change.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyiceberg.avro.file import AvroFile
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_ENTRY_SCHEMAS,
    ManifestContent,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.typedef import Record

from neve.errors import ConflictError, NotFoundError, UnsupportedError
from neve.lake.manifests import in_parallel
from neve.lake.vectors import DeletionVector

if TYPE_CHECKING:
    from pyiceberg.table import Table

_MOST_ENTRIES_HELD = 500_000


@dataclass(frozen=True)
class LiveFile:
    """A data file of a snapshot."""

    path: str
    spec_id: int
    partition: Record
    record_count: int
    size: int
    vector: DeletionVector | None = None
    format: str = "PARQUET"


@dataclass(frozen=True)
class _Entry:
    file: LiveFile
    is_vector: bool


def live_files(
    table: Table, snapshot_id: int, paths: Collection[str] | None = None
) -> dict[str, LiveFile]:
    """Return data files of a snapshot by path, all or some, each with its deletion vector.

    Raises:
        NotFoundError: there is no such snapshot.
        ConflictError: one of `paths` is not in the snapshot.
        UnsupportedError: rows are deleted by other means than deletion vectors.
    """
    snapshot = table.metadata.snapshot_by_id(snapshot_id)
    if snapshot is None:
        raise NotFoundError(f"{'.'.join(table.name())} has no snapshot {snapshot_id}")
    manifests = snapshot.manifests(table.io)
    wanted = None if paths is None else set(paths)
    deletes = [one for one in manifests if one.content is ManifestContent.DELETES]
    vectors = {
        entry.file.vector.data_file: entry.file.vector
        for entry in _entries(table.io, deletes)
        if entry.file.vector
        and _is_vector(entry)
        and (wanted is None or entry.file.vector.data_file in wanted)
    }
    data = [one for one in manifests if one.content is ManifestContent.DATA]
    found = {
        entry.file.path: entry.file
        for entry in _entries(table.io, data if wanted is None or wanted else ())
        if wanted is None or entry.file.path in wanted
    }
    for path, vector in vectors.items():
        if path in found:
            found[path] = replace(found[path], vector=vector)
    missing = (wanted or set()).difference(found)
    if missing:
        raise ConflictError(
            f"{'.'.join(table.name())}: {len(missing)} data files, {min(missing)} among them, are "
            f"not in snapshot {snapshot_id}",
            hint="look for the rows again in the present snapshot",
            retryable=True,
        )
    return found


def current_deletes(
    table: Table, snapshot_id: int, paths: Collection[str]
) -> dict[str, DeletionVector]:
    """Return the deletion vectors of some data files in a snapshot. Raises as `live_files`."""
    found = live_files(table, snapshot_id, paths)
    return {path: file.vector for path, file in found.items() if file.vector}


@dataclass(frozen=True)
class FileChanges:
    """What of a table's files is different in a later snapshot."""

    added: tuple[LiveFile, ...]
    removed: tuple[LiveFile, ...]
    vectors: Mapping[str, tuple[DeletionVector | None, DeletionVector | None]]
    """Of data files that are in both: their deletion vectors before and after."""

    @property
    def is_empty(self) -> bool:
        return not (self.added or self.removed or self.vectors)


def changed_files(table: Table, before_id: int, after_id: int) -> FileChanges:
    """Compare two snapshots by the manifests that they do not share; no others are read.

    Raises:
        NotFoundError: there is no such snapshot.
        UnsupportedError: rows are deleted by other means than deletion vectors.
    """
    before, after = (_manifests(table, one) for one in (before_id, after_id))
    shared = before.keys() & after.keys()
    old, old_vectors = _contents(table.io, [before[one] for one in before if one not in shared])
    new, new_vectors = _contents(table.io, [after[one] for one in after if one not in shared])
    added = tuple(new[path] for path in sorted(new.keys() - old.keys()))
    removed = tuple(old[path] for path in sorted(old.keys() - new.keys()))
    settled = {one.path for one in (*added, *removed)}
    vectors = {
        path: (old_vectors.get(path), new_vectors.get(path))
        for path in sorted(old_vectors.keys() | new_vectors.keys())
        if path not in settled and old_vectors.get(path) != new_vectors.get(path)
    }
    return FileChanges(added, removed, vectors)


def _manifests(table: Table, snapshot_id: int) -> dict[str, ManifestFile]:
    snapshot = table.metadata.snapshot_by_id(snapshot_id)
    if snapshot is None:
        raise NotFoundError(f"{'.'.join(table.name())} has no snapshot {snapshot_id}")
    return {one.manifest_path: one for one in snapshot.manifests(table.io)}


def _contents(
    io: FileIO, manifests: Sequence[ManifestFile]
) -> tuple[dict[str, LiveFile], dict[str, DeletionVector]]:
    files: dict[str, LiveFile] = {}
    vectors: dict[str, DeletionVector] = {}
    for entry in _entries(io, manifests):
        vector = entry.file.vector
        if vector is None:
            files[entry.file.path] = entry.file
        elif _is_vector(entry):
            vectors[vector.data_file] = vector
    return {path: replace(file, vector=vectors.get(path)) for path, file in files.items()}, vectors


def _is_vector(entry: _Entry) -> bool:
    if not entry.is_vector:
        raise UnsupportedError(
            f"rows are deleted by {entry.file.path}, which is no deletion vector",
            hint="rewrite the table's position and equality deletes first",
        )
    return True


def _entries(io: FileIO, manifests: Iterable[ManifestFile]) -> Iterable[_Entry]:
    wanted = list(manifests)
    missing = [one for one in wanted if not _held.has(one)]
    # By threads that stay: to start them takes as long as to read small manifests.
    in_parallel(lambda one: _held.get(io, one), missing)
    for one in wanted:
        yield from _held.get(io, one)


class _Held:
    """Entries of manifests that were read, the least recently used given up first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_path: OrderedDict[str, tuple[_Entry, ...]] = OrderedDict()
        self._count = 0

    def has(self, manifest: ManifestFile) -> bool:
        with self._lock:
            return manifest.manifest_path in self._by_path

    def get(self, io: FileIO, manifest: ManifestFile) -> tuple[_Entry, ...]:
        with self._lock:
            if manifest.manifest_path in self._by_path:
                self._by_path.move_to_end(manifest.manifest_path)
                return self._by_path[manifest.manifest_path]
        entries = tuple(_read(io, manifest))
        with self._lock:
            if manifest.manifest_path not in self._by_path:
                self._by_path[manifest.manifest_path] = entries
                self._count += len(entries)
            while self._count > _MOST_ENTRIES_HELD and self._by_path:
                self._count -= len(self._by_path.popitem(last=False)[1])
        return entries


_held = _Held()


def _read(io: FileIO, manifest: ManifestFile) -> Iterable[_Entry]:
    # PyIceberg's own reader of entries leaves out what format v3 has added.
    with AvroFile[Any](io.new_input(manifest.manifest_path), _ENTRY) as reader:
        for entry in reader:
            if entry[_STATUS] != ManifestEntryStatus.DELETED:
                yield _entry(entry[_FILE], manifest.partition_spec_id)


def _entry(file: Record, spec_id: int) -> _Entry:
    content, path, kind, partition, records, size, data_file, offset, length = (
        file[place] for place in _PLACES
    )
    vector = None
    if content:
        vector = DeletionVector(data_file or "", path, offset or 0, length or 0, records, size)
    found = LiveFile(path, spec_id, partition, records, size, vector, kind.upper())
    return _Entry(found, found.format == "PUFFIN")


_ENTRY = MANIFEST_ENTRY_SCHEMAS[3]
_STATUS, _FILE = ([one.field_id for one in _ENTRY.fields].index(number) for number in (0, 2))
_FILE_FIELDS = [one.field_id for one in DATA_FILE_TYPE[3].fields]
# content, path, format, partition, rows, bytes; then of vectors: data file, offset, length.
_PLACES = [_FILE_FIELDS.index(one) for one in (134, 100, 101, 102, 103, 104, 143, 144, 145)]
