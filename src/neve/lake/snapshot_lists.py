"""The manifest lists of a table's snapshots: what they share is looked at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from neve.lake.manifests import Manifest, ManifestBlock, ManifestReader, ReadFile
from neve.lake.paths import place_of

Snapshot = Mapping[str, Any]


class SnapshotLists:
    """Manifest lists by snapshot, read at the same time, since each costs a request.

    Blocks that lists share are looked at once. They are held by the reader alone, which gives them
    up when there are many, as where each list was written anew.
    """

    def __init__(self, read: ReadFile) -> None:
        self._reader = ManifestReader(read)
        self._by_place: WeakKeyDictionary[ManifestBlock, Mapping[str, Manifest]] = (
            WeakKeyDictionary()
        )

    def prefetch(self, snapshots: Iterable[Snapshot]) -> None:
        self._reader.prefetch([each["manifest-list"] for each in snapshots])

    def of(self, snapshot: Snapshot) -> tuple[ManifestBlock, ...]:
        return self._reader.blocks(snapshot["manifest-list"])

    def blocks(self, snapshots: Iterable[Snapshot]) -> Iterator[ManifestBlock]:
        """Yield the blocks of several lists, each once."""
        seen: WeakSet[ManifestBlock] = WeakSet()
        for snapshot in snapshots:
            for block in self.of(snapshot):
                if block not in seen:
                    seen.add(block)
                    yield block

    def by_place(self, block: ManifestBlock) -> Mapping[str, Manifest]:
        known = self._by_place.get(block)
        if known is None:
            known = {place_of(manifest.path): manifest for manifest in block.lines}
            self._by_place[block] = known
        return known
