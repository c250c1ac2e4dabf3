"""Which files a table has: every file that its retained snapshots reach. Pure, but for reading.

A file is listed because a live entry of a reachable manifest names it, never because of the
snapshot that added it: that one may be expired long ago.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from neve.errors import NeveError
from neve.lake.avro_files import AvroRecords, SeenRecords
from neve.lake.manifests import DELETED, Content
from neve.move.files import FileKind, TableFile, Tally, tally_of
from neve.move.paths import normal_path
from neve.move.workers import Threads, Workers

Read = Callable[[str], bytes]

NEWEST_FORMAT_VERSION = 3
# By field id, as the specification names them.
MANIFEST_PATH, MANIFEST_LENGTH = {500: "manifest_path"}, {501: "manifest_length"}
KEY_METADATA = {519: "key_metadata"}
_FILE_FIELDS = {
    0: "status",
    134: "content",
    100: "file_path",
    101: "file_format",
    103: "record_count",
    104: "file_size_in_bytes",
    131: "key_metadata",
}
_POSITION_DELETE_FORMATS = ("PARQUET", "AVRO", "ORC")


@dataclass(frozen=True)
class Problem:
    """Why a table cannot be moved, and the file that this is about."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@dataclass(frozen=True)
class Inventory:
    """The files of a table.

    Args:
        files: each once, however many snapshots share it and however they spell its path.
        problems: what makes a move impossible.
        deletes: the position deletes and deletion vectors that each manifest names, live or not,
            by normal paths.
        tally: what the live entries of all manifests add up to.
    """

    files: tuple[TableFile, ...]
    snapshots: int
    problems: tuple[Problem, ...] = ()
    deletes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)

    def count(self, kind: FileKind) -> int:
        return sum(file.kind == kind for file in self.files)


@dataclass(frozen=True)
class _Listed:
    """What one file leads to."""

    files: Sequence[TableFile] = ()
    problems: Sequence[Problem] = ()
    deletes: Sequence[str] = ()
    tally: Tally = field(default_factory=Tally)


def list_files(
    document: Mapping[str, Any], read: Read, *, workers: Workers | None = None, path: str = "table"
) -> Inventory:
    """List the files that the snapshots of a metadata document reach.

    Every manifest is read once, and one block of it is decoded at a time.

    Args:
        read: returns the content of a file; called by several threads, and pickled for processes.
        workers: read the files; None: threads.
        path: the name of the metadata file, for problems.
    """
    refusal = _refusal(document)
    if refusal:
        return Inventory((), len(document.get("snapshots") or ()), (Problem(path, refusal),))
    workers = workers or Threads()
    collected = _Collected()
    snapshots = document.get("snapshots") or ()
    collected.add(_of_metadata(document))
    lists = collected.paths(FileKind.MANIFEST_LIST)
    listing = partial(_of_manifest_list, seen=SeenRecords())
    for listed in workers.results(partial(_read, listing, read), lists):
        collected.add(listed)
    manifests = collected.paths(FileKind.MANIFEST)
    deletes, tally = {}, Tally()
    results = workers.results(partial(_read, _of_manifest, read), manifests)
    for manifest, listed in zip(manifests, results, strict=True):
        collected.add(listed)
        tally += listed.tally
        if listed.deletes:
            deletes[normal_path(manifest)] = tuple(listed.deletes)
    files, problems = tuple(collected.files.values()), tuple(collected.problems)
    return Inventory(files, len(snapshots), problems, deletes, tally)


class _Collected:
    def __init__(self) -> None:
        self.files: dict[str, TableFile] = {}
        self.problems: list[Problem] = []

    def add(self, listed: _Listed) -> None:
        for file in listed.files:
            self.files.setdefault(normal_path(file.path), file)
        self.problems.extend(listed.problems)

    def paths(self, kind: FileKind) -> list[str]:
        return [file.path for file in self.files.values() if file.kind == kind]


def _refusal(document: Mapping[str, Any]) -> str | None:
    version = document.get("format-version", 1)
    if version > NEWEST_FORMAT_VERSION:
        return f"format version {version} is not supported, only up to {NEWEST_FORMAT_VERSION}"
    if document.get("encryption-keys") or "encryption.key-id" in (document.get("properties") or ()):
        return "the table is encrypted"
    return None


def _of_metadata(document: Mapping[str, Any]) -> _Listed:
    files, problems = [], []
    for snapshot in document.get("snapshots") or ():
        if snapshot.get("manifest-list"):
            files.append(TableFile(snapshot["manifest-list"], FileKind.MANIFEST_LIST))
        # Format version 1 may have no list, and name the manifests here.
        files.extend(TableFile(path, FileKind.MANIFEST) for path in snapshot.get("manifests") or ())
        if snapshot.get("key-id"):
            problems.append(Problem(f"snapshot {snapshot['snapshot-id']}", "it is encrypted"))
    for key, kind in (
        ("statistics", FileKind.STATISTICS),
        ("partition-statistics", FileKind.PARTITION_STATISTICS),
    ):
        for statistics in document.get(key) or ():
            path, size = statistics["statistics-path"], statistics.get("file-size-in-bytes")
            files.append(TableFile(path, kind, size))
            if statistics.get("key-metadata"):
                problems.append(Problem(path, "it is encrypted"))
    return _Listed(files, problems)


def _read(listing: Callable[[bytes, str], _Listed], read: Read, path: str) -> _Listed:
    try:
        return listing(read(path), path)
    except NeveError as error:
        if error.retryable:
            raise
        return _Listed(problems=[Problem(path, f"it cannot be read: {error.message}")])


def _of_manifest_list(content: bytes, path: str, seen: SeenRecords) -> _Listed:
    manifests, problems = [], []
    fields = MANIFEST_PATH | MANIFEST_LENGTH | KEY_METADATA
    for line in AvroRecords(content, path, read=fields).values(seen):
        manifest = line["manifest_path"]
        manifests.append(TableFile(manifest, FileKind.MANIFEST, line["manifest_length"]))
        if line.get("key_metadata"):
            problems.append(Problem(manifest, "it is encrypted"))
    return _Listed(manifests, problems)


def _of_manifest(content: bytes, path: str) -> _Listed:
    files, problems, deletes, records = [], [], [], []
    for entry in AvroRecords(content, path, read=_FILE_FIELDS).values():
        file = _table_file(entry)
        if file.kind in (FileKind.POSITION_DELETES, FileKind.DELETION_VECTORS):
            deletes.append(normal_path(file.path))
        if entry["status"] == DELETED:
            continue
        files.append(file)
        records.append((file.kind is FileKind.DATA, entry["record_count"]))
        if entry.get("key_metadata"):
            problems.append(Problem(file.path, "it is encrypted"))
        if file.kind == FileKind.POSITION_DELETES and file.format not in _POSITION_DELETE_FORMATS:
            problems.append(
                Problem(file.path, f"position deletes in {file.format} cannot be rewritten")
            )
    return _Listed(files, problems, deletes, tally_of(records))


def _table_file(entry: Mapping[str, Any]) -> TableFile:
    form = entry["file_format"].upper()
    content = Content(entry.get("content") or 0)
    if content == Content.POSITION_DELETES:
        vectors = form == "PUFFIN"
        kind = FileKind.DELETION_VECTORS if vectors else FileKind.POSITION_DELETES
    elif content == Content.EQUALITY_DELETES:
        kind = FileKind.EQUALITY_DELETES
    else:
        kind = FileKind.DATA
    return TableFile(entry["file_path"], kind, entry["file_size_in_bytes"], form)
