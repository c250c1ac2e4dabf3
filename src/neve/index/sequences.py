"""Encode sequences of any type: as integers, or as bytes that have the same order.

One integer, date or timestamp stays an integer. Everything else becomes bytes: a text its UTF-8,
which Spark orders texts by; a decimal its unscaled value, so that it may gain precision; several
columns one after the other, each in a form that no other value's is the beginning of.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neve.errors import UnsupportedError, UsageError
from neve.index.entries import Sequences, SequenceType
from neve.index.hashing import Column

_SIGN = 0x80
_ESCAPED, _END = b"\x00\x01", b"\x00\x00"
_MOST_DIGITS = 38


def sequence_type_of(types: Sequence[pa.DataType]) -> SequenceType:
    """Return how sequences of these columns are encoded.

    Raises:
        UnsupportedError: a column of a type that has no order to rely on.
    """
    for kind in types:
        if not (_is_integer(kind) or pa.types.is_decimal(kind) or _is_bytes(kind)):
            raise UnsupportedError(f"a sequence cannot be of type {kind}")
    is_one_integer = len(types) == 1 and _is_integer(types[0])
    return SequenceType.INTEGER if is_one_integer else SequenceType.BINARY


def encode_sequences(columns: Sequence[Column]) -> Sequences:
    """Encode sequences, given as one Arrow column for each sequence column.

    Equal values are equal whatever the width of an integer or the precision of a decimal.

    Raises:
        UsageError: one is NULL, or there is no column.
        UnsupportedError: a column of a type that has no order to rely on.
    """
    if not columns:
        raise UsageError("a sequence needs at least one column")
    parts = [_plain(column) for column in columns]
    if sequence_type_of([part.type for part in parts]) is SequenceType.INTEGER:
        return _integers(parts[0])
    if len(parts) == 1:
        return _bytes(parts[0])
    pieces: list[Any] = []
    for part in parts:
        if not _is_bytes(part.type):
            pieces.append(_bytes(part))
            continue
        # Ended by two zeros, so that "a" comes before "a" with anything behind it.
        escaped = pc.replace_substring(_bytes(part), b"\x00", _ESCAPED)
        pieces += [escaped, pa.scalar(_END, pa.large_binary())]
    return pc.binary_join_element_wise(*pieces, pa.scalar(b"", pa.large_binary()))


def decode_sequences(sequences: Sequences, types: Sequence[pa.DataType]) -> list[Any]:
    """Return the columns that sequences were encoded from; NULL where there is none.

    Sequences that are bytes are taken apart one by one.
    """
    if sequence_type_of(types) is SequenceType.INTEGER:
        return [_from_integers(sequences, types[0])]
    rows = [_parts(value, types) if value is not None else None for value in sequences.to_pylist()]
    columns = []
    for number, kind in enumerate(types):
        parts = [None if row is None else row[number] for row in rows]
        if _is_integer(kind):
            columns.append(_from_integers(pa.array(parts, pa.int64()), kind))
        else:
            columns.append(pa.array(parts, kind))
    return columns


def _from_integers(values: Any, kind: pa.DataType) -> Any:
    return (values.cast(pa.int32()) if pa.types.is_date(kind) else values).cast(kind)


def _parts(value: bytes, types: Sequence[pa.DataType]) -> list[Any]:
    """Take one sequence apart."""
    parts: list[Any] = []
    for kind in types:
        if not _is_bytes(kind):
            width = 16 if pa.types.is_decimal(kind) else 8
            number = int.from_bytes(value[:width], "big") - (1 << (8 * width - 1))
            parts.append(_scaled(number, kind) if pa.types.is_decimal(kind) else number)
            value = value[width:]
            continue
        end = len(value) if len(types) == 1 else _end_of_bytes(value)
        part = value[:end] if len(types) == 1 else value[:end].replace(_ESCAPED, b"\x00")
        parts.append(part.decode() if kind in (pa.string(), pa.large_string()) else part)
        value = value[end + len(_END) :]
    return parts


def _end_of_bytes(value: bytes) -> int:
    """Return where the first part of a sequence ends."""
    end = value.index(b"\x00")
    while value[end : end + 2] != _END:
        end = value.index(b"\x00", end + 2)
    return end


def _scaled(unscaled: int, kind: Any) -> Decimal:
    sign, digits, _ = Decimal(unscaled).as_tuple()
    return Decimal((sign, digits, -kind.scale))


def _is_integer(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    texts = (pa.string(), pa.large_string(), pa.string_view())
    others = (pa.binary(), pa.large_binary(), pa.binary_view())
    return kind in (*texts, *others) or bool(pa.types.is_fixed_size_binary(kind))


def _plain(column: Column) -> Any:
    """Return a column as one array of plain values."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        raise UsageError("a column of sequences is too long for one array")
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if array.null_count:
        raise UsageError("a sequence is NULL")
    return array


def _integers(part: Any) -> Sequences:
    kind = part.type
    if pa.types.is_date(kind):
        return part.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
    if pa.types.is_timestamp(kind) and kind.unit in ("s", "ms"):
        part = part.cast(pa.timestamp("us", kind.tz))
    return part.cast(pa.int64())


def _bytes(part: Any) -> Sequences:
    kind = part.type
    if pa.types.is_decimal(kind):
        return _decimals(part)
    if _is_integer(kind):
        values = np.asarray(_integers(part)).astype(">i8")
        return _ordered(values.view(np.uint8).reshape(-1, 8))
    return part.cast(
        pa.binary() if pa.types.is_fixed_size_binary(kind) else pa.large_binary()
    ).cast(pa.large_binary())


def _decimals(part: Any) -> Sequences:
    """Write unscaled values: a decimal may gain precision, never scale."""
    if part.type.precision > _MOST_DIGITS:
        raise UnsupportedError(f"a sequence cannot be of type {part.type}")
    wide = part.cast(pa.decimal128(_MOST_DIGITS, part.type.scale))
    raw = np.frombuffer(wide.buffers()[1] or b"", np.uint8)
    rows = raw[16 * wide.offset : 16 * (wide.offset + len(wide))].reshape(-1, 16)
    return _ordered(rows[:, ::-1])


def _ordered(rows: Any) -> Sequences:
    """Turn big-endian two's complement into bytes that sort negative numbers first."""
    flipped = np.array(rows, np.uint8, order="C")
    flipped[:, 0] ^= _SIGN
    count, width = flipped.shape
    fixed = pa.Array.from_buffers(pa.binary(width), count, [None, pa.py_buffer(flipped)])
    return fixed.cast(pa.binary()).cast(pa.large_binary())
