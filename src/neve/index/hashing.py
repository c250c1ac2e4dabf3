"""Hashes of keys, computed a column at a time: numpy over Arrow's own buffers, no loop over rows.

A single integer key is hashed by splitmix64, a bijection on 64 bits: equal hashes are equal keys.
Every other key gets two independent 64-bit hashes. Both are sums over a value's 8-byte words, each
word mixed with a constant of its place, so a value can be hashed word by word beside others of any
length. A seed of the index's own keeps others from making keys that collide.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from neve.errors import UnsupportedError, UsageError

Hashes: TypeAlias = npt.NDArray[np.uint64]
Column: TypeAlias = Any
"""A pa.Array or pa.ChunkedArray; what is in it is checked at run time."""

_GOLDEN = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB
_ALL_BITS = (1 << 64) - 1
_HALF = np.uint64(32)

# Rows mixed at once: their words and hashes stay in the processor's cache.
_CHUNK = 8192
# Longer values are mixed apart: a loop over words beside short ones would be long for few rows.
_LONG_WORDS = 64


class PkHash(NamedTuple):
    """Hashes of keys. `second` is None where equal first hashes are equal keys."""

    first: Hashes
    second: Hashes | None


@overload
def splitmix64(value: int) -> int: ...


@overload
def splitmix64(value: npt.NDArray[Any]) -> Hashes: ...


def splitmix64(value: int | npt.NDArray[Any]) -> int | Hashes:
    """Mix 64 bits so that every bit of the result depends on all of them; a bijection."""
    if isinstance(value, np.ndarray):
        mixed = value.astype(np.int64, copy=False).view(np.uint64) + np.uint64(_GOLDEN)
        return _finish(mixed)
    scalar = (int(value) + _GOLDEN) & _ALL_BITS
    scalar = ((scalar ^ (scalar >> 30)) * _FIRST) & _ALL_BITS
    scalar = ((scalar ^ (scalar >> 27)) * _SECOND) & _ALL_BITS
    return scalar ^ (scalar >> 31)


def compute_pk_hash(columns: Sequence[Column], seed: int = 0) -> PkHash:
    """Hash keys given as one Arrow column for each key column.

    Equal values hash equally whatever the width of their type, so that widening a key column keeps
    its hashes. NULL is a value of its own, -0.0 is 0.0, and all NaNs are one.

    Raises:
        UsageError: a single integer key holds a NULL, or there is no key column.
        UnsupportedError: a key column is nested.
    """
    if not columns:
        raise UsageError("a key needs at least one column")
    if is_bijective([column.type for column in columns]):
        return PkHash(_concatenate(splitmix64(part) for part in _integer_keys(columns[0])), None)
    lanes = (_Lane(seed, 0), _Lane(seed, 1))
    totals = [np.full(len(columns[0]), lane.constant(0), np.uint64) for lane in lanes]
    for place, column in enumerate(columns):
        for number, hashes in enumerate(_hash_column(column, lanes)):
            # One after the other, so that (1, 2) and (2, 1) differ.
            totals[number] ^= hashes + lanes[number].constant(1 + place)
            _finish(totals[number])
    return PkHash(totals[0], totals[1])


def is_bijective(types: Sequence[pa.DataType]) -> bool:
    """Tell whether keys of these types are hashed by the bijection, and need no second hash."""
    return len(types) == 1 and _is_integer(types[0])


class _Lane:
    """One of the two hashes: its constants, drawn from the index's seed."""

    def __init__(self, seed: int, number: int) -> None:
        self.origin = splitmix64(splitmix64(seed) ^ splitmix64(number + 1))
        places = np.arange(_LONG_WORDS, dtype=np.int64)
        self.places = self.for_places(places)
        self.odd = np.uint64(self.constant(-1) | 1)
        self.other_odd = np.uint64(self.constant(-2) | 1)

    def constant(self, number: int) -> int | Any:
        return np.uint64(splitmix64((self.origin + (number << 32)) & _ALL_BITS))

    def for_places(self, places: npt.NDArray[np.int64]) -> Hashes:
        drawn: Hashes = splitmix64(places.view(np.uint64) ^ np.uint64(self.origin))
        return drawn

    def mix(self, words: Hashes, place: Any, scratch: Hashes | None = None) -> Hashes:
        """Mix the words at one place of many values, or of one value's many places."""
        spare = np.empty((2, len(words)), np.uint64) if scratch is None else scratch
        mixed, shifted = spare[0, : len(words)], spare[1, : len(words)]
        np.bitwise_xor(words, place, out=mixed)
        mixed *= self.odd
        np.right_shift(mixed, _HALF, out=shifted)
        mixed ^= shifted
        mixed *= self.other_odd
        return mixed


