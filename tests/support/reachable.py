"""Tables as sets of files in memory, with real manifests: for expiry, whose oracle is a set."""

from __future__ import annotations

import io
import itertools
import random
from dataclasses import dataclass, field
from typing import Any

import fastavro

from neve.lake.metadata_json import MetadataJson

_COUNTER = itertools.count(1)


def _field(number: int, name: str, type_: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, "field-id": number}


LIST = {
    "type": "record",
    "name": "manifest_file",
    "fields": [
        _field(500, "manifest_path", "string"),
        _field(501, "manifest_length", "long"),
        _field(502, "partition_spec_id", "int"),
        _field(517, "content", "int"),
        _field(515, "sequence_number", "long"),
        _field(516, "min_sequence_number", "long"),
        _field(503, "added_snapshot_id", "long"),
    ],
}
ENTRY = {
    "type": "record",
    "name": "manifest_entry",
    "fields": [
        _field(0, "status", "int"),
        _field(1, "snapshot_id", "long"),
        _field(3, "sequence_number", ["null", "long"]),
        _field(4, "file_sequence_number", ["null", "long"]),
        _field(
            2,
            "data_file",
            {
                "type": "record",
                "name": "r2",
                "fields": [
                    _field(134, "content", "int"),
                    _field(100, "file_path", "string"),
                    _field(103, "record_count", "long"),
                ],
            },
        ),
    ],
}
EXISTING, ADDED, DELETED = 0, 1, 2


@dataclass(frozen=True)
class Line:
    """A manifest as a list has it, with its live files, when each was added, and by whom."""

    path: str
    sequence: int
    snapshot_id: int
    files: tuple[tuple[str, int, int], ...]
    content: int = 0


@dataclass
class FileTable:
    """A table whose commits write manifests into a dictionary.

    Args:
        block_bytes: how many a block of a manifest list has at least. Lists that begin with the
            same blocks have these in common.
    """

    chance: random.Random
    format_version: int = 2
    files: dict[str, bytes] = field(default_factory=dict)
    snapshots: dict[int, dict[str, Any]] = field(default_factory=dict)
    lines: dict[int, list[Line]] = field(default_factory=dict)
    refs: dict[str, int] = field(default_factory=dict)
    log: list[int] = field(default_factory=list)
    sequence: int = 0
    block_bytes: int = 16_000

    def __post_init__(self) -> None:
        self.location = f"/table-{next(_COUNTER)}"

    def metadata(self) -> MetadataJson:
        main = self.refs.get("main")
        document = {
            "format-version": self.format_version,
            "table-uuid": "u",
            "location": self.location,
            "last-updated-ms": self.sequence,
            "current-snapshot-id": main,
            "snapshots": list(self.snapshots.values()),
            "refs": {
                name: {"snapshot-id": number, "type": "branch" if name == "main" else "tag"}
                for name, number in self.refs.items()
            },
            "snapshot-log": [
                {"snapshot-id": number, "timestamp-ms": place}
                for place, number in enumerate(self.log)
            ],
            "properties": {},
        }
        return MetadataJson(f"{self.location}/v{self.sequence}.json", document)

    def read(self, path: str) -> bytes:
        return self.files[path]

    def reached(self, snapshot_ids: Any = None) -> set[str]:
        """Return every file that some snapshots need: lists, manifests, data files."""
        reached = set()
        for number in self.snapshots if snapshot_ids is None else snapshot_ids:
            reached.add(self.snapshots[number]["manifest-list"])
            for line in self.lines[number]:
                reached.add(line.path)
                reached.update(path for path, *_ in line.files)
        return reached

    def commit(
        self,
        parent: int | None,
        lines: list[Line],
        added: list[str],
        deleted: list[str] = (),
        *,
        summary: dict[str, str] | None = None,
    ) -> int:
        """Add a snapshot; manifests that lose files are written again."""
        self.sequence += 1
        number = next(_COUNTER)
        kept = [self._without(line, set(deleted), number) for line in lines]
        if added:
            kept.append(
                self._write(number, [(path, self.sequence, number) for path in added], ADDED)
            )
        self._store(number, parent, [line for line in kept if line.files], summary or {})
        return number

    def merged(self, lines: list[Line], number: int | None = None) -> list[Line]:
        """Write several manifests as one."""
        if len(lines) < 2:
            return lines
        files = [file for line in lines for file in line.files]
        return [self._write(number or next(_COUNTER), files, EXISTING)]

    def remove(self, snapshot_ids: list[int]) -> None:
        for number in snapshot_ids:
            del self.snapshots[number], self.lines[number]
        self.log = [number for number in self.log if number in self.snapshots]

    def _without(self, line: Line, deleted: set[str], number: int) -> Line:
        left = [file for file in line.files if file[0] not in deleted]
        if len(left) == len(line.files):
            return line
        gone = [file for file in line.files if file[0] in deleted]
        return self._write(number, left, EXISTING, gone)

    def _write(
        self,
        number: int,
        files: list[tuple[str, int, int]],
        status: int,
        deleted: list[tuple[str, int, int]] = (),
    ) -> Line:
        path = f"{self.location}/metadata/m{next(_COUNTER)}.avro"
        entries = [
            {
                "status": state,
                "snapshot_id": number if state == DELETED else by,
                "sequence_number": None if state == ADDED else at,
                "file_sequence_number": None if state == ADDED else at,
                "data_file": {"content": 0, "file_path": each, "record_count": 1},
            }
            for some, state in ((files, status), (deleted, DELETED))
            for each, at, by in some
        ]
        self.files[path] = _avro(ENTRY, entries)
        return Line(path, self.sequence, number, tuple(files))

    def _store(
        self, number: int, parent: int | None, lines: list[Line], summary: dict[str, str]
    ) -> None:
        path = f"{self.location}/metadata/snap-{number}.avro"
        self.files[path] = _avro(
            LIST,
            [
                {
                    "manifest_path": line.path,
                    "manifest_length": 1,
                    "partition_spec_id": 0,
                    "content": line.content,
                    "sequence_number": line.sequence,
                    "min_sequence_number": min(at for _, at, _ in line.files),
                    "added_snapshot_id": line.snapshot_id,
                }
                for line in lines
            ],
            self.block_bytes,
        )
        snapshot = {
            "snapshot-id": number,
            "timestamp-ms": self.sequence,
            "manifest-list": path,
            "summary": {"operation": "append", **summary},
        }
        if self.format_version > 1:
            snapshot["sequence-number"] = self.sequence
        if parent is not None:
            snapshot["parent-snapshot-id"] = parent
        self.snapshots[number] = snapshot
        self.lines[number] = lines
        for line in lines:
            for each, *_ in line.files:
                self.files.setdefault(each, b"data")


def _avro(schema: Any, entries: Any, block_bytes: int = 16_000) -> bytes:
    stream = io.BytesIO()
    metadata = {"schema": "{}"}
    fastavro.writer(
        stream, schema, entries, codec="null", sync_interval=block_bytes, metadata=metadata
    )
    return stream.getvalue()
