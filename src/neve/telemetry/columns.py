"""Plain fields to columns: ids, counts, enumerations, lists of structs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from google.protobuf.descriptor import EnumDescriptor

    from neve.telemetry.arrays import Column, Integers, Lists, Mask, Texts

# The two digits of each byte, to be copied as one number.
_HEX_DIGITS = np.frombuffer(bytes(range(256)).hex().encode(), np.uint16)


def long_column(column: Column) -> Column:
    """Widen 32-bit counts and flags: Iceberg has no unsigned types."""
    return column.cast(pa.int64())


def hex_column(ids: Column) -> Texts:
    """Write ids in lowercase hexadecimal; NULL where an id is empty or all zeros."""
    offsets = np.frombuffer(ids.buffers()[1], np.int32, len(ids) + 1, ids.offset * 4)
    data = np.frombuffer(ids.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    offsets = offsets - offsets[0]
    has_id = _has_nonzero_byte(data, offsets)
    return pa.StringArray.from_buffers(
        len(ids),
        pa.py_buffer((offsets * 2).data),
        pa.py_buffer(_HEX_DIGITS[data].data),
        pa.py_buffer(np.packbits(has_id, bitorder="little").data),
    )


def _has_nonzero_byte(data: Integers, offsets: Integers) -> Mask:
    result = np.diff(offsets) > 0
    starts = offsets[:-1][result]
    if len(starts):
        result[result] = np.bitwise_or.reduceat(data, starts) != 0
    return result


class EnumWords:
    """The names of an enumeration as lowercase words: SPAN_KIND_SERVER is `server`."""

    def __init__(self, enum: EnumDescriptor, prefix: str) -> None:
        names = {value.number: value.name for value in enum.values}
        self._words: Texts = pa.array(
            [names[number].removeprefix(prefix).lower() for number in range(len(names))]
        )

    def column(self, numbers: Column) -> Texts:
        """Return the word of each number; a number without one is kept as its digits."""
        values = numbers.to_numpy()
        is_known = (values >= 0) & (values < len(self._words))
        if is_known.all():
            return self._words.take(numbers)
        words = self._words.take(pa.array(np.where(is_known, values, 0)))
        return pc.if_else(pa.array(is_known), words, numbers.cast(pa.string()))


def struct_lists(lists: Lists, columns: dict[str, Column], element: pa.StructType) -> Lists:
    """Return lists of structs, from the columns of all their members."""
    members = pa.StructArray.from_arrays(
        [columns[field.name] for field in element], fields=list(element)
    )
    return pa.ListArray.from_arrays(lists.offsets, members)
