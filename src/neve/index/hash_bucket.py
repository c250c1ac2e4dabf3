"""A bucket of a shard: sorted entries in blocks, which can be searched without decoding them.

All columns of a block lie together, so that a block is one range of the file: in an object store
one request reads it, of a mapped file only its pages are touched. Each block has a checksum,
checked before the block is first relied on; whoever has a block that is not there yet, or damaged,
may be given it again.

    bucket = block 0 │ block 1 │ … │ sequences of block 0 │ sequences of block 1 │ …
    block  = 1,024 first hashes │ second hashes │ files │ positions │ sequences

Blocks are of one length; the last is filled up. Sequences that are no integers are of any length:
they lie behind all blocks, compressed block by block.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from neve.errors import CorruptionError
from neve.index.entries import Entries, Integers, Sequences, find_rows
from neve.index.splitmix import Hashes

BLOCK_ROWS = 1024
FIRST, SECOND, FILE, POSITION, SEQUENCE = "first", "second", "file", "position", "sequence"

Fetch: TypeAlias = Callable[[Sequence[tuple[int, int]]], None]
"""Brings these ranges of a bucket, offset and length, to where its view reads them."""

_NARROW_FILE = np.dtype("<u2")
# The marks of entries without a file are the three highest ordinals of two bytes.
_MOST_NARROW_FILES = (1 << 16) - 3
_NARROW_POSITIONS = 1 << 31
_LAST_HASH = np.uint64((1 << 64) - 1)
_LENGTH = np.dtype("<u4")


@dataclass(frozen=True)
class BucketLayout:
    """Where the blocks of a bucket are, of what their columns are, and their checksums."""

    rows: int
    has_second_hash: bool
    file_bytes: int
    position_bytes: int
    fences: Hashes
    """The first hash of each block."""
    checksums: npt.NDArray[np.uint32]
    ends: Integers | None
    """Where the sequences of each block end; None: they are integers, in the block itself."""

    @cached_property
    def block_type(self) -> np.dtype[Any]:
        return _block_type(
            has_second_hash=self.has_second_hash,
            file_bytes=self.file_bytes,
            position_bytes=self.position_bytes,
            has_sequence=self.ends is None,
        )

    @property
    def blocks(self) -> int:
        return -(-self.rows // BLOCK_ROWS)

    def ranges(self, blocks: Integers) -> list[tuple[int, int]]:
        """Return the ranges of blocks, offset and length, counted from the bucket's start."""
        length = self.block_type.itemsize
        ranges = [(block * length, length) for block in blocks.tolist()]
        return ranges + [
            self.sequence_range(block) for block in blocks.tolist() if self.is_variable
        ]

    def sequence_range(self, block: int) -> tuple[int, int]:
        """Return the range of a block's sequences, where they are not in the block."""
        if self.ends is None:
            return 0, 0
        start = self.blocks * self.block_type.itemsize if block == 0 else int(self.ends[block - 1])
        return start, int(self.ends[block]) - start

    @property
    def is_variable(self) -> bool:
        """Whether sequences are of any length, and have to be decoded."""
        return self.ends is not None


def _block_type(
    *, has_second_hash: bool, file_bytes: int, position_bytes: int, has_sequence: bool
) -> np.dtype[Any]:
    columns = [(FIRST, "<u8")]
    columns += [(SECOND, "<u8")] if has_second_hash else []
    columns += [(FILE, "<u2" if file_bytes == 2 else "<i4"), (POSITION, f"<i{position_bytes}")]
    columns += [(SEQUENCE, "<i8")] if has_sequence else []
    return np.dtype([(name, kind, (BLOCK_ROWS,)) for name, kind in columns])


