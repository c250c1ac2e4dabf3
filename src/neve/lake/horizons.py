"""Which snapshots the merges of a mirror still need: expiry must keep them.

The names here are those that merges and the index write into properties and summaries.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neve.lake.ancestry import main_ancestors

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

# In the summary of a mirror's commit: how far it has come, and the snapshots of the side tables.
CHECKPOINT = "neve.merge.checkpoint"
TOMBSTONES = "neve.merge.tombstones-snapshot-id"
REJECTED = "neve.merge.rejected-snapshot-id"
# Its value while a side table has no snapshot.
NO_SNAPSHOT = "none"
# Properties: of a mirror, its keys and its changelog; of a side table, its mirror.
KEYS = "neve.merge.keys"
SOURCE = "neve.merge.changelog"
SIDE_OF = "neve.merge.side-of"
# Of an indexed mirror: the newest root of its index.
ROOT_PROPERTY = "neve.index.root"

MOST_COMMITS_BEHIND = 100
"""An index that is further behind `main` is not used any more; should it be, it is built anew."""


@dataclass(frozen=True)
class SnapshotsToKeep:
    """By table, the snapshots that merges need; each table's `main` is among them."""

    mirror: frozenset[int]
    tombstones: frozenset[int] = frozenset()
    rejected: frozenset[int] = frozenset()
    changelog: frozenset[int] = frozenset()


def is_mirror(metadata: TableMetadata) -> bool:
    """Tell whether a table is a mirror, made by `neve merge`."""
    return KEYS in metadata.properties and SOURCE in metadata.properties


def snapshots_to_keep(
    mirror: TableMetadata,
    *,
    tombstones: TableMetadata | None = None,
    rejected: TableMetadata | None = None,
    changelog: TableMetadata | None = None,
) -> SnapshotsToKeep:
    """Return what of a mirror, its side tables and its changelog must not be expired. Pure.

    Without these, a merge still gives the right rows, at a price: the whole changelog is merged
    again, the index is built anew, and deletes in a side table may be undone. A merge that runs
    writes side tables before the mirror names them, so nothing younger than an hour is to be
    expired either. What refs name is not listed here. Expire the mirror first: what only its
    expired snapshots name can go from the side tables then.

    - Mirror: from `main` back to the newest merge, whose summary has the checkpoint, and to the
      snapshot that the index is of. All between, since both are found by walking back.
    - Side tables: each snapshot that a retained snapshot of the mirror names, for a rollback; and
      from `main` back to those that the newest merge and the index name.
    - Changelog: from `main` back to what is merged.
    """
    ancestry = list(main_ancestors(mirror))
    newest = next((each for each in ancestry if CHECKPOINT in _summary(each)), None)
    merged = _summary(newest) if newest else {}
    root = _indexed_root(mirror, ancestry)
    needed = [newest.snapshot_id if newest else None, root.get("snapshot_id")]

    def side(table: TableMetadata | None, name: str, indexed: int | None) -> frozenset[int]:
        if table is None:
            return frozenset()
        named = {_named(_summary(snapshot), name) for snapshot in mirror.snapshots}
        present = {snapshot.snapshot_id for snapshot in table.snapshots}
        walked = _back_to(main_ancestors(table), [_named(merged, name), indexed])
        return walked | frozenset(number for number in named if number in present)

    return SnapshotsToKeep(
        _back_to(ancestry, needed),
        side(tombstones, TOMBSTONES, root.get("tombstones_snapshot_id")),
        side(rejected, REJECTED, None),
        _unmerged(changelog, merged) if changelog else frozenset(),
    )


def _unmerged(changelog: TableMetadata, merged: Mapping[str, str]) -> frozenset[int]:
    """Return a changelog's snapshots from `main` back to what its mirror has merged."""
    checkpoint = json.loads(merged.get(CHECKPOINT, "{}"))
    if checkpoint.get("table_uuid") != str(changelog.table_uuid):
        return _back_to(main_ancestors(changelog), [])
    merged_id, scanning = checkpoint.get("snapshot_id"), checkpoint.get("scanning")
    present = frozenset(snapshot.snapshot_id for snapshot in changelog.snapshots)
    kept = _back_to(main_ancestors(changelog), [merged_id, scanning])
    if merged_id is not None and merged_id not in kept:
        # It was rolled back, or expired by others: nothing is to hide which of the two.
        return present
    return kept | ({scanning} & present)


def _indexed_root(mirror: TableMetadata, ancestry: Iterable[Snapshot]) -> Mapping[str, Any]:
    """Return what the property says of the index's root, if it is of an ancestor that is near."""
    near = {each.snapshot_id for each, _ in zip(ancestry, range(MOST_COMMITS_BEHIND), strict=False)}
    try:
        root = json.loads(mirror.properties[ROOT_PROPERTY])
        return root if root["snapshot_id"] in near else {}
    except (KeyError, ValueError, TypeError):
        return {}


def _back_to(newest_first: Iterable[Snapshot], needed: Iterable[int | None]) -> frozenset[int]:
    """Return the snapshots down to the oldest needed one; the first, if none of them is there."""
    ids = [snapshot.snapshot_id for snapshot in newest_first]
    places = {number: place for place, number in enumerate(ids)}
    oldest = max((places[number] for number in needed if number in places), default=0)
    return frozenset(ids[: oldest + 1])


def _summary(snapshot: Snapshot) -> Mapping[str, str]:
    return snapshot.summary.additional_properties if snapshot.summary else {}


def _named(summary: Mapping[str, str], name: str) -> int | None:
    text = summary.get(name, NO_SNAPSHOT)
    return None if text == NO_SNAPSHOT else int(text)
