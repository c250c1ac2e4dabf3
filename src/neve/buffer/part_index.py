"""What identifies the requests of a stream's parts, as arrays, each part read once.

A receiver may keep millions of requests in the dedup window; a Python object for each of them, at
each look, would take seconds. Of a declaration, the hashes are kept in 12 bytes a request, and the
few entries that a search finds are read from the store.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from neve.buffer.frame import (
    EMPTY_SEGMENT_BYTES,
    ENTRY_BYTES,
    Entry,
    parse_entries,
    read_heads,
)
from neve.buffer.layout import Kind
from neve.buffer.read_ahead import READS_AT_ONCE, read_ahead
from neve.errors import CorruptionError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from neve.buffer.frame import Head
    from neve.buffer.layout import Part, StoredFile
    from neve.buffer.store import BufferStore

logger = logging.getLogger(__name__)

MIB = 1024 * 1024
# Of entries that are kept whole: of a batch's requests, and of the newest declarations, which the
# next one may take over. Some 900,000 requests.
MOST_ENTRY_BYTES = 64 * MIB
# Of hashes: 22 million requests in the dedup window, which are 74,000 a second. Each batch reads
# those beyond that again, and only those.
MOST_HASH_BYTES = 256 * MIB
# What is read at the same time to be reduced to hashes.
MOST_READ_BYTES = 64 * MIB
# The entries of one read, when a search found a few of many.
BLOCK_ENTRIES = 1000
# Of a segment that is read for its entries alone, all of it counts up to here.
HEADS_BYTES = MIB
# Of an entry: when it was received, the first bytes of its content's hash, and what says where its
# payload and its sender's name are.
_FIELDS = np.dtype(
    {
        "names": ["received", "hash", "sender_name_index", "stored_bytes"],
        "formats": ["<i8", "<u8", "<u2", "<u4"],
        "offsets": [0, 24, 57, 68],
        "itemsize": ENTRY_BYTES,
    }
)

T = TypeVar("T")
Loaded = TypeVar("Loaded", "PartIndex", "PartHashes")


def _positions_of(
    hashes: npt.NDArray[np.uint64],
    ordered: npt.NDArray[np.uint64],
    positions: npt.NDArray[np.uint32],
) -> list[int]:
    first, end = (np.searchsorted(ordered, hashes, side) for side in ("left", "right"))
    found: list[int] = []
    for n in np.flatnonzero(first < end).tolist():
        found += positions[first[n] : end[n]].tolist()
    return sorted(found)


@dataclass(frozen=True)
class PartIndex:
    """The entries of a part, as they are stored, and whether the part ends its stream.

    Of a damaged part: those before the damage. Whether it ends its stream is not known then.
    """

    packed: bytes
    is_closing: bool
    is_damaged: bool = False

    @property
    def size(self) -> int:
        return len(self.packed)

    @property
    def received_unix_nano(self) -> npt.NDArray[np.int64]:
        return np.frombuffer(self.packed, _FIELDS)["received"]

    @property
    def hashes(self) -> npt.NDArray[np.uint64]:
        """The first eight bytes of each content hash: other requests rarely have the same."""
        return np.frombuffer(self.packed, _FIELDS)["hash"]

    @cached_property
    def by_hash(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint32]]:
        """The hashes in order, and the position of each."""
        order = np.argsort(self.hashes, kind="stable")
        return self.hashes[order], order.astype(np.uint32)

    def positions_of(self, hashes: npt.NDArray[np.uint64]) -> list[int]:
        """Return where entries have one of some hashes, which are in order, each once."""
        return _positions_of(hashes, *self.by_hash)

    def packed_since(self, unix_nano: int) -> bytes:
        """Return the entries received since then, as a segment without payloads has them."""
        entries = np.frombuffer(self.packed, _FIELDS)
        # Whole bytes: a selection of fields leaves out what lies between them.
        rows = np.frombuffer(self.packed, np.uint8).reshape(-1, ENTRY_BYTES)
        recent = rows[entries["received"] >= unix_nano]
        fields = recent.view(_FIELDS)
        fields["sender_name_index"] = fields["stored_bytes"] = 0
        return recent.tobytes()

    def entries(self, positions: Sequence[int]) -> list[Entry]:
        """Return the entries at some positions."""
        size = ENTRY_BYTES
        return [parse_entries(self.packed[at * size : (at + 1) * size])[0] for at in positions]


@dataclass(frozen=True)
class PartHashes:
    """The hashes of a declaration's requests. Its entries are read when they are asked for."""

    hashes: npt.NDArray[np.uint64]
    positions: npt.NDArray[np.uint32]
    state: _State
    read_entries: Callable[[Sequence[int]], list[Entry]]

    @property
    def size(self) -> int:
        return self.hashes.nbytes + self.positions.nbytes

    def positions_of(self, hashes: npt.NDArray[np.uint64]) -> list[int]:
        """Return where entries have one of some hashes, which are in order, each once."""
        return _positions_of(hashes, self.hashes, self.positions)

    def entries(self, positions: Sequence[int]) -> list[Entry]:
        """Return the entries at some positions. Raises NotFoundError: it is not there any more."""
        return self.read_entries(positions) if positions else []


