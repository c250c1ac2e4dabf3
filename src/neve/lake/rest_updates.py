"""The updates that bring a table of a REST catalog from one version of its metadata to a later one.

They are for Iceberg's `updateTable`, as JSON. A server numbers schemas, specs and sort orders by
itself, and adds snapshots by the rules of Iceberg's `TableMetadata.Builder`; what these do not
allow is refused here, before anything is sent. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from neve.errors import UnsupportedError
from neve.lake.metadata_json import MAIN, MetadataJson, field_names

Json = dict[str, Any]

# By so much, Iceberg's servers let clocks differ.
_TOLERANCE_MS = 60_000
_HINT = "replace the table instead: --replace"


def table_updates(base: MetadataJson, wanted: MetadataJson) -> tuple[list[Json], list[Json]]:
    """Return the requirements and the updates of one commit.

    Args:
        wanted: has the schemas, partition specs, sort orders and snapshots of `base`, and more.

    Raises:
        UnsupportedError: a REST catalog cannot take this step.
    """
    return requirements(base, wanted), _Updates(base, wanted).build()


def requirements(base: MetadataJson, wanted: MetadataJson) -> list[Json]:
    """Return what must still hold: nobody moved a ref, or changed the table's shape."""
    document = base.document
    asserted = {
        "assert-last-assigned-field-id": ("last-assigned-field-id", "last-column-id"),
        "assert-current-schema-id": ("current-schema-id", "current-schema-id"),
        "assert-last-assigned-partition-id": ("last-assigned-partition-id", "last-partition-id"),
        "assert-default-spec-id": ("default-spec-id", "default-spec-id"),
        "assert-default-sort-order-id": ("default-sort-order-id", "default-sort-order-id"),
    }
    return [
        *assert_uuid(base),
        *(
            {"type": kind, name: document[key]}
            for kind, (name, key) in asserted.items()
            if document.get(key) is not None
        ),
        *(
            {"type": "assert-ref-snapshot-id", "ref": name, "snapshot-id": base.refs.get(name)}
            for name in sorted(base.refs.keys() | wanted.refs.keys())
        ),
    ]


def assert_uuid(base: MetadataJson) -> list[Json]:
    """Require that a table is still this one. A table of format v1 may have no id."""
    return [{"type": "assert-table-uuid", "uuid": base.uuid}] if base.uuid else []


