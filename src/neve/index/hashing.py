"""Hash keys, one Arrow column at a time: numpy over Arrow's buffers, no loop over rows.

A key of one integer column is hashed by splitmix64, a bijection on 64 bits: equal hashes are equal
keys. Every other key gets the 128 bits of MurmurHash3, with the index's own seed.
`docs/decisions/0013-hash-of-keys.md` says why this function.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from neve.errors import UnsupportedError, UsageError
from neve.index.murmur import Murmur
from neve.index.splitmix import Hashes, splitmix64
from neve.lake.uuids import with_uuids

Column: TypeAlias = Any
"""A pa.Array or pa.ChunkedArray; its type is checked at run time."""

# Iceberg's decimals have no more digits; 16 bytes hold them.
_DECIMAL_DIGITS = 38
# The words of NULL: no number or decimal has them, and a text as rarely as any other two.
_NULL = np.uint64(0), np.uint64(1 << 63)


class PkHash(NamedTuple):
    """Hashes of keys. `second` is None where equal first hashes are equal keys."""

    first: Hashes
    second: Hashes | None


@dataclass(frozen=True)
class KeyHasher:
    """Hashes the keys of one index, in any task: it can be pickled."""

    seed: int
    is_uuid: tuple[bool, ...]
    """Which key columns are uuids: data files have their 16 bytes, and Spark has text."""

    def __call__(self, columns: Sequence[Column]) -> PkHash:
        """Hash keys given as one Arrow column for each key column.

        Raises as `compute_pk_hash`, and UsageError: a text is no uuid.
        """
        uniform = [
            _uuids(column) if is_uuid else column
            for column, is_uuid in zip(columns, self.is_uuid, strict=True)
        ]
        return compute_pk_hash(uniform, self.seed)


def compute_pk_hash(columns: Sequence[Column], seed: int = 0) -> PkHash:
    """Hash keys given as one Arrow column for each key column.

    Equal values hash equally whatever the width of their type, so that widening a key column keeps
    its hashes. NULL is a value of its own, -0.0 is 0.0, and all NaNs are one value.

    Raises:
        UsageError: a single integer key holds a NULL, or there is no key column.
        UnsupportedError: a key column is of a type that cannot be hashed.
    """
    if not columns:
        raise UsageError("a key needs at least one column")
    if is_bijective([column.type for column in columns]):
        return PkHash(_concatenate(splitmix64(part) for part in _integer_keys(columns[0])), None)
    murmur = Murmur.seeded(seed)
    pairs = [_column_words(murmur, column) for column in columns]
    if len(pairs) == 1 and not _has_fixed_width(columns[0].type):
        return PkHash(*pairs[0])
    # Each column is a block of 16 bytes, so that ("ab", "c") and ("a", "bc") differ.
    return PkHash(*murmur.hash_words([half for pair in pairs for half in pair]))


def is_bijective(types: Sequence[pa.DataType]) -> bool:
    """Tell whether keys of these types are hashed by the bijection, and need no second hash."""
    return len(types) == 1 and _is_integer(types[0])


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
    return values.astype(np.int64)


def _uuids(column: Column) -> Column:
    try:
        return pa.chunked_array([with_uuids(chunk, pa.uuid()) for chunk in _chunks(column)])
    except ValueError as error:
        raise UsageError("a key is no uuid") from error


def _has_fixed_width(kind: pa.DataType) -> bool:
    return bool(
        _is_integer(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
    )


def _column_words(murmur: Murmur, column: Column) -> tuple[Hashes, Hashes]:
    """Return two words for each value: those of a fixed width themselves, the hash of others."""
    pairs = [_chunk_words(murmur, chunk) for chunk in _chunks(column)]
    return _concatenate(pair[0] for pair in pairs), _concatenate(pair[1] for pair in pairs)


def _chunk_words(murmur: Murmur, chunk: Any) -> tuple[Hashes, Hashes]:
    kind = chunk.type
    if pa.types.is_null(kind):
        pair = np.empty(len(chunk), np.uint64), np.empty(len(chunk), np.uint64)
    elif pa.types.is_decimal(kind):
        pair = _words_of_decimals(chunk)
    elif _has_fixed_width(kind):
        pair = _words_of_numbers(chunk), np.zeros(len(chunk), np.uint64)
    else:
        pair = murmur.hash_bytes(*_bytes_and_offsets(chunk))
    if chunk.null_count:
        is_null = chunk.is_null().to_numpy(zero_copy_only=False)
        for half, null in zip(pair, _NULL, strict=True):
            half[is_null] = null
    return pair


def _words_of_numbers(chunk: Any) -> Hashes:
    if pa.types.is_boolean(chunk.type):
        chunk = chunk.cast(pa.int8())
    if not pa.types.is_floating(chunk.type):
        return _integers(chunk).view(np.uint64)
    filled = pc.fill_null(chunk, pa.scalar(0, chunk.type)).to_numpy(zero_copy_only=False)
    values: npt.NDArray[np.float64] = filled.astype(np.float64) + 0.0  # -0.0 + 0.0 is 0.0
    values[np.isnan(values)] = np.nan
    return values.view(np.uint64)


def _words_of_decimals(chunk: Any) -> tuple[Hashes, Hashes]:
    """Return unscaled values: a decimal may gain precision, never scale."""
    try:
        wide = chunk.cast(pa.decimal128(_DECIMAL_DIGITS, chunk.type.scale))
    except pa.ArrowInvalid as error:
        raise UnsupportedError(f"a key has more than {_DECIMAL_DIGITS} digits") from error
    words = np.frombuffer(wide.buffers()[1] or b"", np.uint64)[2 * wide.offset :]
    words = words[: 2 * len(chunk)]
    return words[::2].copy(), words[1::2].copy()


def _bytes_and_offsets(chunk: Any) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    kind = chunk.type
    if pa.types.is_fixed_size_binary(kind):
        chunk = chunk.cast(pa.binary())
    elif kind in (pa.string_view(), pa.binary_view()):
        chunk = chunk.cast(pa.large_binary())
    elif kind not in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary()):
        raise UnsupportedError(f"a key column cannot be of type {kind}")
    _, offset_buffer, data_buffer = chunk.buffers()
    is_large = chunk.type in (pa.large_string(), pa.large_binary())
    offsets = np.frombuffer(offset_buffer or bytes(8), np.int64 if is_large else np.int32)
    offsets = offsets[chunk.offset : chunk.offset + len(chunk) + 1].astype(np.int64)
    return np.frombuffer(data_buffer or b"", np.uint8), offsets


def _concatenate(parts: Iterable[Hashes]) -> Hashes:
    arrays = list(parts)
    if len(arrays) == 1:
        return arrays[0]
    return np.concatenate(arrays) if arrays else np.empty(0, np.uint64)
