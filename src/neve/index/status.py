"""The status of a mirror's index, read from the metadata and the root, without a JVM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from neve.errors import CorruptionError, NeveError
from neve.index.current_root import find_root
from neve.index.files import opened
from neve.index.indexed_table import Mirror, observe
from neve.index.root import Root
from neve.lake.live_files import changed_files

if TYPE_CHECKING:
    from neve.lake import Lake
    from neve.lake.identifier import Identifier

FRESH, STALE, CORRUPT, MISSING = "fresh", "stale", "corrupt", "missing"


@dataclass(frozen=True)
class IndexStatus:
    """The status of an index."""

    table: str
    state: str
    why: str
    snapshot_id: int | None = None
    """The snapshot that is indexed."""
    main_id: int | None = None
    snapshots_behind: int = 0
    files_changed: int | None = 0
    """Data files that a refresh has to read; None: all of them."""
    entries: int = 0
    """Entries that newer ones hide are counted, too."""
    bytes: int = 0
    bytes_per_entry: float | None = None
    shards: int = 0
    deltas: int = 0
    """Generations that are not yet merged into the base; a lookup asks each."""
    files: int = 0
    tombstones_snapshot_id: int | None = None


def status(lake: Lake, identifier: Identifier) -> IndexStatus:
    """Return the status of a mirror's index. Reads no entries.

    Raises:
        NotFoundError: there is no such table.
        UsageError: it is no mirror.
    """
    mirror = observe(lake, identifier)
    root, why = find_root(mirror)
    if root is None:
        return IndexStatus(mirror.name, MISSING, why, None, mirror.main_id, files_changed=None)
    behind = mirror.ancestors.index(root.snapshot_id)
    state, changed = (STALE, _files_changed(mirror, root)) if behind else (FRESH, 0)
    if damage := missing_shard(mirror, root):
        state, why, changed = CORRUPT, damage, None
    return IndexStatus(
        mirror.name,
        state,
        why,
        root.snapshot_id,
        mirror.main_id,
        behind,
        changed,
        root.rows,
        root.size,
        round(root.size / root.rows, 2) if root.rows else None,
        len(root.shards),
        max(0, len(root.generations()) - 1),
        len(root.files) - len(root.removed_files),
        root.tombstones_snapshot_id,
    )


def missing_shard(mirror: Mirror, root: Root) -> str | None:
    """Say which shard is missing or has another size; None: no shard is."""
    for shard in root.shards:
        try:
            with opened(mirror.table.io, shard.path) as (_, size):
                if size != shard.size:
                    return f"index shard {shard.path} has {size} bytes instead of {shard.size}"
        except CorruptionError as error:
            return error.message
    return None


def _files_changed(mirror: Mirror, root: Root) -> int | None:
    try:
        changes = changed_files(mirror.table, root.snapshot_id, mirror.main_id)
    except (NeveError, OSError):
        return None
    return len(changes.added) + len(changes.removed) + len(changes.vectors)