def _finish(mixed: Hashes) -> Hashes:
    """Run splitmix64's finalizer in place."""
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(_FIRST)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(_SECOND)
    mixed ^= mixed >> np.uint64(31)
    return mixed


def _is_integer(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_date(kind)
        or pa.types.is_time(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_duration(kind)
    )


def _chunks(column: Column) -> Iterator[Any]:
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    for chunk in chunks:
        if pa.types.is_dictionary(chunk.type):
            yield chunk.dictionary_decode()
        elif isinstance(chunk, pa.ExtensionArray):
            yield chunk.storage
        else:
            yield chunk


def _integer_keys(column: Column) -> Iterator[npt.NDArray[np.int64]]:
    for chunk in _chunks(column):
        if chunk.null_count:
            raise UsageError("a key of one column is NULL in some row")
        yield _integers(chunk)


def _integers(chunk: Any) -> npt.NDArray[np.int64]:
    """Return the values as 64-bit integers; what stands under a NULL is anything."""
    kind = chunk.type
    if pa.types.is_date64(kind):
        chunk = chunk.cast(pa.date32())
    elif pa.types.is_timestamp(kind) and kind.unit in ("s", "ms"):
        chunk = chunk.cast(pa.timestamp("us", kind.tz))
    if chunk.type.bit_width == 32 and not pa.types.is_integer(chunk.type):
        chunk = chunk.view(pa.int32())
    elif not pa.types.is_integer(chunk.type):
        chunk = chunk.view(pa.int64())
    values: npt.NDArray[Any] = pc.fill_null(chunk, 0).to_numpy(zero_copy_only=False)
    return values.view(np.int64) if values.dtype == np.uint64 else values.astype(np.int64)


def _hash_column(column: Column, lanes: Sequence[_Lane]) -> list[Hashes]:
    parts = [_hash_chunk(chunk, lanes) for chunk in _chunks(column)]
    return [_concatenate(part[number] for part in parts) for number in range(len(lanes))]


def _hash_chunk(chunk: Any, lanes: Sequence[_Lane]) -> list[Hashes]:
    kind = chunk.type
    if pa.types.is_null(kind):
        hashes = [np.zeros(len(chunk), np.uint64) for _ in lanes]
    elif pa.types.is_decimal(kind):
        hashes = _hash_decimals(chunk, lanes)
    elif _is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_floating(kind):
        words = _words_of_numbers(chunk)
        hashes = [_finish(lane.mix(words, lane.places[0])) for lane in lanes]
    else:
        hashes = _hash_bytes(_as_bytes(chunk), lanes)
    if chunk.null_count:
        missing = chunk.is_null().to_numpy(zero_copy_only=False)
        for lane, values in zip(lanes, hashes, strict=True):
            values[missing] = lane.constant(-3)
    return hashes


def _words_of_numbers(chunk: Any) -> Hashes:
    if pa.types.is_boolean(chunk.type):
        chunk = chunk.cast(pa.int8())
    if not pa.types.is_floating(chunk.type):
        return _integers(chunk).view(np.uint64)
    filled = pc.fill_null(chunk, pa.scalar(0, chunk.type)).to_numpy(zero_copy_only=False)
    values: npt.NDArray[np.float64] = filled.astype(np.float64) + 0.0  # -0.0 + 0.0 is 0.0
    values[np.isnan(values)] = np.nan
    return values.view(np.uint64)


def _hash_decimals(chunk: Any, lanes: Sequence[_Lane]) -> list[Hashes]:
    """Hash unscaled values: a decimal may gain precision, never scale."""
    scale = chunk.type.scale
    wide = chunk.cast(pa.decimal256(76, scale))
    words = np.frombuffer(wide.buffers()[1], np.uint64)[4 * wide.offset :].reshape(-1, 4)
    words = words[: len(chunk)]
    hashes = []
    for lane in lanes:
        total = np.zeros(len(chunk), np.uint64)
        for place in range(4):
            total += lane.mix(np.ascontiguousarray(words[:, place]), lane.places[place])
        hashes.append(_finish(total))
    return hashes


def _as_bytes(chunk: Any) -> Any:
    kind = chunk.type
    if pa.types.is_fixed_size_binary(kind):
        return chunk.cast(pa.binary())
    if kind in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary()):
        return chunk
    if kind in (pa.string_view(), pa.binary_view()):
        return chunk.cast(pa.large_binary())
    raise UnsupportedError(f"a key column cannot be of type {kind}")


