"""The snapshots that a snapshot descends from, in time that grows with their number alone.

PyIceberg's `ancestors_of` searches the list of all snapshots for each parent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyiceberg.table.refs import MAIN_BRANCH

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot


def ancestors(metadata: TableMetadata, snapshot_id: int | None) -> Iterator[Snapshot]:
    """Yield a snapshot and those before it, the newest first, as far as they are not expired."""
    snapshots = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    while snapshot_id is not None and (snapshot := snapshots.get(snapshot_id)) is not None:
        yield snapshot
        snapshot_id = snapshot.parent_snapshot_id


def main_ancestors(metadata: TableMetadata) -> Iterator[Snapshot]:
    """Yield the snapshots of `main`, the newest first; none if it has none."""
    main = metadata.refs.get(MAIN_BRANCH)
    return ancestors(metadata, main.snapshot_id if main else None)