def encode_bucket(entries: Entries) -> tuple[bytes, BucketLayout]:
    """Write sorted entries, at least one and each key once, as a bucket."""
    is_integer = bool(pa.types.is_integer(entries.sequence.type))
    kind = _block_type(
        has_second_hash=entries.second is not None,
        file_bytes=2 if entries.file.max() < _MOST_NARROW_FILES else 4,
        position_bytes=4 if entries.position.max() < _NARROW_POSITIONS else 8,
        has_sequence=is_integer,
    )
    count, whole = -(-len(entries) // BLOCK_ROWS), len(entries) // BLOCK_ROWS
    blocks = np.zeros(count, kind)
    # Behind the last entry, hashes stay in order.
    blocks[FIRST][whole:] = _LAST_HASH
    columns: dict[str, Any] = {FIRST: entries.first, FILE: entries.file}
    columns |= {SECOND: entries.second, POSITION: entries.position, SEQUENCE: entries.sequence}
    for name in kind.names or ():
        values = np.asarray(columns[name]).astype(kind[name].base, copy=False)
        blocks[name][:whole] = values[: whole * BLOCK_ROWS].reshape(whole, BLOCK_ROWS)
        blocks[name][whole:, : len(values) % BLOCK_ROWS] = values[whole * BLOCK_ROWS :]
    payload, ends = blocks.tobytes(), None
    if not is_integer:
        parts = [_encode_sequences(entries.sequence, block) for block in range(count)]
        ends = len(payload) + np.cumsum([len(part) for part in parts], dtype=np.int64)
        payload += b"".join(parts)
    layout = BucketLayout(
        len(entries),
        entries.second is not None,
        kind[FILE].base.itemsize,
        kind[POSITION].base.itemsize,
        np.ascontiguousarray(entries.first[::BLOCK_ROWS]),
        np.empty(0, np.uint32),
        ends,
    )
    view = BucketView(payload, layout, "")
    checksums = np.array([view.checksum(block) for block in range(count)], np.uint32)
    return payload, replace(layout, checksums=checksums)


class BucketView:
    """A bucket's bytes, searched and read in place.

    Every method raises CorruptionError, naming the shard, where bytes are not what was written,
    also after `fetch` has brought them anew.
    """

    def __init__(self, payload: Any, layout: BucketLayout, name: str) -> None:
        self.layout = layout
        self.rows = layout.rows
        self.blocks = layout.blocks
        self._name = name
        self.fetch: Fetch | None = None
        self._payload = memoryview(payload)
        self._values = np.frombuffer(self._payload, layout.block_type, layout.blocks)
        self._checked = np.zeros(self.blocks, np.bool_)
        self._sequences_of: dict[int, Sequences] = {}

    def search(self, first: Hashes, second: Hashes | None) -> Integers:
        """Return the row of each key, -1 where there is none."""
        touched = self.touched(first)
        self._check(touched)
        is_wide = second is not None and self.layout.has_second_hash
        seconds = self._values[SECOND][touched].ravel() if is_wide else None
        at = find_rows(self._values[FIRST][touched].ravel(), seconds, first, second)
        rows = touched[at // BLOCK_ROWS] * BLOCK_ROWS + at % BLOCK_ROWS
        return np.where((at >= 0) & (rows < self.rows), rows, -1)

    def touched(self, first: Hashes) -> Integers:
        """Return the blocks that may hold these hashes; equal hashes may lie in two blocks."""
        fences = self.layout.fences
        low = np.maximum(np.searchsorted(fences, first, side="left") - 1, 0)
        high = np.maximum(np.searchsorted(fences, first, side="right") - 1, 0)
        marks = np.zeros(self.blocks + 1, np.int64)
        np.add.at(marks, low, 1)
        np.add.at(marks, high + 1, -1)
        return np.flatnonzero(np.cumsum(marks[:-1]))

    def missing(self, blocks: Integers) -> Integers:
        """Return those of these blocks that are not there, or damaged; remember the others."""
        pending = blocks[~self._checked[blocks]]
        # A hole in a sparse file is zeros, which a look at the first hash shows at once.
        is_there = self._values[FIRST][pending, 0] == self.layout.fences[pending]
        candidates = pending[is_there].tolist()
        good = [block for block in candidates if self._is_good(block)]
        self._checked[good] = True
        return pending[~self._checked[pending]]

    def read_all(self) -> Entries:
        """Return all entries."""
        self._check(np.arange(self.blocks))
        rows = self.rows
        parts = [self._decoded(block) for block in range(self.blocks) if self.layout.is_variable]
        return self._as_entries(
            lambda name: self._values[name].reshape(-1)[:rows],
            pa.concat_arrays(parts) if parts else None,
        )

    def checksum(self, block: int) -> int:
        """Return the CRC-32 of a block, and of its sequences where they are not in it."""
        length = self.layout.block_type.itemsize
        total = zlib.crc32(self._payload[block * length : (block + 1) * length])
        if not self.layout.is_variable:
            return total
        start, size = self.layout.sequence_range(block)
        return zlib.crc32(self._payload[start : start + size], total)

    def _is_good(self, block: int) -> bool:
        return bool(self.checksum(block) == self.layout.checksums[block])

    def _check(self, blocks: Integers) -> None:
        missing = self.missing(blocks)
        if len(missing) and self.fetch is not None:
            self.fetch(self.layout.ranges(missing))
            missing = self.missing(missing)
        if len(missing):
            raise CorruptionError(
                f"index shard {self._name} is corrupt: block {missing[0]} of a bucket does not "
                "have its checksum",
                hint="the index is rebuilt from the table",
            )

    def read(self, rows: Integers) -> Entries:
        """Return the entries of rows that `search` has returned, or that are checked."""
        at = rows // BLOCK_ROWS, rows % BLOCK_ROWS
        sequences = self._sequences(*at) if self.layout.is_variable else None
        return self._as_entries(lambda name: self._values[name][at], sequences)

    def _as_entries(
        self, column: Callable[[str], npt.NDArray[Any]], sequences: Sequences | None
    ) -> Entries:
        file = column(FILE)
        if file.dtype == _NARROW_FILE:
            # 65535, 65534 and 65533 are -1, -2 and -3.
            wide = file.astype(np.int32)
            file = np.where(wide >= _MOST_NARROW_FILES, wide - (1 << 16), wide)
        return Entries(
            column(FIRST).astype(np.uint64),
            column(SECOND).astype(np.uint64) if self.layout.has_second_hash else None,
            file.astype(np.int32),
            column(POSITION).astype(np.int64),
            pa.array(column(SEQUENCE).astype(np.int64)) if sequences is None else sequences,
        )

    def _sequences(self, blocks: Integers, places: Integers) -> Sequences:
        wanted, numbers = np.unique(blocks, return_inverse=True)
        parts = [self._decoded(block) for block in wanted.tolist()]
        if not parts:
            return pa.array([], pa.large_binary())
        starts = np.cumsum([0, *(len(part) for part in parts)])[:-1]
        return pa.concat_arrays(parts).take(pa.array(starts[numbers] + places))

    def _decoded(self, block: int) -> Sequences:
        if block not in self._sequences_of:
            start, size = self.layout.sequence_range(block)
            rows = min(BLOCK_ROWS, self.rows - block * BLOCK_ROWS)
            self._sequences_of[block] = _decode_sequences(self._payload[start : start + size], rows)
        return self._sequences_of[block]


def _encode_sequences(sequences: Sequences, block: int) -> bytes:
    """Compress a block's sequences: their lengths, then their bytes."""
    part = sequences.slice(block * BLOCK_ROWS, BLOCK_ROWS)
    _, offset_buffer, data = part.buffers()
    offsets = np.frombuffer(offset_buffer, np.int64)[part.offset : part.offset + len(part) + 1]
    values = memoryview(data or b"")[offsets[0] : offsets[-1]]
    raw = np.diff(offsets).astype(_LENGTH).tobytes() + bytes(values)
    packed: bytes = pa.compress(raw, codec="zstd", asbytes=True)
    return np.array(len(raw), _LENGTH).tobytes() + packed


def _decode_sequences(packed: Any, rows: int) -> Sequences:
    size = int(np.frombuffer(packed, _LENGTH, 1)[0])
    raw = pa.decompress(packed[_LENGTH.itemsize :], size, codec="zstd")
    lengths = np.frombuffer(raw, _LENGTH, rows)
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
    values = raw.slice(rows * _LENGTH.itemsize)
    return pa.Array.from_buffers(pa.large_binary(), rows, [None, pa.py_buffer(offsets), values])
