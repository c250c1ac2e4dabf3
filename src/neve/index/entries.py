"""Entries of an index: which file and position a key's row is at, and the sequence it has.

Plain arrays, and pure functions from arrays to arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from neve.errors import UsageError
from neve.index.splitmix import Hashes

TOMBSTONE = -1
"""The file of a key that was deleted: its sequence is kept, so that late events are dropped. Its
position is when the tombstone was written, in seconds: it may have to be forgotten."""
ABSENT = -2
"""The file of a key that has neither row nor tombstone; the entry hides older ones."""
SEVERAL = -3
"""The file of a key that more than one row has; it stays until the index is built anew."""

Integers: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]
Sequences: TypeAlias = Any
"""A pa.Array of int64, or of binary whose byte order is the order of the sequences."""


class SequenceType(str, Enum):
    """How sequences are kept."""

    INTEGER = "integer"
    BINARY = "binary"

    @property
    def arrow(self) -> pa.DataType:
        return pa.int64() if self is SequenceType.INTEGER else pa.large_binary()


@dataclass(frozen=True)
class Entries:
    """Index entries as columns. `second` is None for keys whose first hash is a bijection."""

    first: Hashes
    second: Hashes | None
    file: npt.NDArray[np.int32]
    position: Integers
    sequence: Sequences

    def __len__(self) -> int:
        return len(self.first)

    @property
    def sequence_type(self) -> SequenceType:
        is_integer = pa.types.is_integer(self.sequence.type)
        return SequenceType.INTEGER if is_integer else SequenceType.BINARY

    def take(self, at: Any) -> Entries:
        """Return the entries at these places, or under this mask."""
        places = np.flatnonzero(at) if at.dtype == np.bool_ else at
        return Entries(
            self.first[places],
            None if self.second is None else self.second[places],
            self.file[places],
            self.position[places],
            self.sequence.take(pa.array(places)),
        )

    def slice(self, start: int, stop: int) -> Entries:
        """Return the entries from `start` to `stop`, without a copy."""
        return Entries(
            self.first[start:stop],
            None if self.second is None else self.second[start:stop],
            self.file[start:stop],
            self.position[start:stop],
            self.sequence.slice(start, stop - start),
        )


def make_entries(first: Any, second: Any, file: Any, position: Any, sequence: Any) -> Entries:
    """Check and shape columns; `file` and `position` may be one number for all.

    Raises:
        UsageError: lengths differ, or a sequence is NULL or of a type without a place here.
    """
    count = len(first)
    entries = Entries(
        np.asarray(first, np.uint64),
        None if second is None else np.asarray(second, np.uint64),
        np.broadcast_to(np.asarray(file, np.int32), count),
        np.broadcast_to(np.asarray(position, np.int64), count),
        as_sequences(sequence),
    )
    if len(entries.sequence) != count or (second is not None and len(second) != count):
        raise UsageError("the columns of index entries have different lengths")
    return entries


def as_sequences(values: Any) -> Sequences:
    """Return sequences in one of the two types they are kept in.

    Raises:
        UsageError: one is NULL, or they are neither integers, times nor bytes.
    """
    array = pa.array(values) if isinstance(values, (np.ndarray, list)) else values
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if array.null_count:
        raise UsageError("a sequence is NULL")
    kind = array.type
    if pa.types.is_timestamp(kind) or pa.types.is_integer(kind):
        return array.cast(pa.int64())
    if kind in (pa.binary(), pa.string(), pa.large_string(), pa.large_binary()):
        return array.cast(pa.large_binary())
    raise UsageError(f"a sequence cannot be of type {kind}")


def no_entries(sequence_type: SequenceType, *, has_second_hash: bool) -> Entries:
    """Return columns of the right types without rows."""
    return Entries(
        np.empty(0, np.uint64),
        np.empty(0, np.uint64) if has_second_hash else None,
        np.empty(0, np.int32),
        np.empty(0, np.int64),
        pa.array([], sequence_type.arrow),
    )


def concat_entries(parts: Sequence[Entries]) -> Entries:
    """Concatenate entries.

    Raises:
        UsageError: some have second hashes and some have none, or their sequences differ in type.
    """
    if len(parts) == 1:
        return parts[0]
    seconds = [part.second for part in parts if part.second is not None]
    if len(seconds) not in (0, len(parts)) or len({part.sequence.type for part in parts}) > 1:
        raise UsageError("index entries of different kinds cannot be put together")
    return Entries(
        np.concatenate([part.first for part in parts]),
        np.concatenate(seconds) if seconds else None,
        np.concatenate([part.file for part in parts]),
        np.concatenate([part.position for part in parts]),
        pa.concat_arrays([part.sequence for part in parts]),
    )


def merge_entries(generations: Sequence[Entries], *, drop_absent: bool = False) -> Entries:
    """Merge generations, the oldest first: sorted, and of each key the newest entry.

    Keys are equal when both hashes are. With `drop_absent` there is no older generation, so that
    entries which only hide something go.
    """
    together = concat_entries(generations)
    order = _sorted_order(together)
    halves = [half for half in (together.first, together.second) if half is not None]
    is_last = last_of_equals([half[order] for half in halves])
    if drop_absent:
        is_last &= together.file[order] != ABSENT
    return together.take(order[is_last])


def find_rows(
    hashes: Hashes, seconds: Hashes | None, first: Hashes, second: Hashes | None
) -> Integers:
    """Return the place of each key among sorted hashes, -1 where it is not there.

    Keys with the same first hash lie next to each other. The search goes on from the first of them
    to the one that has the same second hash, too.
    """
    if not len(hashes):
        return np.full(len(first), -1, np.int64)
    at = np.searchsorted(hashes, first)
    rows = np.full(len(first), -1, np.int64)
    pending = np.flatnonzero(hashes[np.minimum(at, len(hashes) - 1)] == first)
    pending = pending[at[pending] < len(hashes)]
    if seconds is None or second is None:
        rows[pending] = at[pending]
        return rows
    while len(pending):
        agrees = seconds[at[pending]] == second[pending]
        rows[pending[agrees]] = at[pending[agrees]]
        pending = pending[~agrees]
        at[pending] += 1
        pending = pending[at[pending] < len(hashes)]
        pending = pending[hashes[at[pending]] == first[pending]]
    return rows


def _sorted_order(entries: Entries) -> Integers:
    """Return an order by both hashes; equal keys stay in the order they have."""
    # Several times as fast as a stable sort; ties are few, and put in order afterwards.
    order = np.argsort(entries.first)
    tied = has_equal_neighbour(entries.first[order])
    if not tied.any():
        return order
    places = order[tied]
    keys = [places, entries.first[places]]
    if entries.second is not None:
        keys.insert(1, entries.second[places])
    order[tied] = places[np.lexsort(keys)]
    return order


def has_equal_neighbour(ordered: npt.NDArray[Any]) -> Mask:
    same = ordered[1:] == ordered[:-1]
    marks = np.zeros(len(ordered), np.bool_)
    marks[1:] |= same
    marks[:-1] |= same
    return marks


def last_of_equals(keys: Sequence[Hashes]) -> Mask:
    """Mark the last of equal neighbours, given each part of their keys."""
    is_last = np.ones(len(keys[0]), np.bool_)
    is_last[:-1] = False
    for key in keys:
        is_last[:-1] |= key[1:] != key[:-1]
    return is_last
