"""Whether all of `main` can be read: asked before older versions go, which could restore it.

Costs what changed: a manifest that this process has read is not read again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Collection

from neve.errors import UnsupportedError
from neve.lake.manifests import Manifest, ManifestReader, ReadFile, in_parallel
from neve.lake.metadata_json import MetadataJson
from neve.lake.unreachable import live_files_of

# Of all tables together; those of the tables that were looked at last are kept.
_MOST_PATHS_KEPT = 200_000


def require_readable_main(table: str, read: ReadFile, metadata: MetadataJson) -> None:
    """Read the manifests of `main` that this process has not read yet.

    Raises:
        UnsupportedError: the newest snapshot names no manifest list.
        CorruptionError, NotFoundError, StorageError: a file of the newest snapshot cannot be read.
    """
    snapshot_id = metadata.current_snapshot_id
    if snapshot_id is None:
        return
    manifest_list = metadata.snapshots[snapshot_id].get("manifest-list")
    if not manifest_list:
        raise UnsupportedError(
            f"{table}: its current snapshot has no manifest list",
            hint="a format of Iceberg version 1; upgrade the table",
        )
    manifests = ManifestReader(read).manifests(manifest_list)
    known = _read_before.paths(metadata.uuid)

    def read_whole(manifest: Manifest) -> None:
        deque(live_files_of(read, manifest), maxlen=0)

    in_parallel(read_whole, [each for each in manifests if each.path not in known])
    remember_readable(metadata, manifests)


def remember_readable(metadata: MetadataJson, manifests: Collection[Manifest]) -> None:
    """Tell that all manifests of `main` were read just now."""
    _read_before.keep(metadata.uuid, frozenset(manifest.path for manifest in manifests))


class _ReadBefore:
    """The manifests of `main` that were read, by table; those that left `main` are forgotten."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._by_table: OrderedDict[str, frozenset[str]] = OrderedDict()

    def paths(self, table_uuid: str) -> frozenset[str]:
        with self._lock:
            return self._by_table.get(table_uuid, frozenset())

    def keep(self, table_uuid: str, paths: frozenset[str]) -> None:
        with self._lock:
            self._by_table[table_uuid] = paths
            self._by_table.move_to_end(table_uuid)
            count = sum(map(len, self._by_table.values()))
            while count > self._most and len(self._by_table) > 1:
                count -= len(self._by_table.popitem(last=False)[1])


_read_before = _ReadBefore(_MOST_PATHS_KEPT)