class _Updates:
    """Collects updates, and keeps the numbers that the server will have after each of them."""

    def __init__(self, base: MetadataJson, wanted: MetadataJson) -> None:
        self._base = base
        self._wanted = wanted
        self._updates: list[Json] = []
        self._format = base.format_version
        self._sequence: int = base.document.get("last-sequence-number") or 0
        self._next_row: int = base.document.get("next-row-id") or 0
        self._added: set[int] = set()
        used = wanted.snapshots.keys() | base.snapshots.keys()
        self._free_ids = (number for number in count(1) if number not in used)
        self._placeholders: list[int] = []
        # None: the server takes its own time.
        self._updated_ms: int | None = None

    def build(self) -> list[Json]:
        snapshots = sorted(
            (
                snapshot
                for snapshot_id, snapshot in self._wanted.snapshots.items()
                if snapshot_id not in self._base.snapshots
            ),
            key=lambda each: (each.get("sequence-number") or 0, each["timestamp-ms"]),
        )
        # Version 3 takes no snapshot without row ids, and only version 3 takes its own types.
        older = [each for each in snapshots if _needed_format(each) < self._wanted.format_version]
        for snapshot in older:
            self._add_snapshot(snapshot)
        self._upgrade(self._wanted.format_version)
        self._change_shape()
        for snapshot in snapshots[len(older) :]:
            self._add_snapshot(snapshot)
        if self._format >= 3:
            self._skip_row_ids(self._wanted.document.get("next-row-id") or 0)
        self._set_refs()
        self._set_statistics()
        self._set_properties()
        if self._placeholders:
            self._send("remove-snapshots", **{"snapshot-ids": self._placeholders})
        return self._updates

    def _send(self, action: str, **values: Any) -> None:
        self._updates.append({"action": action, **values})

    def _upgrade(self, version: int) -> None:
        if version > self._format:
            self._send("upgrade-format-version", **{"format-version": version})
            self._format = version

    def _change_shape(self) -> None:
        base, wanted = self._base, self._wanted
        current = base.current_schema_id
        for schema in _added(base.schemas, wanted.schemas, "schema-id"):
            self._send("add-schema", schema=schema)
        specs = _added(base.partition_specs, wanted.partition_specs, "spec-id")
        orders = _added(
            base.document.get("sort-orders") or (),
            wanted.document.get("sort-orders") or (),
            "order-id",
        )
        for action, key, parts in (
            ("add-spec", "spec", specs),
            ("add-sort-order", "sort-order", orders),
        ):
            for part in parts:
                # The server looks for the columns in what is the current schema just then.
                schema_id = self._schema_with(_source_ids(part["fields"]))
                current = self._set_current_schema(current, schema_id)
                self._send(action, **{key: part})
        self._set_current_schema(current, wanted.current_schema_id)
        for action, key, name in (
            ("set-default-spec", "default-spec-id", "spec-id"),
            ("set-default-sort-order", "default-sort-order-id", "sort-order-id"),
        ):
            if wanted.document.get(key, 0) != base.document.get(key, 0):
                self._send(action, **{name: wanted.document[key]})
        self._require_assigned_ids()

    def _set_current_schema(self, current: int, schema_id: int) -> int:
        if schema_id != current:
            self._send("set-current-schema", **{"schema-id": schema_id})
        return schema_id

    def _schema_with(self, source_ids: set[int]) -> int:
        """Return a schema that has these columns: the current one, else the newest."""
        wanted = self._wanted
        newest = sorted((int(each.get("schema-id", 0)) for each in wanted.schemas), reverse=True)
        for schema_id in (wanted.current_schema_id, *newest):
            names = field_names(wanted.schema(schema_id)["fields"])
            if source_ids <= {field_id for field_id, _ in names}:
                return schema_id
        raise UnsupportedError(
            "a partition spec or a sort order names a column that no kept schema has, so that a "
            "REST catalog takes no update with it",
            hint=_HINT,
        )

    def _require_assigned_ids(self) -> None:
        """Refuse where the server would assign ids again that old data files still use."""
        base, wanted = self._base.document, self._wanted.document
        columns = (field_id for each in self._wanted.schemas for field_id in _ids(each["fields"]))
        fields = (field for each in self._wanted.partition_specs for field in each["fields"])
        highest = {
            "last-column-id": max(columns, default=0),
            "last-partition-id": max((each.get("field-id", 0) for each in fields), default=0),
        }
        for key, assigned in highest.items():
            if wanted.get(key, 0) > max(assigned, base.get(key, 0)):
                raise UnsupportedError(
                    f"the source's {key} is of a column or a partition field that no kept schema "
                    "or spec has, and a REST catalog takes no update of it alone",
                    hint=_HINT,
                )

    def _add_snapshot(self, snapshot: Mapping[str, Any]) -> None:
        self._upgrade(min(_needed_format(snapshot), self._wanted.format_version))
        snapshot_id, sequence = snapshot["snapshot-id"], snapshot.get("sequence-number") or 0
        has_parent = snapshot.get("parent-snapshot-id") is not None
        if self._format > 1 and sequence <= self._sequence and has_parent:
            raise UnsupportedError(
                f"snapshot {snapshot_id} is older than what the target has: a REST catalog adds "
                "newer snapshots only",
                hint=_HINT,
            )
        if self._format >= 3:
            first, rows = snapshot.get("first-row-id"), snapshot.get("added-rows") or 0
            if first is None or first < self._next_row:
                raise UnsupportedError(
                    f"the row ids of snapshot {snapshot_id} are taken at the target already",
                    hint=_HINT,
                )
            # Of snapshots that were expired before they were moved.
            self._skip_row_ids(first)
            self._next_row = first + rows
        self._send("add-snapshot", snapshot=dict(snapshot))
        self._sequence = max(sequence, self._sequence)
        self._added.add(snapshot_id)
        self._updated_ms = snapshot["timestamp-ms"]

    def _skip_row_ids(self, next_row: int) -> None:
        """Have the server count rows as assigned: it adds up what snapshots say they added."""
        if next_row > self._next_row:
            self._add_placeholder(
                self._updated_ms or self._base.last_updated_ms, next_row - self._next_row
            )
            self._next_row = next_row

    def _add_placeholder(self, timestamp_ms: int, rows: int = 0) -> None:
        """Add a snapshot that the same commit removes again, for the numbers it leaves behind."""
        snapshot_id = next(self._free_ids)
        row_ids = {"first-row-id": self._next_row, "added-rows": rows} if self._format >= 3 else {}
        self._send(
            "add-snapshot",
            snapshot={
                "snapshot-id": snapshot_id,
                "sequence-number": self._sequence,
                "timestamp-ms": timestamp_ms,
                "manifest-list": f"{self._wanted.location}/metadata/placeholder-{snapshot_id}.avro",
                "summary": {"operation": "append"},
                "schema-id": self._wanted.current_schema_id,
                **row_ids,
            },
        )
        self._placeholders.append(snapshot_id)
        self._updated_ms = timestamp_ms

    def _set_refs(self) -> None:
        base, wanted = refs_with_main(self._base), refs_with_main(self._wanted)
        changed = [name for name, ref in wanted.items() if base.get(name) != ref]
        for name in sorted(changed, key=lambda each: (each != MAIN, each)):
            self._set_ref(name, wanted[name])
        for name in sorted(base.keys() - wanted.keys()):
            self._send("remove-snapshot-ref", **{"ref-name": name})
        # Older servers take the time of the last snapshot as the time of the commit, and refuse a
        # commit that is older than the one before it.
        if self._updated_ms is not None and self._updated_ms < self._base.last_updated_ms:
            self._add_placeholder(self._base.last_updated_ms)

    def _set_ref(self, name: str, ref: Mapping[str, Any]) -> None:
        if ref["snapshot-id"] in self._added:
            self._updated_ms = self._wanted.snapshots[ref["snapshot-id"]]["timestamp-ms"]
            if name == MAIN:
                self._require_sorted_history(self._updated_ms)
        self._send("set-snapshot-ref", **{"ref-name": name, **ref})

    def _require_sorted_history(self, timestamp_ms: int) -> None:
        """Refuse a snapshot that is older than the last move of `main` at the target.

        The server would refuse it. A rollback of the source has the time of its move there, and
        the source may have been written to between that move's plan and its registration.
        """
        log = self._base.document.get("snapshot-log") or ()
        if log and timestamp_ms < log[-1]["timestamp-ms"] - _TOLERANCE_MS:
            raise UnsupportedError(
                "the target followed a rollback of the source at a later time than the newest "
                "snapshot's, which a REST catalog does not add to its history",
                hint="move again after the source's next commit, or replace the table: --replace",
            )

    def _set_statistics(self) -> None:
        for key, action in (
            ("statistics", "set-statistics"),
            ("partition-statistics", "set-partition-statistics"),
        ):
            present = {file["snapshot-id"]: file for file in self._base.document.get(key) or ()}
            for file in self._wanted.document.get(key) or ():
                if present.get(file["snapshot-id"]) != file:
                    self._send(action, **{"snapshot-id": file["snapshot-id"], key: file})

    def _set_properties(self) -> None:
        base, wanted = self._base.properties, self._wanted.properties
        changed = {key: value for key, value in wanted.items() if base.get(key) != value}
        if changed:
            self._send("set-properties", updates=changed)
        if removed := sorted(base.keys() - wanted.keys()):
            self._send("remove-properties", removals=removed)


