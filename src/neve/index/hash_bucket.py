"""A bucket of a shard: a Parquet file that can be searched without decoding it.

Fixed-width columns are stored plain, uncompressed, in one page each. So any Parquet reader reads a
bucket, and this one takes the values straight from the bytes: nothing is decoded, and of a file
that is mapped into memory only the blocks that are asked for are touched. Each block of rows has a
checksum over all of its columns, checked before the block is first relied on.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from neve.errors import CorruptionError
from neve.index.entries import Entries, Integers, Sequences, find_rows
from neve.index.splitmix import Hashes

BLOCK_ROWS = 1024
FIRST, SECOND, FILE, POSITION, SEQUENCE = "first", "second", "file", "position", "sequence"

_HASH = np.dtype("<u8")
_NARROW_FILE = np.dtype("<u2")
# The marks of entries without a file are the three highest ordinals of two bytes.
_MOST_NARROW_FILES = (1 << 16) - 3
_NARROW_POSITIONS = 1 << 31


@dataclass(frozen=True)
class Span:
    """Bytes of a column's values, counted from the start of the bucket."""

    offset: int
    length: int


@dataclass(frozen=True)
class BucketLayout:
    """Where the columns of a bucket are, and the checksums of its blocks."""

    rows: int
    spans: dict[str, Span]
    fences: Hashes
    """The first hash of each block."""
    checksums: npt.NDArray[np.uint32]
    """One for each block, and a last one for sequences that are not of a fixed width."""

    @property
    def is_variable(self) -> bool:
        """Whether sequences are not of a fixed width, and have to be decoded."""
        return SEQUENCE not in self.spans


def encode_bucket(entries: Entries) -> tuple[bytes, BucketLayout]:
    """Write sorted entries, at least one and each key once, as a bucket."""
    table = _as_table(entries)
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        compression={SEQUENCE: "zstd"} if _is_variable(table) else "none",
        use_dictionary=False,
        write_statistics=False,
        store_schema=False,
        row_group_size=len(table),
        max_rows_per_page=len(table),
        data_page_size=1 << 30,
    )
    payload = sink.getvalue().to_pybytes()
    spans = _spans(payload, table)
    view = BucketView(
        payload, BucketLayout(len(table), spans, np.empty(0, _HASH), np.empty(0, np.uint32)), ""
    )
    checksums = [view.checksum(block) for block in range(view.blocks)]
    if view.layout.is_variable:
        checksums.append(view.variable_checksum())
    fences = np.ascontiguousarray(entries.first[::BLOCK_ROWS])
    return payload, BucketLayout(len(table), spans, fences, np.array(checksums, np.uint32))


