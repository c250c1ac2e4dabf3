"""Iceberg's JSON updates, applied to a table's metadata document as a REST server does. Pure.

Only those that Neve itself commits to tables of a database's catalog.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from neve.lake.metadata_json import MAIN, MetadataJson
from neve.lake.rest_updates import refs_with_main

Json = dict[str, Any]


def add_snapshot(snapshot: Mapping[str, Any]) -> Json:
    return {"action": "add-snapshot", "snapshot": snapshot}


def set_branch(base: MetadataJson, name: str, snapshot_id: int) -> Json:
    """Move a branch of a table, which keeps what it says of retention."""
    return {
        **refs_with_main(base).get(name, {"type": "branch"}),
        "action": "set-snapshot-ref",
        "ref-name": name,
        "snapshot-id": snapshot_id,
    }


def set_tag(name: str, snapshot_id: int, max_ref_age_ms: int | None = None) -> Json:
    """Set a tag.

    Args:
        max_ref_age_ms: how long it lives; None: as the table's properties say.
    """
    age = {} if max_ref_age_ms is None else {"max-ref-age-ms": max_ref_age_ms}
    return {
        "action": "set-snapshot-ref",
        "ref-name": name,
        "type": "tag",
        "snapshot-id": snapshot_id,
        **age,
    }


def remove_ref(name: str) -> Json:
    return {"action": "remove-snapshot-ref", "ref-name": name}


def remove_snapshots(snapshot_ids: Sequence[int]) -> Json:
    return {"action": "remove-snapshots", "snapshot-ids": list(snapshot_ids)}


def set_properties(properties: Mapping[str, str]) -> Json:
    return {"action": "set-properties", "updates": dict(properties)}


def remove_properties(names: Sequence[str]) -> Json:
    return {"action": "remove-properties", "removals": list(names)}


def set_statistics_file(snapshot_id: int, path: str, size: int, footer_size: int) -> Json:
    """Name the statistics file of a snapshot, in the place of the one that it has."""
    statistics = {
        "snapshot-id": snapshot_id,
        "statistics-path": path,
        "file-size-in-bytes": size,
        "file-footer-size-in-bytes": footer_size,
        # None is listed: PyIceberg 0.12 refuses whole tables for a type of blob it does not know.
        "blob-metadata": [],
    }
    return {"action": "set-statistics", "snapshot-id": snapshot_id, "statistics": statistics}


def apply_updates(
    base: MetadataJson, updates: Sequence[Mapping[str, Any]], now_ms: int = 0
) -> Json:
    """Return the document that a table has after some updates; what they do not name stays.

    Args:
        now_ms: when the commit is made. The history of `main` has this time for a snapshot that an
            earlier commit has added.

    Raises:
        ValueError: a ref is to name a snapshot that the table does not have.
    """
    # Old writers name no refs. With some but no main, expiry would take what is current.
    document = {**base.document, "refs": refs_with_main(base)}
    document["last-updated-ms"] = max(now_ms, base.last_updated_ms)
    for update in updates:
        _ACTIONS[update["action"]](document, update)
    return document


def _add_snapshot(document: Json, update: Mapping[str, Any]) -> None:
    snapshot = update["snapshot"]
    document["snapshots"] = [*(document.get("snapshots") or ()), snapshot]
    if document["format-version"] > 1:
        document["last-sequence-number"] = snapshot["sequence-number"]
    if document["format-version"] > 2:
        # Row ids are given out once: the next snapshot's begin behind this one's.
        first = snapshot.get("first-row-id") or document.get("next-row-id") or 0
        document["next-row-id"] = first + (snapshot.get("added-rows") or 0)
    document["last-updated-ms"] = snapshot["timestamp-ms"]


def _set_ref(document: Json, update: Mapping[str, Any]) -> None:
    name = update["ref-name"]
    ref = {key: value for key, value in update.items() if key not in ("action", "ref-name")}
    snapshots = reversed(document.get("snapshots") or ())
    if all(snapshot["snapshot-id"] != ref["snapshot-id"] for snapshot in snapshots):
        # As PyIceberg words it, and Iceberg's servers.
        raise ValueError(f"Cannot set {name} to unknown snapshot {ref['snapshot-id']}")
    is_moved = (document["refs"].get(name) or {}).get("snapshot-id") != ref["snapshot-id"]
    document["refs"] = {**document["refs"], name: ref}
    if name == MAIN and is_moved:
        document["current-snapshot-id"] = ref["snapshot-id"]
        entry = {
            "snapshot-id": ref["snapshot-id"],
            "timestamp-ms": document["last-updated-ms"],
        }
        document["snapshot-log"] = [*(document.get("snapshot-log") or ()), entry]


def _remove_ref(document: Json, update: Mapping[str, Any]) -> None:
    name = update["ref-name"]
    document["refs"] = {key: ref for key, ref in document["refs"].items() if key != name}


def _remove_snapshots(document: Json, update: Mapping[str, Any]) -> None:
    removed = set(update["snapshot-ids"])
    for key in ("snapshots", "statistics", "partition-statistics"):
        if key in document:
            document[key] = [
                each for each in document[key] or () if each["snapshot-id"] not in removed
            ]
    document["refs"] = {
        name: ref for name, ref in document["refs"].items() if ref["snapshot-id"] not in removed
    }
    # What comes before a removed entry goes, too: a gap would answer for a time with another one.
    log: list[Json] = []
    for entry in document.get("snapshot-log") or ():
        if entry["snapshot-id"] in removed:
            log = []
        else:
            log.append(entry)
    document["snapshot-log"] = log


def _add_spec(document: Json, update: Mapping[str, Any]) -> None:
    document["partition-specs"] = [*document["partition-specs"], update["spec"]]


def _set_statistics(document: Json, update: Mapping[str, Any]) -> None:
    others = (
        file
        for file in document.get("statistics") or ()
        if file["snapshot-id"] != update["snapshot-id"]
    )
    document["statistics"] = [*others, update["statistics"]]


def _set_properties(document: Json, update: Mapping[str, Any]) -> None:
    document["properties"] = {**(document.get("properties") or {}), **update["updates"]}


def _remove_properties(document: Json, update: Mapping[str, Any]) -> None:
    removed = set(update["removals"])
    properties = document.get("properties") or {}
    document["properties"] = {
        name: value for name, value in properties.items() if name not in removed
    }


_ACTIONS: Mapping[str, Callable[[Json, Mapping[str, Any]], None]] = {
    "add-snapshot": _add_snapshot,
    "set-snapshot-ref": _set_ref,
    "remove-snapshot-ref": _remove_ref,
    "remove-snapshots": _remove_snapshots,
    "add-spec": _add_spec,
    "set-statistics": _set_statistics,
    "set-properties": _set_properties,
    "remove-properties": _remove_properties,
}
