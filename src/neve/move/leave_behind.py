"""What of a table does not move: what belongs to processes that work at the source. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from neve.index.current_root import ROOT_PROPERTY
from neve.index.root import index_location
from neve.lake.follower_tags import PROPERTY_PREFIX, TAG_PREFIX
from neve.lake.metadata_json import MOVED, MetadataJson
from neve.move.extension import without_snapshots
from neve.move.metadata_pairs import STATISTICS
from neve.move.paths import below
from neve.move.record import with_record
from neve.publish.batch import HELD_PREFIX, STAGED_PREFIX
from neve.publish.ranges import MARK_PREFIX, REJECTED_PREFIX

# Batches that are staged or held, and branches that merges and followers write at the moment.
_OWN_REFS = "neve-"
_LEFT_PROPERTIES = (MARK_PREFIX, REJECTED_PREFIX, PROPERTY_PREFIX, ROOT_PROPERTY, MOVED)


@dataclass(frozen=True)
class MovedVersion:
    """The version of a source that moves.

    Args:
        metadata: without what stays behind, and with the property that names this version
            (`record.py`); its paths are still the source's.
        lines: what stays behind, and how to finish it first; for people.
    """

    metadata: MetadataJson
    lines: tuple[str, ...]


def leave_behind(source: MetadataJson, table: str) -> MovedVersion:
    """Return what of a source's version moves.

    Args:
        table: the source's name, for the lines.
    """
    left = {name for name in source.refs if name.startswith((_OWN_REFS, TAG_PREFIX))}
    kept = without_snapshots(source, _reached_only_by(source, left))
    document = dict(kept.document)
    document["refs"] = {
        name: ref for name, ref in (document.get("refs") or {}).items() if name not in left
    }
    document["properties"] = {
        key: value
        for key, value in source.properties.items()
        if not key.startswith(_LEFT_PROPERTIES)
    }
    # Of snapshots that were expired: their files may be deleted.
    for key in document.keys() & STATISTICS:
        document[key] = [
            file for file in document[key] or () if file["snapshot-id"] in kept.snapshots
        ]
    _lower_sequence_number(document)
    moved = without_index(MetadataJson(source.metadata_location, document))
    has_index = ROOT_PROPERTY in source.properties or (
        moved.document.get("statistics") != document.get("statistics")
    )
    lines = _lines(table, left, source.properties, has_index=has_index)
    return MovedVersion(with_record(moved), tuple(lines))


def without_index(table: MetadataJson) -> MetadataJson:
    """Return a version without Neve's index, whose files name data files by their paths."""
    changes: dict[str, Any] = {}
    if "statistics" in table.document:
        changes["statistics"] = [
            file for file in table.document["statistics"] if not _is_index(table, file)
        ]
    if ROOT_PROPERTY in table.properties:
        changes["properties"] = {
            key: value for key, value in table.properties.items() if key != ROOT_PROPERTY
        }
    return MetadataJson(table.metadata_location, {**table.document, **changes})


def _reached_only_by(source: MetadataJson, left: Iterable[str]) -> set[int]:
    """Return the snapshots that only refs that stay behind keep, and that never were current."""
    names = set(left)
    kept = {entry["snapshot-id"] for entry in source.document.get("snapshot-log") or ()}
    for name, snapshot_id in source.refs.items():
        if name not in names:
            kept |= _history(source, snapshot_id, kept)
    reached: set[int] = set()
    for name in names:
        reached |= _history(source, source.refs[name], kept)
    return reached


def _history(metadata: MetadataJson, head: int, known: set[int]) -> set[int]:
    """Return a snapshot and its ancestors, as far back as they are not known."""
    history: set[int] = set()
    snapshot = metadata.snapshots.get(head)
    while snapshot is not None and snapshot["snapshot-id"] not in known:
        if snapshot["snapshot-id"] in history:
            break
        history.add(snapshot["snapshot-id"])
        snapshot = metadata.snapshots.get(snapshot.get("parent-snapshot-id") or -1)
    return history


def _is_index(source: MetadataJson, statistics: Mapping[str, Any]) -> bool:
    location = index_location(source.location, source.uuid)
    return below(location, statistics["statistics-path"]) is not None


def _lower_sequence_number(document: dict[str, Any]) -> None:
    """Have the newest snapshot that moves decide: one that was left behind may still follow.

    A REST catalog adds no snapshot whose number is not above the last one.
    """
    if document.get("last-sequence-number"):
        document["last-sequence-number"] = max(
            (each.get("sequence-number") or 0 for each in document.get("snapshots") or ()),
            default=0,
        )


def _lines(
    table: str, left: set[str], properties: Mapping[str, str], *, has_index: bool
) -> Iterable[str]:
    batches = [name for name in left if name.startswith((STAGED_PREFIX, HELD_PREFIX))]
    followers = [name for name in left if name.startswith(TAG_PREFIX)]
    branches = sorted(left - {*batches, *followers})
    marks = [key for key in properties if key.startswith((MARK_PREFIX, REJECTED_PREFIX))]
    if batches:
        yield (
            f"staged or held batches stay behind ({len(batches)}); finish them first: "
            f"neve staged list {table}, then neve staged publish or discard"
        )
    if branches:
        yield (
            f"{', '.join(branches)} stay behind: a merge or a follower was writing them; "
            "let it finish first"
        )
    if followers:
        names = ", ".join(sorted(name.removeprefix(TAG_PREFIX) for name in followers))
        yield (
            f"the followers {names} stay behind; let them read to the end first "
            f"(neve follow list), then begin anew at the target"
        )
    if marks:
        yield (
            f"consumption marks stay behind ({len(marks)}); if something is still buffered "
            "(neve buffer status), consolidate it first: neve consolidate --once"
        )
    if has_index:
        yield (
            "the index stays behind; the next merge at the target builds it again, or: "
            f"neve index build {table}"
        )
