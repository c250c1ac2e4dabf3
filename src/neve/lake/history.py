"""A table's snapshots, as people choose versions by them: from its metadata alone."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from neve.lake.metadata_json import MetadataJson

_REPLACE = "replace"


@dataclass(frozen=True)
class Snapshot:
    """One line of a table's history.

    Args:
        committed_at: since when a reader of its line saw it, by the table's history log. A
            snapshot that was staged first has an earlier time of its own.
        added_rows, removed_rows: as the writer counted them. None: it did not, or it deleted by
            values, of which nobody knows how many rows have them.
        is_on_main: it is the current snapshot or one before it. The others were rolled back, are
            on another branch, or are staged.
    """

    snapshot_id: int
    parent_id: int | None
    committed_at: datetime
    operation: str
    added_rows: int | None
    removed_rows: int | None
    refs: tuple[str, ...]
    is_on_main: bool


def history(metadata: MetadataJson) -> tuple[Snapshot, ...]:
    """Return the snapshots that have not expired, the newest first."""
    times = _times(metadata)
    main = _ancestors(metadata)
    refs: dict[int, list[str]] = {}
    for name, snapshot_id in sorted(metadata.refs.items()):
        refs.setdefault(snapshot_id, []).append(name)
    # Writers add to the end, so that a parent comes before its children.
    return tuple(
        _snapshot(snapshot, times[number], tuple(refs.get(number, ())), is_on_main=number in main)
        for number, snapshot in reversed(list(metadata.snapshots.items()))
    )


def not_current_since(metadata: MetadataJson) -> dict[int, int]:
    """Return since when, in milliseconds, nobody can have begun to read each snapshot as current.

    The current one is not in it. A snapshot that no log and no line places may have been current
    until the log begins; one with a child, on a branch until that child was made.
    """
    log: list[Mapping[str, Any]] = metadata.document.get("snapshot-log") or []
    since: dict[int, int] = {}
    for entry, following in itertools.pairwise(log):
        since[entry["snapshot-id"]] = following["timestamp-ms"]
    times = _times(metadata)
    child = metadata.current_snapshot_id
    while child is not None and child in metadata.snapshots:
        parent = metadata.snapshots[child].get("parent-snapshot-id")
        if parent is not None and parent in metadata.snapshots and parent not in since:
            since[parent] = times[child]
        child = parent
    followed: dict[int | None, int] = {}
    for snapshot in metadata.snapshots.values():
        parent = snapshot.get("parent-snapshot-id")
        followed[parent] = max(followed.get(parent, 0), snapshot["timestamp-ms"])
    begin = log[0]["timestamp-ms"] if log else 0
    return {
        number: max(since.get(number, begin), snapshot["timestamp-ms"], followed.get(number, 0))
        for number, snapshot in metadata.snapshots.items()
        if number != metadata.current_snapshot_id
    }


def versions_at(metadata: MetadataJson, moments_ms: Iterable[int]) -> dict[int, int]:
    """Return which snapshot was current at each moment, as far as the history log says."""
    log = list(metadata.document.get("snapshot-log") or ())
    versions = {}
    for moment in sorted(moments_ms, reverse=True):
        # Clocks differ, so that times do not always rise: the last that fits is taken.
        while log and log[-1]["timestamp-ms"] > moment:
            log.pop()
        if log and log[-1]["snapshot-id"] in metadata.snapshots:
            versions[moment] = log[-1]["snapshot-id"]
    return versions


def _snapshot(
    snapshot: Mapping[str, Any], milliseconds: int, refs: tuple[str, ...], *, is_on_main: bool
) -> Snapshot:
    summary = snapshot.get("summary") or {}
    operation = summary.get("operation", "append")
    added, removed = (0, 0) if operation == _REPLACE else _rows(summary)
    return Snapshot(
        snapshot["snapshot-id"],
        snapshot.get("parent-snapshot-id"),
        datetime.fromtimestamp(milliseconds / 1000, timezone.utc),
        operation,
        added,
        removed,
        refs,
        is_on_main,
    )


def _rows(summary: Mapping[str, str]) -> tuple[int | None, int | None]:
    """Return how many rows a commit added and removed."""
    if "total-records" not in summary:
        return None, None

    def number(key: str) -> int:
        return int(summary.get(key, 0))

    removed = number("deleted-records")
    # A deletion vector replaces that of the same file, and counts its rows again.
    removed += number("added-position-deletes") - number("removed-position-deletes")
    by_values = number("added-equality-deletes")
    return number("added-records"), None if by_values else max(removed, 0)


def _ancestors(metadata: MetadataJson) -> set[int]:
    """Return the current snapshot and those before it, as far as they have not expired."""
    ancestors: set[int] = set()
    snapshot_id = metadata.current_snapshot_id
    while snapshot_id is not None and (snapshot := metadata.snapshots.get(snapshot_id)):
        ancestors.add(snapshot_id)
        snapshot_id = snapshot.get("parent-snapshot-id")
    return ancestors


def _times(metadata: MetadataJson) -> dict[int, int]:
    """Return when each snapshot was first seen, in milliseconds.

    One that was never current itself was seen together with the first that follows it and was.
    """
    log = reversed(metadata.document.get("snapshot-log") or [])
    published = {entry["snapshot-id"]: entry["timestamp-ms"] for entry in log}
    times: dict[int, int] = {}
    for number, snapshot in reversed(list(metadata.snapshots.items())):
        seen = published.get(number, times.get(number))
        times[number] = snapshot["timestamp-ms"] if seen is None else seen
        parent = snapshot.get("parent-snapshot-id")
        if seen is not None and parent is not None:
            times[parent] = seen
    return times