@dataclass(frozen=True, slots=True)
class _State:
    """What is known of a part for as long as it is listed, whatever the number of its requests."""

    is_closing: bool
    is_damaged: bool
    last_received_unix_nano: int


def _state(index: PartIndex) -> _State:
    received = index.received_unix_nano
    last = int(received.max()) if len(received) else 0
    return _State(index.is_closing, index.is_damaged, last)


class _Kept(Generic[T]):
    """What was found out of files, up to a number of bytes.

    It counts for the very file that a listing shows, by its path, size and time: parts are put
    whole and never change. Of what this process has put, no listing has shown the time yet.
    """

    def __init__(self, most_bytes: float, *, gives_way: bool) -> None:
        self._most_bytes = most_bytes
        # Whether the eldest makes room for what is new. If all is wanted each time, and does not
        # fit, that would have all of it read each time.
        self._gives_way = gives_way
        self._bytes = 0
        self._by_path: OrderedDict[str, tuple[int, int | None, int, T]] = OrderedDict()

    def find(self, file: StoredFile) -> T | None:
        size, modified, _, value = self._by_path.get(file.path, (-1, None, 0, None))
        if size != file.size or modified not in (None, file.modified_unix_nano):
            return None
        self._by_path.move_to_end(file.path)
        return value

    def add(self, file: StoredFile, value: T, value_bytes: int, *, is_own: bool = False) -> None:
        self.remove(file.path)
        if value_bytes > self._most_bytes:
            return
        while self._gives_way and self._bytes + value_bytes > self._most_bytes:
            self.remove(next(iter(self._by_path)))
        if self._bytes + value_bytes <= self._most_bytes:
            modified = None if is_own else file.modified_unix_nano
            self._by_path[file.path] = (file.size, modified, value_bytes, value)
            self._bytes += value_bytes

    def remove(self, path: str) -> None:
        self._bytes -= self._by_path.pop(path, (0, None, 0, None))[2]

    def paths(self) -> list[str]:
        return list(self._by_path)


