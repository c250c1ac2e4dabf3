"""Which snapshots of a table something outside of its own refs needs, and what that is.

Merges need the mirror's newest checkpoint, the index's snapshot, what a mirror names of its side
tables, and what of a changelog is not merged yet. Recovery of direct writes needs all snapshots
since the write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from neve.errors import NotFoundError
from neve.lake.horizons import SIDE_OF, snapshots_to_keep
from neve.upkeep.table_kind import TableKind

if TYPE_CHECKING:
    from neve.lake import Lake
    from neve.lake.identifier import Identifier
    from neve.lake.metadata_json import MetadataJson
    from neve.lake.unconfirmed import UnconfirmedWrite


def needed_snapshots(
    lake: Lake,
    identifier: Identifier,
    kind: TableKind,
    metadata: MetadataJson,
    unconfirmed: Iterable[UnconfirmedWrite] = (),
    since_ms: int = 0,
) -> Mapping[int, str]:
    """Return snapshots that must stay, and why; reads other tables where a merge needs them.

    Args:
        since_ms: older snapshots are not kept for direct writes: some are never decided on.

    Raises:
        NeveError: a table that says what is needed cannot be read, so nothing may be expired.
    """
    needed: dict[int, str] = {}
    for number in _merge_needs(lake, identifier, kind, metadata):
        needed[number] = "a merge or the index needs it"
    for write in unconfirmed:
        if write.table == identifier and write.table_uuid == metadata.uuid:
            for number, snapshot in metadata.snapshots.items():
                is_later = (snapshot.get("sequence-number") or 0) > write.base_sequence_number
                if is_later and snapshot["timestamp-ms"] >= since_ms:
                    needed[number] = "neve recover has yet to look for a direct write"
    return needed


def _merge_needs(
    lake: Lake, identifier: Identifier, kind: TableKind, metadata: MetadataJson
) -> frozenset[int]:
    if kind is TableKind.MIRROR:
        return snapshots_to_keep(lake.load(lake.ref(identifier)).metadata).mirror
    if kind is TableKind.SIDE:
        return _side_needs(lake, identifier, metadata)
    if kind is TableKind.CHANGELOG:
        return _changelog_needs(lake, identifier)
    return frozenset()


def _side_needs(lake: Lake, identifier: Identifier, metadata: MetadataJson) -> frozenset[int]:
    name = metadata.properties.get(SIDE_OF)
    if name is None:
        return frozenset()
    side = lake.load(lake.ref(identifier)).metadata
    try:
        mirror = lake.load(lake.ref(name)).metadata
    except NotFoundError:
        # Dropped, or lost by the catalog: once it is registered again, its commits name these.
        return frozenset(metadata.snapshots)
    needs = snapshots_to_keep(mirror, tombstones=side, rejected=side)
    return needs.tombstones | needs.rejected


def _changelog_needs(lake: Lake, identifier: Identifier) -> frozenset[int]:
    changelog = lake.load(lake.ref(identifier)).metadata
    needed: set[int] = set()
    for table in lake.settings.merge.tables:
        namespace = lake.profile.namespace(table.namespace)
        if (*namespace, table.changelog_table) != identifier:
            continue
        try:
            mirror = lake.load(lake.ref((*namespace, table.mirror_table))).metadata
        except NotFoundError:
            # Nothing is merged yet.
            needed.update(each.snapshot_id for each in changelog.snapshots)
            continue
        needed |= snapshots_to_keep(mirror, changelog=changelog).changelog
    return frozenset(needed)
