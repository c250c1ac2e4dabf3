"""A table's metadata as the JSON that Iceberg's specification gives, read without PyIceberg.

Commands that only show what a table is need nothing else, and PyIceberg takes longer to import
than they take to run.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from neve.errors import UnsupportedError
from neve.lake.identifier import Identifier, name_of
from neve.lake.paths import store_path
from neve.lake.staged_snapshot import StagedSnapshot

MAIN = "main"
# The property of a table that `neve move` has rewritten: its files are its own.
MOVED = "neve.moved"
# Of Iceberg's table formats.
NEWEST_FORMAT = 3
_GZIP = b"\x1f\x8b"
# The types that PyIceberg knows; it reads no table that has another one.
_KNOWN_TYPE = re.compile(
    r"boolean|int|long|float|double|date|time|timestamp|timestamptz|timestamp_ns|timestamptz_ns|"
    r"string|uuid|binary|unknown|(fixed|decimal|geometry|geography)\b.*"
)
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
# PyIceberg's text of a type leaves the defaults of the specification out.
_DEFAULTS_OF_GEO = re.compile(r"^(geometry|geography)\(\s*OGC:CRS84\s*(,\s*spherical\s*)?\)$")


@dataclass(frozen=True)
class MetadataJson:
    """The metadata of one table, and the file that it was read from."""

    metadata_location: str
    document: Mapping[str, Any]
    # What a REST server calls this version of the table; None: it does not say.
    etag: str | None = None

    @property
    def uuid(self) -> str:
        """The table's id; empty: it has none, as format v1 allows."""
        return str(self.document.get("table-uuid") or "")

    @property
    def location(self) -> str:
        location: str = self.document["location"]
        return location.rstrip("/")

    @property
    def format_version(self) -> int:
        return int(self.document["format-version"])

    @property
    def last_updated_ms(self) -> int:
        return int(self.document["last-updated-ms"])

    @property
    def properties(self) -> Mapping[str, str]:
        return self.document.get("properties") or {}

    @property
    def current_snapshot_id(self) -> int | None:
        snapshot_id = self.document.get("current-snapshot-id")
        # Older writers say -1 for none.
        return None if snapshot_id in (None, -1) else int(snapshot_id)

    @cached_property
    def snapshots(self) -> Mapping[int, Mapping[str, Any]]:
        return {int(each["snapshot-id"]): each for each in self.document.get("snapshots") or ()}

    @cached_property
    def refs(self) -> Mapping[str, int]:
        refs = {name: ref["snapshot-id"] for name, ref in (self.document.get("refs") or {}).items()}
        if self.current_snapshot_id is not None:
            refs.setdefault(MAIN, self.current_snapshot_id)
        return refs

    @property
    def branches(self) -> frozenset[str]:
        refs = self.document.get("refs") or {}
        return frozenset(name for name, ref in refs.items() if ref["type"] == "branch") | {MAIN}

    @property
    def current_summary(self) -> Mapping[str, str] | None:
        """The summary of the current snapshot; None if there is no snapshot."""
        snapshot_id = self.current_snapshot_id
        snapshot = None if snapshot_id is None else self.snapshots.get(snapshot_id)
        return None if snapshot is None else snapshot.get("summary") or {}

    @cached_property
    def main_history(self) -> Sequence[Mapping[str, Any]]:
        """The current snapshot and its ancestors as far as they are kept, the newest first."""
        return list(self.iter_main_history())

    def iter_main_history(self) -> Iterator[Mapping[str, Any]]:
        """Yield the members of `main_history`, for those who need the newest only."""
        snapshot_id = self.current_snapshot_id
        while snapshot_id is not None and (snapshot := self.snapshots.get(snapshot_id)):
            yield snapshot
            snapshot_id = snapshot.get("parent-snapshot-id")

    @cached_property
    def fields(self) -> Sequence[Mapping[str, Any]]:
        """The fields of the current schema."""
        fields: Sequence[Mapping[str, Any]] = self.schema(self.current_schema_id)["fields"]
        return fields

    @property
    def schemas(self) -> Sequence[Mapping[str, Any]]:
        return self.document.get("schemas") or [self.document["schema"]]

    @property
    def current_schema_id(self) -> int:
        return int(self.document.get("current-schema-id", self.schemas[0].get("schema-id", 0)))

    def schema(self, schema_id: int) -> Mapping[str, Any]:
        return next(each for each in self.schemas if each.get("schema-id", 0) == schema_id)

    @cached_property
    def column_names(self) -> Mapping[int, str]:
        """The full name of each field, also of nested ones, by its id."""
        return dict(field_names(self.fields))

    @property
    def partition_specs(self) -> Sequence[Mapping[str, Any]]:
        specs: Sequence[Mapping[str, Any]] | None = self.document.get("partition-specs")
        if specs is None:
            return [{"spec-id": 0, "fields": self.document.get("partition-spec") or []}]
        return specs

    @property
    def partition_fields(self) -> Sequence[Mapping[str, Any]]:
        current = self.document.get("default-spec-id", 0)
        specs = self.partition_specs
        return next((each["fields"] for each in specs if each["spec-id"] == current), ())

    @property
    def sort_fields(self) -> Sequence[Mapping[str, Any]]:
        current = self.document.get("default-sort-order-id", 0)
        orders = self.document.get("sort-orders") or ()
        return next((each["fields"] for each in orders if each["order-id"] == current), ())

    def staged(self, prefix: str) -> list[StagedSnapshot]:
        """Return what refs beginning with `prefix` name, the oldest first."""
        staged = [
            StagedSnapshot.of(name, self.snapshots[snapshot_id])
            for name, snapshot_id in self.refs.items()
            if name.startswith(prefix) and snapshot_id in self.snapshots
        ]
        return sorted(staged, key=lambda each: (each.sequence_number, each.snapshot_id))