class PartIndexes:
    """Reads parts of a buffer, and keeps what it read, up to limits.

    The listings are the caller's, and no older than its questions. Of a damaged part, what lies
    before the damage counts; it is told of once, and not kept: somebody may put it right.
    """

    def __init__(
        self,
        store: BufferStore,
        most_entry_bytes: int = MOST_ENTRY_BYTES,
        most_hash_bytes: int = MOST_HASH_BYTES,
    ) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._entries: _Kept[PartIndex] = _Kept(most_entry_bytes, gives_way=True)
        self._hashes: _Kept[PartHashes] = _Kept(most_hash_bytes, gives_way=False)
        self._states: _Kept[_State] = _Kept(float("inf"), gives_way=False)
        self._told: set[StoredFile] = set()

    def load(self, parts: Sequence[Part]) -> list[PartIndex]:
        """Return the entries of each part; those not known yet are read at the same time.

        Raises NotFoundError: one of them is not there any more.
        """
        return self._load(parts, self._entries, lambda _, index: index)

    def hashes(self, parts: Sequence[Part]) -> list[PartHashes]:
        """Return the hashes of each of some declarations, as `load` does the entries."""
        return self._load(parts, self._hashes, self._reduced)

    def prefetch(self, parts: Iterable[Part]) -> None:
        """Read the parts that are not known yet at the same time. Raises as `load` does."""
        wanted = list(parts)
        with self._lock:
            unknown = [part for part in wanted if self._states.find(part.file) is None]
        self.hashes([part for part in unknown if part.kind is Kind.RETIRED])
        self.load([part for part in unknown if part.kind is not Kind.RETIRED])

    def add(self, file: StoredFile, index: PartIndex) -> None:
        """Remember what this process has just put under that path."""
        with self._lock:
            self._entries.add(file, index, index.size, is_own=True)
            self._states.add(file, _state(index), 0, is_own=True)

    def keep_only(self, signal: str, files: Iterable[StoredFile]) -> None:
        """Forget the parts of a signal that a listing does not show any more."""
        listed = {file.path for file in files}
        with self._lock:
            for kept in (self._entries, self._hashes, self._states):
                for path in kept.paths():
                    if path.startswith(f"{signal}/") and path not in listed:
                        kept.remove(path)
            self._told = {
                file
                for file in self._told
                if file.path in listed or not file.path.startswith(f"{signal}/")
            }

    def is_closing(self, part: Part) -> bool:
        """Tell whether a part ends its stream; of a damaged one nobody knows. Raises as `load`."""
        return self._state(part).is_closing

    def has_since(self, part: Part, since_unix_nano: int) -> bool:
        """Tell whether a part has, or may have, a request received since then. Raises as `load`."""
        state = self._state(part)
        return state.is_damaged or state.last_received_unix_nano >= since_unix_nano

    def _state(self, part: Part) -> _State:
        with self._lock:
            known = self._states.find(part.file)
        if known is None:
            is_retired = part.kind is Kind.RETIRED
            known = self.hashes([part])[0].state if is_retired else _state(self.load([part])[0])
        return known

    def _load(
        self,
        parts: Sequence[Part],
        kept: _Kept[Loaded],
        reduce: Callable[[Part, PartIndex], Loaded],
    ) -> list[Loaded]:
        """Return what is kept of each part; read the others, and keep what of them is there."""
        with self._lock:
            known = {part.file.path: kept.find(part.file) for part in parts}
            whole = {part.file.path: self._entries.find(part.file) for part in parts}

        def read(part: Part) -> Loaded:
            index = whole[part.file.path] or self._read(part)
            value = reduce(part, index)
            if not index.is_damaged:
                with self._lock:
                    kept.add(part.file, value, value.size)
                    self._states.add(part.file, _state(index), 0)
            return value

        unknown = [part for part in parts if known[part.file.path] is None]
        missing: NotFoundError | None = None
        for part, reading in read_ahead(unknown, read, read_bytes, MOST_READ_BYTES):
            try:
                known[part.file.path] = reading.result()
            except NotFoundError as error:
                missing = error
        if missing is not None:
            raise missing
        return [value for part in parts if (value := known[part.file.path]) is not None]

    def _reduced(self, part: Part, index: PartIndex) -> PartHashes:
        ordered, positions = index.by_hash
        return PartHashes(ordered, positions, _state(index), partial(self._read_entries, part))

    def _read_entries(self, part: Part, positions: Sequence[int]) -> list[Entry]:
        """Read a few entries of a declaration, which is one frame, or all of it for many."""
        blocks: list[list[int]] = []
        for position in positions:
            if not blocks or position - blocks[-1][0] >= BLOCK_ENTRIES:
                blocks.append([])
            blocks[-1].append(position)
        with self._lock:
            is_known = self._entries.find(part.file) is not None
        if is_known or len(blocks) > READS_AT_ONCE:
            return self.load([part])[0].entries(positions)

        def read(block: list[int]) -> list[Entry]:
            first, count = block[0], block[-1] - block[0] + 1
            start = EMPTY_SEGMENT_BYTES + first * ENTRY_BYTES
            packed = self._store.read(part.file.path, start, count * ENTRY_BYTES)
            return PartIndex(packed, is_closing=False).entries([at - first for at in block])

        reads = read_ahead(blocks, read, lambda _: BLOCK_ENTRIES * ENTRY_BYTES)
        return [entry for _, reading in reads for entry in reading.result()]

    def _read(self, part: Part) -> PartIndex:
        heads: list[Head] = []
        try:
            with self._store.open_file(part.file.path) as read:
                heads.extend(read_heads(read, part.file.size))
        except CorruptionError as error:
            self._tell(part, error)
            return PartIndex(_packed(heads), is_closing=False, is_damaged=True)
        return PartIndex(_packed(heads), any(head.closing for head in heads))

    def _tell(self, part: Part, error: CorruptionError) -> None:
        with self._lock:
            is_new = part.file not in self._told
            self._told.add(part.file)
        if is_new:
            # Reading a segment reports it. Else it means that a copy of a request may be stored.
            logger.warning("hashes of %s cannot be read: %s", part.file.path, error)


def _packed(heads: Sequence[Head]) -> bytes:
    return b"".join(head.packed_entries for head in heads)


def read_bytes(part: Part) -> int:
    """Return how many bytes it may take to read a part's entries."""
    return part.file.size if part.kind is Kind.RETIRED else min(part.file.size, HEADS_BYTES)
