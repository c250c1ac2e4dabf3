"""What identifies the requests of a stream's parts, as arrays, each part read once.

A receiver may keep hundreds of thousands of requests in the dedup window; a Python object for each
of them, at each look, would take seconds.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from neve.buffer.frame import ENTRY_BYTES, Entry, parse_entries, read_heads
from neve.errors import CorruptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neve.buffer.frame import Head
    from neve.buffer.layout import Part, StoredFile
    from neve.buffer.store import BufferStore

READS_AT_ONCE = 16
# Of entries that are kept in memory: some 900,000 requests, which take 16 bytes more for each once
# they were searched by hash.
MOST_BYTES_KEPT = 64 * 1024 * 1024
# Of an entry: when it was received, and the first bytes of its content's hash.
_FIELDS = np.dtype(
    {
        "names": ["received", "hash"],
        "formats": ["<i8", "<u8"],
        "offsets": [0, 24],
        "itemsize": ENTRY_BYTES,
    }
)


@dataclass(frozen=True)
class PartIndex:
    """The entries of a part, as they are stored, and whether the part ends its stream."""

    packed: bytes
    is_closing: bool

    @property
    def received_unix_nano(self) -> npt.NDArray[np.int64]:
        return np.frombuffer(self.packed, _FIELDS)["received"]

    @property
    def hashes(self) -> npt.NDArray[np.uint64]:
        """The first eight bytes of each content hash: other requests rarely have the same."""
        return np.frombuffer(self.packed, _FIELDS)["hash"]

    @cached_property
    def _by_hash(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.intp]]:
        """The hashes in order, and the position of each."""
        order = np.argsort(self.hashes, kind="stable")
        return self.hashes[order], order

    def positions_of(self, hashes: npt.NDArray[np.uint64]) -> list[int]:
        """Return where entries have one of some hashes, which are in order, each once."""
        ordered, positions = self._by_hash
        first, end = (np.searchsorted(ordered, hashes, side) for side in ("left", "right"))
        found: list[int] = []
        for n in np.flatnonzero(first < end).tolist():
            found += positions[first[n] : end[n]].tolist()
        return sorted(found)

    def entry(self, position: int) -> Entry:
        (entry,) = parse_entries(self.packed[position * ENTRY_BYTES :][:ENTRY_BYTES])
        return entry


class PartIndexes:
    """Reads parts of a buffer, and keeps what it read, up to a limit.

    What was read counts for the very file that a listing shows, by its path, size and time: parts
    are put whole and never change. The listing is the caller's, and no older than its question.
    """

    def __init__(self, store: BufferStore, most_bytes: int = MOST_BYTES_KEPT) -> None:
        self._store = store
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[StoredFile, PartIndex] = OrderedDict()
        self._bytes = 0

    def load(self, parts: Sequence[Part]) -> list[PartIndex]:
        """Return the entries of each part; those not known yet are read at the same time.

        Raises:
            NotFoundError: one of them is not there any more.
            CorruptionError: one of them is damaged.
        """
        with self._lock:
            known = {part.file: self._kept.get(part.file) for part in parts}
        unknown = [part for part in parts if known[part.file] is None]
        if unknown:
            with ThreadPoolExecutor(min(READS_AT_ONCE, len(unknown))) as pool:
                read = list(pool.map(self._read, unknown))
            known.update(zip((part.file for part in unknown), read, strict=True))
        loaded = {file: index for file, index in known.items() if index is not None}
        self._keep(loaded)
        return [loaded[part.file] for part in parts]

    def load_until_damage(self, part: Part) -> PartIndex:
        """Return the entries of a part, of a damaged one those before the damage.

        Raises NotFoundError: it is not there any more.
        """
        with suppress(CorruptionError):
            return self.load([part])[0]
        heads: list[Head] = []
        with self._store.open_file(part.file.path) as read, suppress(CorruptionError):
            heads.extend(read_heads(read, part.file.size))
        return PartIndex(b"".join(head.packed_entries for head in heads), is_closing=False)

    def add(self, file: StoredFile, index: PartIndex) -> None:
        """Remember what this process has just put under that path."""
        self._keep({file: index})

    def is_closing(self, part: Part) -> bool:
        """Tell whether a part ends its stream. Raises as `load` does."""
        known = self._kept.get(part.file)
        return (known or self.load([part])[0]).is_closing

    def _read(self, part: Part) -> PartIndex:
        with self._store.open_file(part.file.path) as read:
            heads = list(read_heads(read, part.file.size))
        return PartIndex(
            b"".join(head.packed_entries for head in heads), any(head.closing for head in heads)
        )

    def _keep(self, loaded: dict[StoredFile, PartIndex]) -> None:
        with self._lock:
            for file, index in loaded.items():
                if file not in self._kept:
                    self._bytes += len(index.packed)
                self._kept[file] = index
                self._kept.move_to_end(file)
            while self._bytes > self._most_bytes:
                _, oldest = self._kept.popitem(last=False)
                self._bytes -= len(oldest.packed)