def refs_with_main(metadata: MetadataJson) -> dict[str, Mapping[str, Any]]:
    """Return refs with their retention; old writers name none, not even `main`."""
    refs = dict(metadata.document.get("refs") or {})
    if metadata.current_snapshot_id is not None:
        refs.setdefault(MAIN, {"snapshot-id": metadata.current_snapshot_id, "type": "branch"})
    return refs


def _added(
    present: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, Any]], key: str
) -> list[Mapping[str, Any]]:
    """Return the new schemas, specs or orders so that the server gives them the ids they have.

    It gives one that it has already no second id, and any other the id after the highest.
    """
    parts = {part.get(key, 0): _without_id(part, key) for part in present}
    added = sorted((part for part in wanted if part.get(key, 0) not in parts), key=lambda p: p[key])
    for part in added:
        if part[key] != max(parts, default=-1) + 1 or _without_id(part, key) in parts.values():
            raise UnsupportedError(
                f"a REST catalog would not give the {key} {part[key]} that the source gives",
                hint=_HINT,
            )
        parts[part[key]] = _without_id(part, key)
    return added


def _without_id(part: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in part.items() if name != key}


def _needed_format(snapshot: Mapping[str, Any]) -> int:
    """Return the format version that a snapshot was written in, at least."""
    if snapshot.get("first-row-id") is not None:
        return 3
    return 2 if snapshot.get("sequence-number") else 1


def _source_ids(fields: Sequence[Mapping[str, Any]]) -> set[int]:
    return {
        source_id
        for field in fields
        for source_id in (field.get("source-ids") or [field.get("source-id")])
        if source_id is not None
    }


def _ids(fields: Sequence[Mapping[str, Any]]) -> Iterator[int]:
    for field_id, _ in field_names(fields):
        yield field_id
