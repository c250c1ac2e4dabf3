"""How far a mirror's index and its merges are behind, from metadata alone. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from neve.config.merging import INDEXED_ROWS
from neve.lake.horizons import CHECKPOINT, ROOT_PROPERTY
from neve.lake.metadata_json import MAIN, MetadataJson
from neve.upkeep.table_kind import TableKind

if TYPE_CHECKING:
    from neve.upkeep.observed_table import ObservedTable


def index_facts(observed: ObservedTable, now: float) -> Mapping[str, Any]:
    """Say how far the index is behind `main`, as the mirror's property names it."""
    if observed.kind is not TableKind.MIRROR:
        return {}
    # Merges scan the keys of a small mirror, and keep no index of it.
    none = "missing" if observed.layout.records >= INDEXED_ROWS else "none"
    try:
        root = json.loads(observed.metadata.properties[ROOT_PROPERTY])["snapshot_id"]
    except (LookupError, ValueError, TypeError):
        return {"index": none}
    after = commits_after(observed.metadata, root)
    if after is None:
        return {"index": none}
    return {
        "index": "behind" if after else "fresh",
        "index_behind": len(after),
        "index_behind_seconds": _age_of_oldest(after, now),
    }


def lag_facts(observed: ObservedTable, now: float) -> Mapping[str, Any]:
    """Say how many commits of its changelog a mirror lacks, and the age of the oldest."""
    if observed.changelog is None:
        return {}
    merged = _merged_snapshot(observed.metadata)
    waiting = commits_after(observed.changelog, merged)
    if waiting is None:
        return {}
    return {
        "lag_snapshots": len(waiting),
        "lag_rows": sum(
            int((each.get("summary") or {}).get("added-records", 0)) for each in waiting
        ),
        "lag_seconds": _age_of_oldest(waiting, now),
    }


def _age_of_oldest(commits: Sequence[Mapping[str, Any]], now: float) -> float:
    oldest = min((int(each["timestamp-ms"]) for each in commits), default=None)
    return 0.0 if oldest is None else round(max(0.0, now - oldest / 1000), 1)


def _merged_snapshot(mirror: MetadataJson) -> int | None:
    for snapshot in _line(mirror):
        text = (snapshot.get("summary") or {}).get(CHECKPOINT)
        if text is not None:
            try:
                return json.loads(text).get("snapshot_id")  # type: ignore[no-any-return]
            except (ValueError, AttributeError):
                return None
    return None


def commits_after(
    metadata: MetadataJson, snapshot_id: int | None
) -> list[Mapping[str, Any]] | None:
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
