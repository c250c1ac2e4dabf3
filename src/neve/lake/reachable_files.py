"""Every file that a table needs, in little memory: 8 bytes for each of a million files.

Kept as hashes of 64 bits. Two files with the same hash are taken for one, so that one which nobody
needs may be taken for needed, once in a long while; never the other way round. For the same reason
the store does not count, only the path in it: `hdfs://host:8020/t/x` and `hdfs:///t/x` are one.
Symbolic links of local directories are followed.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
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
    """The files of all snapshots of a table, and what its metadata names; grows with the table.

    Args:
        is_wanted: which places are kept, as `ResolvedPlaces` writes them; None: all of them.
    """

    def __init__(self, is_wanted: Callable[[str], bool] | None = None) -> None:
        self._is_wanted = is_wanted
        self._places = ResolvedPlaces()
        self._sorted: npt.NDArray[np.uint64] = np.empty(0, np.uint64)
        # Not sorted yet: they are when somebody asks.
        self._added = array("Q")
        self._snapshots: set[int] = set()
        # Digests of 128 bits: of a manifest that is taken for another one, files would be missing.
        self._manifests: set[bytes] = set()
        # Not the memory of all readers: a search would push out what they need.
        self._lists = shared_lists(_LINES_KEPT)
        self._blocks: WeakSet[ManifestBlock] = WeakSet()

    @property
    def is_empty(self) -> bool:
        return not (len(self._sorted) or self._added)

    def __contains__(self, path: str) -> bool:
        self._sort()
        number = _number(self._places.file(path))
        place = int(np.searchsorted(self._sorted, np.uint64(number)))
        return place < len(self._sorted) and int(self._sorted[place]) == number

    def add(self, paths: Iterable[str]) -> None:
        """Add files that something else needs."""
        for path in paths:
            place = self._places.file(path)
            if self._is_wanted is None or self._is_wanted(place):
                self._added.append(_number(place))

    def add_table(self, metadata: MetadataJson, read: ReadFile) -> None:
        """Add what a table needs; of one that was added before, only what is new is read.

        Args:
            read: reads the table's files; it is not kept.

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
            self._add_lists(list(some.values()), read)
            self._snapshots.update(some)
        # What comes later shares few lines with these, and there may be very many tables.
        self._lists.clear()

    def _add_lists(self, paths: Sequence[str], read: ReadFile) -> None:
        lists = in_parallel(lambda path: self._lists.get(path, read), paths)
        # Most snapshots share most blocks, and blocks that differ most manifests.
        blocks = {block for of_list in lists for block in of_list if block not in self._blocks}
        lines = [each for block in blocks for each in block.lines]
        named = {_digest(self._places.file(each.path)): each for each in lines}
        new = [each for digest, each in named.items() if digest not in self._manifests]
        self.add([*paths, *(each.path for each in new)])
        self.add(file.path for file in live_files_of_all(read, new))
        # Only now: what could not be read is not taken for added when it is tried again.
        self._manifests.update(named)
        for block in blocks:
            self._blocks.add(block)

    def _sort(self) -> None:
        if self._added:
            added = np.frombuffer(self._added, np.uint64)
            # Not `np.unique`, which takes several times the memory.
            self._sorted = np.concatenate((self._sorted, added))
            del added
            self._added = array("Q")
            self._sorted.sort()


def _digest(place: str) -> bytes:
    return blake2b(_encoded(place), digest_size=16).digest()


def _number(place: str) -> int:
    inside = place.partition("://")[2].partition("/")[2]
    return int.from_bytes(blake2b(_encoded(inside), digest_size=8).digest(), "little")


def _encoded(text: str) -> bytes:
    # A directory may have a file whose name is no UTF-8.
    return text.encode(errors="surrogatepass")


def metadata_files(metadata: MetadataJson) -> Iterator[str]:
    """Yield the files that the metadata itself names, and its own."""
    yield metadata.metadata_location
    yield f"{metadata.location}/metadata/{_VERSION_HINT}"
    for entry in metadata.document.get("metadata-log") or ():
        yield str(entry["metadata-file"])
    for _, path in statistics_files(metadata):
        yield path
