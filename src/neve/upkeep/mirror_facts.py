"""How far a mirror's index and its merges are behind, from metadata alone. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from neve.lake.horizons import CHECKPOINT, ROOT_PROPERTY
from neve.lake.metadata_json import MAIN, MetadataJson
from neve.upkeep.table_kind import TableKind

if TYPE_CHECKING:
    from neve.upkeep.observed_table import ObservedTable


def index_facts(observed: ObservedTable) -> Mapping[str, Any]:
    """Say how far the index is behind, as the mirror's property names it."""
    if observed.kind is not TableKind.MIRROR:
        return {}
    try:
        root = json.loads(observed.metadata.properties[ROOT_PROPERTY])["snapshot_id"]
    except (LookupError, ValueError, TypeError):
        return {"index": "missing"}
    after = _after(observed.metadata, root)
    if after is None:
        return {"index": "missing"}
    return {"index": "behind" if after else "fresh", "index_behind": len(after)}


def lag_facts(observed: ObservedTable, now: float) -> Mapping[str, Any]:
    """Say how many commits of its changelog a mirror lacks, and the age of the oldest."""
    if observed.changelog is None:
        return {}
    merged = _merged_snapshot(observed.metadata)
    waiting = _after(observed.changelog, merged)
    if waiting is None:
        return {}
    oldest = min((int(each["timestamp-ms"]) for each in waiting), default=None)
    seconds = 0.0 if oldest is None else max(0.0, now - oldest / 1000)
    return {"lag_snapshots": len(waiting), "lag_seconds": round(seconds, 1)}


def _merged_snapshot(mirror: MetadataJson) -> int | None:
    for snapshot in _line(mirror):
        text = (snapshot.get("summary") or {}).get(CHECKPOINT)
        if text is not None:
            try:
                return json.loads(text).get("snapshot_id")  # type: ignore[no-any-return]
            except (ValueError, AttributeError):
                return None
    return None


def _after(metadata: MetadataJson, snapshot_id: int | None) -> list[Mapping[str, Any]] | None:
    """Return the commits of `main` after a snapshot; None: it is no ancestor of `main`."""
    after: list[Mapping[str, Any]] = []
    for snapshot in _line(metadata):
        if snapshot["snapshot-id"] == snapshot_id:
            return after
        after.append(snapshot)
    # A mirror that has merged nothing yet lacks everything.
    return after if snapshot_id is None else None


def _line(metadata: MetadataJson) -> Iterator[Mapping[str, Any]]:
    snapshot_id = metadata.refs.get(MAIN)
    while snapshot_id is not None and (snapshot := metadata.snapshots.get(snapshot_id)):
        yield snapshot
        snapshot_id = snapshot.get("parent-snapshot-id")