class BucketView:
    """A bucket's bytes, searched and read in place.

    Every method raises CorruptionError, naming the shard, where bytes are not what was written.
    """

    def __init__(self, payload: Any, layout: BucketLayout, name: str) -> None:
        self.layout = layout
        self.rows = layout.rows
        self.blocks = -(-layout.rows // BLOCK_ROWS)
        self._name = name
        self._payload = memoryview(payload)
        self._columns = {key: self._values(key, span) for key, span in layout.spans.items()}
        self._checked = np.zeros(self.blocks, np.bool_)
        self._variable: Sequences | None = None

    def search(self, first: Hashes, second: Hashes | None) -> Integers:
        """Return the row of each key, -1 where there is none."""
        touched = self._touched(first)
        self._check(touched)
        is_wide = second is not None and SECOND in self._columns
        seconds = self._gather(SECOND, touched) if is_wide else None
        at = find_rows(self._gather(FIRST, touched), seconds, first, second)
        rows = touched[at // BLOCK_ROWS] * BLOCK_ROWS + at % BLOCK_ROWS
        return np.where(at >= 0, rows, -1)

    def read_all(self) -> Entries:
        """Return all entries."""
        self._check(np.arange(self.blocks))
        return self.read(slice(None))

    def checksum(self, block: int) -> int:
        """Return the CRC-32 of a block's values, column after column."""
        rows = slice(block * BLOCK_ROWS, min((block + 1) * BLOCK_ROWS, self.rows))
        total = 0
        for name, span in self.layout.spans.items():
            width = self._columns[name].dtype.itemsize
            start = span.offset + rows.start * width
            total = zlib.crc32(self._payload[start : span.offset + rows.stop * width], total)
        return total

    def variable_checksum(self) -> int:
        """Return the CRC-32 of what follows the plain columns: sequences and Parquet's footer."""
        plain_end = max(span.offset + span.length for span in self.layout.spans.values())
        return zlib.crc32(self._payload[plain_end:])

    def _values(self, name: str, span: Span) -> npt.NDArray[Any]:
        kinds: dict[int, npt.DTypeLike] = {2: _NARROW_FILE, 4: "<i4", 8: "<i8"}
        kind = _HASH if name in (FIRST, SECOND) else np.dtype(kinds[span.length // self.rows])
        return np.frombuffer(self._payload[span.offset : span.offset + span.length], kind)

    def _touched(self, first: Hashes) -> Integers:
        """Return the blocks that may hold these hashes; equal hashes may lie in two blocks."""
        fences = self.layout.fences
        low = np.maximum(np.searchsorted(fences, first, side="left") - 1, 0)
        high = np.maximum(np.searchsorted(fences, first, side="right") - 1, 0)
        marks = np.zeros(self.blocks + 1, np.int64)
        np.add.at(marks, low, 1)
        np.add.at(marks, high + 1, -1)
        return np.flatnonzero(np.cumsum(marks[:-1]))

    def _check(self, blocks: Integers) -> None:
        for block in blocks[~self._checked[blocks]].tolist():
            if self.checksum(block) != self.layout.checksums[block]:
                raise CorruptionError(
                    f"index shard {self._name} is corrupt: block {block} of a bucket does not "
                    "have its checksum",
                    hint="the index is rebuilt from the table",
                )
        self._checked[blocks] = True

    def _gather(self, name: str, blocks: Integers) -> Hashes:
        """Copy a column's blocks next to each other."""
        column = self._columns[name]
        whole = self.rows // BLOCK_ROWS
        if len(blocks) == self.blocks:
            return np.array(column)
        cut = column[: whole * BLOCK_ROWS].reshape(whole, BLOCK_ROWS)
        gathered = cut[blocks[blocks < whole]].ravel()
        if blocks[-1] < whole:
            return gathered
        return np.concatenate([gathered, column[whole * BLOCK_ROWS :]])

    def read(self, rows: Any) -> Entries:
        """Return the entries of rows that `search` has returned, or of a slice that is checked."""
        columns = self._columns
        file = columns[FILE][rows]
        if file.dtype == _NARROW_FILE:
            # 65535, 65534 and 65533 are -1, -2 and -3.
            wide = file.astype(np.int32)
            file = np.where(wide >= _MOST_NARROW_FILES, wide - (1 << 16), wide)
        return Entries(
            np.array(columns[FIRST][rows], np.uint64),
            np.array(columns[SECOND][rows], np.uint64) if SECOND in columns else None,
            np.array(file, np.int32),
            columns[POSITION][rows].astype(np.int64),
            self._sequences(rows),
        )

    def _sequences(self, rows: Any) -> Sequences:
        if not self.layout.is_variable:
            return pa.array(np.array(self._columns[SEQUENCE][rows], np.int64))
        if self._variable is None:
            self._variable = self._decode_variable()
        return self._variable if isinstance(rows, slice) else self._variable.take(pa.array(rows))

    def _decode_variable(self) -> Sequences:
        if self.variable_checksum() != self.layout.checksums[-1]:
            raise CorruptionError(
                f"index shard {self._name} is corrupt: a column of sequences does not have its "
                "checksum",
                hint="the index is rebuilt from the table",
            )
        table = pq.read_table(pa.BufferReader(self._payload), columns=[SEQUENCE])
        return table.column(0).combine_chunks().cast(pa.large_binary())


def _is_variable(table: pa.Table) -> bool:
    return not pa.types.is_integer(table.schema.field(SEQUENCE).type)


def _as_table(entries: Entries) -> pa.Table:
    columns: dict[str, Any] = {FIRST: entries.first}
    if entries.second is not None:
        columns[SECOND] = entries.second
    if entries.file.max() >= _MOST_NARROW_FILES:
        columns[FILE] = np.asarray(entries.file, np.int32)
    else:
        narrow = np.ascontiguousarray(entries.file.astype(_NARROW_FILE))
        columns[FILE] = pa.Array.from_buffers(
            pa.binary(2), len(narrow), [None, pa.py_buffer(narrow)]
        )
    wide = entries.position.max() >= _NARROW_POSITIONS
    columns[POSITION] = entries.position.astype(np.int64 if wide else np.int32)
    columns[SEQUENCE] = entries.sequence
    table = pa.table(columns)
    # Without NULLs a page is its values and nothing else.
    return table.cast(
        pa.schema([pa.field(field.name, field.type, nullable=False) for field in table.schema])
    )


def _spans(payload: bytes, table: pa.Table) -> dict[str, Span]:
    """Return where the values of plain columns are; they end where their only page ends."""
    variable = _is_variable(table)
    metadata = pq.read_metadata(pa.BufferReader(payload))
    spans: dict[str, Span] = {}
    for number, field in enumerate(table.schema):
        if field.name == SEQUENCE and variable:
            continue
        length = len(table) * field.type.bit_width // 8
        chunk = metadata.row_group(0).column(number)
        end = chunk.data_page_offset + chunk.total_compressed_size
        spans[field.name] = Span(end - length, length)
    return spans
