"""Every file that a table needs, in little memory: 8 bytes for each of a million files.

Kept as hashes of 64 bits. Two files with the same hash are taken for one, so that one which nobody
needs may be taken for needed, once in a long while; never the other way round. For the same reason
the store does not count, only the path in it: `hdfs://host:8020/t/x` and `hdfs:///t/x` are one.
Symbolic links of local directories are followed.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from neve.errors import UnsupportedError
from neve.lake.manifests import ManifestReader, ReadFile
from neve.lake.metadata_json import MetadataJson
from neve.lake.resolved_places import ResolvedPlaces
from neve.lake.unreachable import live_files_of, statistics_files

if TYPE_CHECKING:
    import numpy.typing as npt

_VERSION_HINT = "version-hint.text"


class ReachableFiles:
    """The files of all snapshots of a table, and what its metadata names; grows with the table."""

    def __init__(self, read: ReadFile) -> None:
        self._read = read
        self._places = ResolvedPlaces()
        self._sorted: npt.NDArray[np.uint64] = np.empty(0, np.uint64)
        # Not sorted yet: they are when somebody asks.
        self._added = array("Q")
        self._snapshots: set[int] = set()
        self._manifests: set[int] = set()

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
        for number, snapshot in metadata.snapshots.items():
            if number in self._snapshots:
                continue
            if not snapshot.get("manifest-list"):
                raise UnsupportedError(f"snapshot {number} has no manifest list")
            self._add_snapshot(snapshot["manifest-list"])
            self._snapshots.add(number)

    def _add_snapshot(self, manifest_list: str) -> None:
        self.add([manifest_list])
        # Not from the reader's cache: that keeps what it has read.
        for manifest in ManifestReader(self._read).read_list(manifest_list):
            number = self._hash(manifest.path)
            if number in self._manifests:
                continue
            self._manifests.add(number)
            self.add([manifest.path])
            self.add(file.path for file in live_files_of(self._read, manifest))

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