def read_metadata_file(
    identifier: Identifier, location: str, *, any_type: bool = False
) -> MetadataJson:
    """Read the metadata file of a table from the local disk.

    Args:
        any_type: columns may have types that PyIceberg does not know.

    Raises:
        OSError: the file cannot be read.
        UnsupportedError: PyIceberg cannot read the table either.
    """
    content = Path(store_path(location).key).read_bytes()
    try:
        metadata = MetadataJson(location, decode_document(content))
    except ValueError as error:
        raise unreadable_table(identifier, "invalid metadata") from error
    types = require_readable(identifier, metadata)
    for type_name in sorted(types):
        if not (any_type or _KNOWN_TYPE.fullmatch(type_name)):
            raise unreadable_table(identifier, f"a column has the type {type_name}")
    return metadata


def require_readable(identifier: Identifier, metadata: MetadataJson) -> set[str]:
    """Return the types of a table's columns, of nested ones, too.

    Raises:
        UnsupportedError: the document lacks what every table has, or is of a newer format.
    """
    try:
        version = metadata.format_version
        _ = (metadata.location, metadata.last_updated_ms)
        _ = (metadata.snapshots, metadata.refs)
        types = {type_ for field in metadata.fields for type_ in _primitives(field["type"])}
    except (ValueError, LookupError, TypeError, AttributeError, StopIteration) as error:
        raise unreadable_table(identifier, "invalid metadata") from error
    if version > NEWEST_FORMAT:
        raise UnsupportedError(
            f"table {name_of(identifier)} has format version {version}, and Neve knows those up "
            f"to {NEWEST_FORMAT}",
            hint="it is left alone; upgrade Neve",
        )
    return types


def decode_document(content: bytes) -> dict[str, Any]:
    """Decode the content of a metadata file, which may be compressed. Raises ValueError."""
    try:
        document = json.loads(gzip.decompress(content) if content.startswith(_GZIP) else content)
    except (EOFError, OSError, zlib.error, RecursionError) as error:
        raise ValueError("the document cannot be decoded") from error
    if isinstance(document, dict):
        return document
    raise ValueError("the document is no object")


def unreadable_table(identifier: Identifier, reason: str) -> UnsupportedError:
    """Say that PyIceberg cannot read a table."""
    return UnsupportedError(
        f"table {name_of(identifier)} cannot be read by PyIceberg, which Neve uses: {reason}",
        hint="Spark reads it still: neve sql",
    )


def type_text(type_: Any) -> str:
    """Write a type as PyIceberg does."""
    if isinstance(type_, str):
        if geo := _DEFAULTS_OF_GEO.match(type_):
            return geo[1]
        return _DECIMAL.sub(r"decimal(\1, \2)", type_)
    if type_["type"] == "struct":
        return f"struct<{', '.join(map(_field_text, type_['fields']))}>"
    if type_["type"] == "list":
        return f"list<{type_text(type_['element'])}>"
    return f"map<{type_text(type_['key'])}, {type_text(type_['value'])}>"


def _field_text(field: Mapping[str, Any]) -> str:
    need = "required" if field["required"] else "optional"
    comment = f" ({field['doc']})" if field.get("doc") else ""
    return f"{field['id']}: {field['name']}: {need} {type_text(field['type'])}{comment}"


def _inner_fields(type_: Any) -> Sequence[Mapping[str, Any]]:
    """Return the fields inside a type; an element, a key and a value are fields, too."""
    if isinstance(type_, str):
        return ()
    if type_["type"] == "struct":
        fields: Sequence[Mapping[str, Any]] = type_["fields"]
        return fields
    names = ("element",) if type_["type"] == "list" else ("key", "value")
    return [{"id": type_[f"{name}-id"], "name": name, "type": type_[name]} for name in names]


def field_names(fields: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, str]]:
    """Yield the id and the full name of each field, also of nested ones."""
    return ((number, ".".join(path)) for number, path in field_paths(fields))


def field_paths(
    fields: Sequence[Mapping[str, Any]], above: tuple[str, ...] = ()
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the id of each field, and its name after those of the fields it is in.

    A name may have dots of its own.
    """
    for field in fields:
        path = (*above, field["name"])
        yield field["id"], path
        yield from field_paths(_inner_fields(field["type"]), path)


def _primitives(type_: Any) -> Iterator[str]:
    if isinstance(type_, str):
        yield type_
    for field in _inner_fields(type_):
        yield from _primitives(field["type"])
