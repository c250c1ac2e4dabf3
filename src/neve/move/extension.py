"""A target that a move goes on with: what it becomes, and whether it may. Pure.

Everything of the target stays: snapshots that the source has expired meanwhile, refs, properties
and statistics that were made at the target. Only what moves by moves is moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from neve.errors import CatalogError, Code
from neve.lake.metadata_json import MOVED, MetadataJson, type_text
from neve.lake.rest_updates import refs_with_main
from neve.move.record import MoveRecord, read_record, shape_of

Json = dict[str, Any]

_REPLACE = "its own changes are lost if the source takes its place: --replace"


def extended(target: MetadataJson, moved: MetadataJson) -> Json:
    """Return the target's metadata after a move.

    Args:
        moved: the source's version, with paths at the target.

    Raises:
        CatalogError: it is another table, or it was written to (code: conflict).
    """
    require_unwritten(target, moved)
    document = dict(moved.document)
    snapshots = {**moved.snapshots, **target.snapshots}
    document["snapshots"] = sorted(
        snapshots.values(),
        key=lambda each: (_sequence(each), each["timestamp-ms"]),
    )
    for key, id_name in _SHAPES.items():
        parts = {**_by_id(target, key, id_name), **_by_id(moved, key, id_name)}
        document[key] = [parts[number] for number in sorted(parts)]
    for key in ("last-column-id", "last-partition-id", "last-sequence-number", "next-row-id"):
        numbers = [each.document.get(key) for each in (target, moved)]
        if any(number is not None for number in numbers):
            document[key] = max(number for number in numbers if number is not None)
    record = read_record(target)
    document["refs"] = _refs(target, moved, record)
    document["properties"] = _properties(target, moved, record)
    document["snapshot-log"] = _snapshot_log(target, moved, snapshots.keys())
    for key in ("statistics", "partition-statistics"):
        files = {
            file["snapshot-id"]: file
            for metadata in (target, moved)
            for file in metadata.document.get(key) or ()
        }
        if files:
            document[key] = list(files.values())
    return document


def without_expired(source: MetadataJson, target: MetadataJson) -> MetadataJson:
    """Return a source without the snapshots that the target had and has expired.

    They are not copied again. What a ref names is kept, and where format version 1 numbers no
    snapshots, all are.
    """
    newest = target.document.get("last-sequence-number") or 0
    named = set(source.refs.values())
    expired = {
        snapshot_id
        for snapshot_id, snapshot in source.snapshots.items()
        if snapshot_id not in target.snapshots
        and snapshot_id not in named
        and 0 < _sequence(snapshot) <= newest
    }
    return without_snapshots(source, expired)


def without_snapshots(metadata: MetadataJson, removed: set[int]) -> MetadataJson:
    """Return metadata without some snapshots, their statistics and their part of the history."""
    if not removed:
        return metadata
    document = dict(metadata.document)
    for key in ("snapshots", "statistics", "partition-statistics"):
        if key in document:
            document[key] = [
                each for each in document[key] or () if each["snapshot-id"] not in removed
            ]
    kept = metadata.snapshots.keys() - removed
    document["snapshot-log"] = _valid_log(document.get("snapshot-log") or (), kept)
    return MetadataJson(metadata.metadata_location, document)


def require_unwritten(target: MetadataJson, moved: MetadataJson) -> None:
    """Refuse a target that is not as the last move left it, or that is another table.

    What may differ: snapshots that were expired, new tags and branches on what was moved,
    properties, statistics.
    """
    if target.uuid != moved.uuid:
        raise _refusal("it is another table: its uuid is not the source's", "move to another name")
    if target.location != moved.location:
        raise _refusal(
            f"it is at {target.location}, and the files are below {moved.location}",
            "leave --location out",
        )
    if target.format_version > moved.format_version:
        raise _refusal("it was upgraded to a later format version", _REPLACE)
    _require_same_shapes(target, moved)
    record = read_record(target)
    if record is None:
        _require_ancestors(target, moved)
    else:
        _require_as_recorded(target, moved, record)


def _refusal(reason: str, hint: str) -> CatalogError:
    return CatalogError(f"the target cannot be extended: {reason}", hint=hint, code=Code.CONFLICT)


def _require_as_recorded(target: MetadataJson, moved: MetadataJson, record: MoveRecord) -> None:
    newer = [
        snapshot_id
        for snapshot_id, snapshot in target.snapshots.items()
        if _sequence(snapshot) > record.sequence_number
    ]
    if newer:
        raise _refusal(f"snapshot {newer[0]} was written there", _REPLACE)
    for name, snapshot_id in target.refs.items():
        expected = record.refs.get(name, moved.refs.get(name))
        if expected is not None and snapshot_id != expected:
            raise _refusal(f"{name} was moved there, to snapshot {snapshot_id}", _REPLACE)
    if shape_of(target) != record.shape:
        raise _refusal("its schema, partition spec or sort order was changed there", _REPLACE)


def _sequence(snapshot: Mapping[str, Any]) -> int:
    return snapshot.get("sequence-number") or 0


def _require_ancestors(target: MetadataJson, moved: MetadataJson) -> None:
    """Without a record, everything that the target has must be in the source's history."""
    for name, snapshot_id in target.refs.items():
        if name not in moved.refs:
            continue
        is_branch = name in target.branches
        history = _ancestors(moved, moved.refs[name]) if is_branch else {moved.refs[name]}
        if snapshot_id not in history:
            raise _refusal(
                f"{name} is at snapshot {snapshot_id}, which the source's history of it lacks",
                _REPLACE,
            )
    if unknown := sorted(target.snapshots.keys() - moved.snapshots.keys()):
        raise _refusal(f"the source has no snapshot {unknown[0]}", _REPLACE)


