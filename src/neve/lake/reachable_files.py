"""Every file that a table needs, in little memory: 8 bytes for each of a million files.

Kept as hashes of 64 bits. Two files with the same hash are taken for one, so that one which nobody
needs may be taken for needed, once in a long while; never the other way round. For the same reason
the store does not count, only the path in it: `hdfs://host:8020/t/x` and `hdfs:///t/x` are one.
Symbolic links of local directories are followed.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING
from weakref import WeakSet

import numpy as np

from neve.errors import UnsupportedError
from neve.lake.manifests import ManifestBlock, ReadFile, in_parallel, shared_lists
from neve.lake.metadata_json import MetadataJson
from neve.lake.resolved_places import ResolvedPlaces
from neve.lake.unreachable import live_files_of_all, statistics_files

if TYPE_CHECKING:
    import numpy.typing as npt

_VERSION_HINT = "version-hint.text"
_LISTS_AT_ONCE = 16
# Of manifest lists, some 300 bytes a line: snapshots that follow each other share most lines.
_LINES_KEPT = 50_000


class ReachableFiles:
    """The files of all snapshots of a table, and what its metadata names; grows with the table."""

    def __init__(self, read: ReadFile) -> None:
        self._read = read
        self._places = ResolvedPlaces()
        self._sorted: npt.NDArray[np.uint64] = np.empty(0, np.uint64)
        # Not sorted yet: they are when somebody asks.
        self._added = array("Q")
        self._snapshots: set[int] = set()
        # In full: of a manifest that is taken for another one, the files would be missing here.
        self._manifests: set[str] = set()
        # Not the memory of all readers: a search would push out what they need.
        self._lists = shared_lists(_LINES_KEPT)
        self._blocks: WeakSet[ManifestBlock] = WeakSet()

    def __contains__(self, path: str) -> bool:
        self._sort()
        number = self._hash(path)
        place = int(np.searchsorted(self._sorted, np.uint64(number)))
        return place < len(self._sorted) and int(self._sorted[place]) == number

    def add(self, paths: Iterable[str]) -> None:
        """Add files that something else needs."""
        self._added.extend(map(self._hash, paths))

    def add_table(self, metadata: MetadataJson) -> None:
        """Add what a table needs; of one that was added before, only what is new is read.

        Raises:
            UnsupportedError: a snapshot of format v1 names its manifests in the metadata.
            CorruptionError, NotFoundError, OSError: something cannot be read, so that nobody knows
                what is needed.
        """
        self.add(metadata_files(metadata))
        lists: dict[int, str] = {}
        for number, snapshot in metadata.snapshots.items():
            if number in self._snapshots:
                continue
            if not snapshot.get("manifest-list"):
                raise UnsupportedError(f"snapshot {number} has no manifest list")
            lists[number] = snapshot["manifest-list"]
        remaining = iter(lists.items())
        while some := dict(islice(remaining, _LISTS_AT_ONCE)):
            self._add_lists(list(some.values()))
            self._snapshots.update(some)

    def _add_lists(self, paths: Sequence[str]) -> None:
        lists = in_parallel(lambda path: self._lists.get(path, self._read), paths)
        # Most snapshots share most blocks, and blocks that differ most manifests.
        blocks = {block for of_list in lists for block in of_list if block not in self._blocks}
        named = {self._places.file(each.path): each for block in blocks for each in block.lines}
        new = [each for place, each in named.items() if place not in self._manifests]
        self.add([*paths, *(each.path for each in new)])
        self.add(file.path for file in live_files_of_all(self._read, new))
        # Only now: what could not be read is not taken for added when it is tried again.
        self._manifests.update(named)
        for block in blocks:
            self._blocks.add(block)

    def _hash(self, path: str) -> int:
        inside = self._places.file(path).partition("://")[2].partition("/")[2]
        digest = blake2b(inside.encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little")

    def _sort(self) -> None:
        if self._added:
            added = np.frombuffer(self._added, np.uint64)
            # Not `np.unique`, which takes several times the memory.
            self._sorted = np.concatenate((self._sorted, added))
            del added
            self._added = array("Q")
            self._sorted.sort()


def metadata_files(metadata: MetadataJson) -> Iterator[str]:
    """Yield the files that the metadata itself names, and its own."""
    yield metadata.metadata_location
    yield f"{metadata.location}/metadata/{_VERSION_HINT}"
    for entry in metadata.document.get("metadata-log") or ():
        yield str(entry["metadata-file"])
    for _, path in statistics_files(metadata):
        yield path
