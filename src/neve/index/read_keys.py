"""Read the keys and sequences of data files, with pyarrow, some row groups at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO

from neve.errors import StorageError, UnsupportedError, UsageError
from neve.index.columns import IndexedColumns
from neve.index.entries import TOMBSTONE, Entries, Integers, make_entries
from neve.lake.vectors import DeletionVector, read_vector

BATCH_ROWS = 256 * 1024
KIND_COLUMN, DELETED_KIND = "neve_kind", "delete"
"""The column that tells deletes from TRUNCATEs among tombstones, and its value for deletes."""
AT_COLUMN = "neve_merged_at"
"""The column that says when a tombstone was written."""


class Kind(IntEnum):
    """What the rows of a part mean for the index."""

    TOMBSTONES = 1
    ROWS = 2
    REMOVED = 3
    """Rows that a new deletion vector deletes."""


@dataclass(frozen=True)
class Part:
    """Some rows of a data file: those of a share of its row groups, at certain positions."""

    kind: Kind
    ordinal: int
    path: str
    rows: int
    """An estimate."""
    share: int = 0
    shares: int = 1
    within: DeletionVector | None = None
    """If given, only these positions are read."""
    without: DeletionVector | None = None
    """If given, these positions are left out."""
    forget_before: float | None = None
    """Tombstones that were written before this time, in seconds, are left out."""


def read_part(io: FileIO, part: Part, columns: IndexedColumns) -> Iterator[Entries]:
    """Return entries of a part, a batch at a time.

    Raises:
        UnsupportedError: the file is not Parquet, lacks a column, or has NULL in a key or sequence.
        StorageError: it cannot be read.
    """
    within = None if part.within is None else _positions(io, part.within)
    without = None if part.without is None else _positions(io, part.without)
    if within is not None and without is not None:
        within, without = np.setdiff1d(within, without, assume_unique=True), None
    try:
        with io.new_input(part.path).open(seekable=True) as stream:
            yield from _read(stream, part, columns, within, without)
    except pa.ArrowInvalid as error:
        raise UnsupportedError(f"{part.path} cannot be read as Parquet: {error}") from error
    except UsageError as error:
        raise UnsupportedError(f"{part.path} cannot be indexed: {error.message}") from error
    except OSError as error:
        raise StorageError(f"{part.path} cannot be read: {error}", retryable=True) from error


def _read(
    stream: Any,
    part: Part,
    columns: IndexedColumns,
    within: Integers | None,
    without: Integers | None,
) -> Iterator[Entries]:
    file = pq.ParquetFile(stream)
    names = columns.names_in(file.schema_arrow, part.path)
    is_tombstones = part.kind is Kind.TOMBSTONES
    wanted = [*names.values(), *([KIND_COLUMN, AT_COLUMN] if is_tombstones else [])]
    for group, start in _row_groups(file, part, within):
        position = start
        for rows in file.iter_batches(BATCH_ROWS, [group], columns=wanted, use_threads=False):
            kept = _kept(position, rows, within, without)
            if is_tombstones:
                kept = kept[_is_remembered(rows, part.forget_before)[kept - position]]
            if len(kept):
                chosen = rows if len(kept) == len(rows) else rows.take(pa.array(kept - position))
                yield _entries(part, columns, names, chosen, kept)
            position += len(rows)


def _entries(
    part: Part, columns: IndexedColumns, names: dict[int, str], rows: Any, positions: Integers
) -> Entries:
    hashes = columns.hash_keys(rows, names)
    sequence = columns.encode(rows, names)
    if part.kind is Kind.TOMBSTONES:
        return make_entries(*hashes, TOMBSTONE, _seconds(rows.column(AT_COLUMN)), sequence)
    return make_entries(*hashes, part.ordinal, positions, sequence)


def _row_groups(file: Any, part: Part, within: Integers | None) -> Iterator[tuple[int, int]]:
    """Return the row groups of a share, each with the position of its first row."""
    counts = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
    total, start = max(1, sum(counts)), 0
    for group, rows in enumerate(counts):
        # By where it begins, so that every group is in exactly one share.
        is_ours = start * part.shares // total == part.share
        if is_ours and (within is None or _between(within, start, start + rows).any()):
            yield group, start
        start += rows


def _kept(start: int, rows: Any, within: Integers | None, without: Integers | None) -> Integers:
    stop = start + len(rows)
    if within is not None:
        inside: Integers = within[_between(within, start, stop)]
        return inside
    kept = np.ones(len(rows), np.bool_)
    if without is not None:
        kept[without[_between(without, start, stop)] - start] = False
    return start + np.flatnonzero(kept)


def _between(positions: Integers, start: int, stop: int) -> Any:
    return (positions >= start) & (positions < stop)


def _is_remembered(rows: Any, forget_before: float | None) -> Any:
    """Tell which tombstones are of deletes that are not to be forgotten."""
    is_delete = pc.equal(rows.column(KIND_COLUMN), DELETED_KIND)
    remembered = np.asarray(pc.fill_null(is_delete, fill_value=False), np.bool_)
    if forget_before is not None:
        remembered &= _seconds(rows.column(AT_COLUMN)) >= forget_before
    return remembered


def _seconds(times: Any) -> Integers:
    micros = pc.fill_null(times.cast(pa.timestamp("us", times.type.tz)).cast(pa.int64()), 0)
    return np.asarray(micros, np.int64) // 1_000_000


def _positions(io: FileIO, vector: DeletionVector) -> Integers:
    return np.asarray(read_vector(io, vector).to_array(), np.int64)