def _ancestors(metadata: MetadataJson, snapshot_id: int | None) -> set[int]:
    ancestors: set[int] = set()
    while snapshot_id is not None and snapshot_id not in ancestors:
        ancestors.add(snapshot_id)
        snapshot = metadata.snapshots.get(snapshot_id)
        snapshot_id = snapshot.get("parent-snapshot-id") if snapshot else None
    return ancestors


_SHAPES = {"schemas": "schema-id", "partition-specs": "spec-id", "sort-orders": "order-id"}
_NAMES = {"schemas": "schema", "partition-specs": "partition spec", "sort-orders": "sort order"}


def _by_id(metadata: MetadataJson, key: str, id_name: str) -> dict[int, Mapping[str, Any]]:
    parts: Sequence[Mapping[str, Any]] = metadata.document.get(key) or ()
    if key == "schemas":
        parts = metadata.schemas
    elif key == "partition-specs":
        parts = metadata.partition_specs
    return {part.get(id_name, 0): part for part in parts}


def _require_same_shapes(target: MetadataJson, moved: MetadataJson) -> None:
    for key, id_name in _SHAPES.items():
        theirs, ours = _by_id(target, key, id_name), _by_id(moved, key, id_name)
        for number in theirs.keys() & ours.keys():
            if _comparable(theirs[number]) != _comparable(ours[number]):
                raise _refusal(f"its {_NAMES[key]} {number} is not the source's", _REPLACE)


def _comparable(part: Mapping[str, Any]) -> object:
    """Return what tells schemas, specs and orders apart; libraries write the rest differently."""
    fields = [
        (
            field.get("id", field.get("field-id")),
            field.get("name"),
            field.get("required"),
            type_text(field["type"]) if "type" in field else None,
            field.get("source-ids") or [field.get("source-id")],
            field.get("transform"),
            field.get("direction"),
            field.get("null-order"),
        )
        for field in part["fields"]
    ]
    return fields, sorted(part.get("identifier-field-ids") or ())


def _refs(
    target: MetadataJson, moved: MetadataJson, record: MoveRecord | None
) -> dict[str, Mapping[str, Any]]:
    """Return the source's refs, and those made at the target; not those the source has removed."""
    removed = (record.refs.keys() if record else set()) - moved.refs.keys()
    own = {name: ref for name, ref in refs_with_main(target).items() if name not in removed}
    return {**own, **refs_with_main(moved)}


def _properties(
    target: MetadataJson, moved: MetadataJson, record: MoveRecord | None
) -> dict[str, str]:
    removed = set(record.properties if record else ()) - moved.properties.keys()
    own = {key: value for key, value in target.properties.items() if key not in removed}
    properties = {**own, **moved.properties}
    arriving = read_record(moved)
    if arriving is not None:
        # The target keeps snapshots that the source may have expired, the newest included.
        newest = max((_sequence(each) for each in target.snapshots.values()), default=0)
        newest = max(newest, arriving.sequence_number)
        properties[MOVED] = replace(arriving, sequence_number=newest).encode()
    return properties


def _snapshot_log(
    target: MetadataJson, moved: MetadataJson, snapshots: Iterable[int]
) -> list[Mapping[str, Any]]:
    """Return the source's history, and before it what only the target still knows."""
    newer: Sequence[Mapping[str, Any]] = moved.document.get("snapshot-log") or ()
    begin = newer[0]["timestamp-ms"] if newer else None
    older = [
        entry
        for entry in target.document.get("snapshot-log") or ()
        if begin is None or entry["timestamp-ms"] < begin
    ]
    return _valid_log([*older, *newer], snapshots)


def _valid_log(log: Iterable[Mapping[str, Any]], kept: Iterable[int]) -> list[Mapping[str, Any]]:
    """Return a history log from behind its last unknown snapshot on.

    As Iceberg does: with a gap, another snapshot would seem current at the time of that one.
    """
    known = set(kept)
    valid: list[Mapping[str, Any]] = []
    for entry in log:
        if entry["snapshot-id"] in known:
            valid.append(entry)
        else:
            valid.clear()
    return valid
