"""Metadata of tables that have no files: catalogs register it, since they read no manifests."""

from __future__ import annotations

import copy
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.io import load_file_io

from neve.lake.metadata_json import MetadataJson

LONG = {"required": False, "type": "long"}


def columns(*names: str, first_id: int = 1) -> list[dict[str, Any]]:
    return [{"id": number, "name": name, **LONG} for number, name in enumerate(names, first_id)]


@dataclass
class TableHistory:
    """A table that is written to step by step; its ids are 101, 102, …, a second apart."""

    location: str
    format_version: int = 2
    now_ms: int = 1_700_000_000_000
    document: dict[str, Any] = field(default_factory=dict)
    next_id: int = 101
    version: int = 0

    def __post_init__(self) -> None:
        self.document = {
            "format-version": self.format_version,
            "table-uuid": str(uuid.uuid4()),
            "location": self.location,
            "last-sequence-number": 0,
            "last-updated-ms": self.now_ms,
            "last-column-id": 2,
            "current-schema-id": 0,
            "schemas": [{"type": "struct", "schema-id": 0, "fields": columns("id", "size")}],
            "default-spec-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": []}],
            "last-partition-id": 999,
            "default-sort-order-id": 0,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "properties": {"owner": "source"},
            "snapshots": [],
            "refs": {},
            "snapshot-log": [],
            "metadata-log": [],
        }
        if self.format_version == 3:
            self.document["next-row-id"] = 0

    @property
    def refs(self) -> dict[str, int]:
        return {name: ref["snapshot-id"] for name, ref in self.document["refs"].items()}

    def append(self, rows: int = 10, branch: str = "main") -> int:
        """Commit to a branch, which is made at `main` if there is none."""
        snapshot_id = self.stage(rows, self.refs.get(branch, self.refs.get("main")))
        self.point(branch, snapshot_id)
        return snapshot_id

    def stage(self, rows: int = 10, parent_id: int | None = None) -> int:
        """Add a snapshot that no ref names."""
        snapshot_id, self.next_id = self.next_id, self.next_id + 1
        self._touch()
        document = self.document
        snapshot = {
            "snapshot-id": snapshot_id,
            "timestamp-ms": self.now_ms,
            "manifest-list": f"{self.location}/metadata/snap-{snapshot_id}.avro",
            "summary": {"operation": "append"},
            "schema-id": document["current-schema-id"],
        }
        if parent_id is not None:
            snapshot["parent-snapshot-id"] = parent_id
        if self.format_version > 1:
            document["last-sequence-number"] += 1
            snapshot["sequence-number"] = document["last-sequence-number"]
        if self.format_version > 2:
            snapshot |= {"first-row-id": document["next-row-id"], "added-rows": rows}
            document["next-row-id"] += rows
        document["snapshots"].append(snapshot)
        return snapshot_id

    def point(self, ref: str, snapshot_id: int, kind: str = "branch") -> None:
        self._touch()
        self.document["refs"][ref] = {"snapshot-id": snapshot_id, "type": kind}
        if ref == "main":
            self.document["current-snapshot-id"] = snapshot_id
            entry = {"timestamp-ms": self.now_ms, "snapshot-id": snapshot_id}
            self.document["snapshot-log"].append(entry)

    def expire(self, *snapshot_ids: int) -> None:
        self._touch()
        for key in ("snapshots", "snapshot-log"):
            self.document[key] = [
                each for each in self.document[key] if each["snapshot-id"] not in snapshot_ids
            ]

    def set_columns(self, fields: list[dict[str, Any]]) -> None:
        """Make a new schema the current one."""
        self._touch()
        number = len(self.document["schemas"])
        schema = {"type": "struct", "schema-id": number, "fields": fields}
        self.document["schemas"].append(schema)
        self.document["current-schema-id"] = number
        last = max(self.document["last-column-id"], *(each["id"] for each in fields))
        self.document["last-column-id"] = last

    def partition_by(self, source_id: int, name: str) -> None:
        self._touch()
        number = len(self.document["partition-specs"])
        self.document["last-partition-id"] += 1
        part = {
            "source-id": source_id,
            "field-id": self.document["last-partition-id"],
            "name": name,
            "transform": "identity",
        }
        self.document["partition-specs"].append({"spec-id": number, "fields": [part]})
        self.document["default-spec-id"] = number

    def upgrade(self, format_version: int) -> None:
        self._touch()
        self.format_version = self.document["format-version"] = format_version
        if format_version == 3:
            self.document["next-row-id"] = 0

    def metadata(self) -> MetadataJson:
        """Return the present version, as if its catalog had just been asked."""
        self.version += 1
        location = f"{self.location}/metadata/{self.version:05}-source.metadata.json"
        return MetadataJson(location, copy.deepcopy(self.document))

    def _touch(self) -> None:
        self.now_ms += 1000
        self.document["last-updated-ms"] = self.now_ms


def write_metadata(properties: Mapping[str, str], metadata: MetadataJson) -> MetadataJson:
    """Write a version as a move does: as a metadata file with a new name."""
    location = f"{metadata.location}/metadata/00000-{uuid.uuid4()}.metadata.json"
    io = load_file_io(dict(properties), location)
    with io.new_output(location).create() as file:
        file.write(json.dumps(metadata.document).encode())
    return MetadataJson(location, metadata.document)