def _hash_bytes(chunk: Any, lanes: Sequence[_Lane]) -> list[Hashes]:
    _, offset_buffer, data_buffer = chunk.buffers()
    wide = chunk.type in (pa.large_string(), pa.large_binary())
    offsets = np.frombuffer(offset_buffer, np.int64 if wide else np.int32)
    offsets = offsets[chunk.offset : chunk.offset + len(chunk) + 1].astype(np.int64)
    data = np.frombuffer(data_buffer or b"", np.uint8)
    hashes = [np.empty(len(chunk), np.uint64) for _ in lanes]
    for start in range(0, len(chunk), _CHUNK):
        rows = slice(start, min(start + _CHUNK, len(chunk)))
        ends = offsets[rows.start : rows.stop + 1]
        _hash_rows(data[ends[0] : ends[-1]], ends - ends[0], [one[rows] for one in hashes], lanes)
    return hashes


def _hash_rows(
    data: npt.NDArray[np.uint8],
    offsets: npt.NDArray[np.int64],
    out: Sequence[Hashes],
    lanes: Sequence[_Lane],
) -> None:
    """Hash some rows, the longest first, so that those with a next word are always a prefix."""
    padded = np.zeros(8 + len(data), np.uint8)
    padded[8:] = data
    # Eight bytes from any offset on, without a copy.
    at = np.lib.stride_tricks.as_strided(padded[:8].view("<u8"), (len(data) + 1,), (1,))
    starts, lengths = offsets[:-1] + 8, np.diff(offsets)
    words = (lengths + 7) >> 3
    same = bool((lengths == lengths[0]).all())
    order = None if same else np.argsort(-words, kind="stable")
    if order is not None:
        starts, lengths, words = starts[order], lengths[order], words[order]
    totals = [lengths.view(np.uint64) * lane.odd for lane in lanes]
    long_rows = int(np.searchsorted(-words, -_LONG_WORDS))
    for row in range(long_rows):
        _add_long(padded[starts[row] : starts[row] + lengths[row]], row, totals, lanes)
    scratch = np.empty((2, len(words)), np.uint64)
    step = int(lengths[0]) if same else None
    for place, values in _words(at, starts[long_rows:], lengths[long_rows:], step):
        rows = slice(long_rows, long_rows + len(values))
        for total, lane in zip(totals, lanes, strict=True):
            total[rows] += lane.mix(values, lane.places[place], scratch)
    for total, hashes in zip(totals, out, strict=True):
        hashes[slice(None) if order is None else order] = _finish(total)


def _words(
    at: Hashes,
    starts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    step: int | None,
) -> Iterator[tuple[int, Hashes]]:
    """Return each word's place and the words there of all values that are so long.

    A last word is read so that it ends where the value ends; what comes before is shifted out.
    With a `step` all values are of that length and lie one after the other.
    """
    if not len(lengths):
        return
    values = np.empty(len(lengths), np.uint64)
    most = (int(lengths.max()) + 7) >> 3
    for place in range(most):
        if step is not None:
            spare = max(0, 8 * (place + 1) - step)
            values[:] = at[starts[0] + 8 * place - spare :: step][: len(values)]
            values >>= np.uint64(8 * spare)
            yield place, values
            continue
        stop = int(np.count_nonzero(lengths > 8 * place))
        # Ordered by words, not by bytes: those that end in this word lie behind the others.
        whole = int(np.count_nonzero(lengths > 8 * (place + 1)))
        values[:whole] = at[starts[:whole] + 8 * place]
        ends = starts[whole:stop] + lengths[whole:stop] - 8
        spares = (starts[whole:stop] + 8 * place - ends).view(np.uint64) << np.uint64(3)
        values[whole:stop] = at[ends] >> spares
        yield place, values[:stop]


def _add_long(
    value: npt.NDArray[np.uint8], row: int, totals: Sequence[Hashes], lanes: Sequence[_Lane]
) -> None:
    """Add the words of one value of more than half a kilobyte."""
    padded = np.zeros(-(-len(value) // 8) * 8, np.uint8)
    padded[: len(value)] = value
    words = padded.view("<u8")
    places = np.arange(len(words), dtype=np.int64)
    for total, lane in zip(totals, lanes, strict=True):
        mixed = lane.mix(words, lane.for_places(places))
        total[row : row + 1] += mixed.sum(dtype=np.uint64)


def _concatenate(parts: Iterator[Hashes]) -> Hashes:
    found = list(parts)
    if len(found) == 1:
        return found[0]
    return np.concatenate(found) if found else np.empty(0, np.uint64)
