"""The data files of a snapshot and what deletes their rows, read from manifests. No JVM.

Java could plan the same, but handing files over one by one costs more than reading them here: each
manifest once, since manifests never change.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
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
class _Contents:
    """What a manifest has, by the data file that it is, or that it deletes rows of."""

    files: Mapping[str, LiveFile]
    # Deletes that are no deletion vectors.
    other_deletes: str | None = None


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
    vectors = _files(table.io, deletes, wanted)
    data = [one for one in manifests if one.content is ManifestContent.DATA]
    found = _files(table.io, data if wanted is None or wanted else [], wanted)
    for path, file in vectors.items():
        if path in found:
            found[path] = replace(found[path], vector=file.vector)
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
    deletes = [one for one in manifests if one.content is ManifestContent.DELETES]
    data = [one for one in manifests if one.content is ManifestContent.DATA]
    vectors = {path: file.vector for path, file in _files(io, deletes, None).items() if file.vector}
    files = _files(io, data, None)
    return {path: replace(file, vector=vectors.get(path)) for path, file in files.items()}, vectors


def _files(
    io: FileIO, manifests: Sequence[ManifestFile], wanted: Collection[str] | None
) -> dict[str, LiveFile]:
    """Return what manifests have of some data files, or of all, by the data file's path."""
    missing = [one for one in manifests if not _held.has(one)]
    # By threads that stay: to start them takes as long as to read small manifests.
    in_parallel(lambda one: _held.get(io, one), missing)
    found: dict[str, LiveFile] = {}
    for manifest in manifests:
        contents = _held.get(io, manifest)
        if contents.other_deletes is not None:
            raise UnsupportedError(
                f"rows are deleted by {contents.other_deletes}, which is no deletion vector",
                hint="rewrite the table's position and equality deletes first",
            )
        files = contents.files
        if wanted is None:
            found.update(files)
        else:
            fewer = wanted if len(wanted) < len(files) else files
            found.update((path, files[path]) for path in fewer if path in files and path in wanted)
    return found


class _Held:
    """Entries of manifests that were read, the least recently used given up first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_path: OrderedDict[str, _Contents] = OrderedDict()
        self._count = 0

    def has(self, manifest: ManifestFile) -> bool:
        with self._lock:
            return manifest.manifest_path in self._by_path

    def get(self, io: FileIO, manifest: ManifestFile) -> _Contents:
        with self._lock:
            if manifest.manifest_path in self._by_path:
                self._by_path.move_to_end(manifest.manifest_path)
                return self._by_path[manifest.manifest_path]
        contents = _read(io, manifest)
        with self._lock:
            if manifest.manifest_path not in self._by_path:
                self._by_path[manifest.manifest_path] = contents
                self._count += len(contents.files)
            while self._count > _MOST_ENTRIES_HELD and self._by_path:
                self._count -= len(self._by_path.popitem(last=False)[1].files)
        return contents


_held = _Held()


def _read(io: FileIO, manifest: ManifestFile) -> _Contents:
    files: dict[str, LiveFile] = {}
    other_deletes = None
    # PyIceberg's own reader of entries leaves out what format v3 has added.
    with AvroFile[Any](io.new_input(manifest.manifest_path), _ENTRY) as reader:
        for entry in reader:
            if entry[_STATUS] == ManifestEntryStatus.DELETED:
                continue
            file = _live_file(entry[_FILE], manifest.partition_spec_id)
            if file.vector is None:
                files[file.path] = file
            elif file.format == "PUFFIN":
                files[file.vector.data_file] = file
            else:
                other_deletes = file.path
    return _Contents(files, other_deletes)


def _live_file(file: Record, spec_id: int) -> LiveFile:
    content, path, kind, partition, records, size, data_file, offset, length = (
        file[place] for place in _PLACES
    )
    vector = None
    if content:
        vector = DeletionVector(data_file or "", path, offset or 0, length or 0, records, size)
    return LiveFile(path, spec_id, partition, records, size, vector, kind.upper())


_ENTRY = MANIFEST_ENTRY_SCHEMAS[3]
_STATUS, _FILE = ([one.field_id for one in _ENTRY.fields].index(number) for number in (0, 2))
_FILE_FIELDS = [one.field_id for one in DATA_FILE_TYPE[3].fields]
# content, path, format, partition, rows, bytes; then of vectors: data file, offset, length.
_PLACES = [_FILE_FIELDS.index(one) for one in (134, 100, 101, 102, 103, 104, 143, 144, 145)]
