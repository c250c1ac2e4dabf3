"""Plain fields to columns: ids, counts, enumerations, lists of structs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from google.protobuf.descriptor import EnumDescriptor

    from neve.telemetry.arrays import Column, Lists, Texts

_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)


def long_column(column: Column) -> Column:
    """32-bit counts and flags, which Iceberg has no unsigned type for."""
    return column.cast(pa.int64())


def hex_column(ids: Column) -> Texts:
    """Ids in lowercase hexadecimal; NULL where empty."""
    offsets = np.frombuffer(ids.buffers()[1], np.int32, len(ids) + 1, ids.offset * 4)
    data = np.frombuffer(ids.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    text = np.empty((len(data), 2), np.uint8)
    text[:, 0] = _HEX[data >> 4]
    text[:, 1] = _HEX[data & 15]
    text_offsets = (offsets - offsets[0]) * 2
    is_empty = np.diff(offsets) == 0
    return pa.StringArray.from_buffers(
        len(ids),
        pa.py_buffer(text_offsets.data),
        pa.py_buffer(text.data),
        pa.py_buffer(np.packbits(~is_empty, bitorder="little").data),
    )


class Words:
    """The names of an enumeration: SPAN_KIND_SERVER is `server`."""

    def __init__(self, enum: EnumDescriptor, prefix: str) -> None:
        names = {value.number: value.name for value in enum.values}
        self._words: Texts = pa.array(
            [names[number].removeprefix(prefix).lower() for number in range(len(names))]
        )

    def column(self, numbers: Column) -> Texts:
        """The word of each number; a number without one is kept as its digits."""
        known = numbers.to_numpy()
        is_known = (known >= 0) & (known < len(self._words))
        if is_known.all():
            return self._words.take(numbers)
        words = self._words.take(pa.array(np.where(is_known, known, 0)))
        return pc.if_else(pa.array(is_known), words, numbers.cast(pa.string()))


def struct_lists(lists: Lists, columns: dict[str, Column], element: pa.StructType) -> Lists:
    """Lists of structs, from the columns of all their members."""
    members = pa.StructArray.from_arrays(
        [columns[field.name] for field in element], fields=list(element)
    )
    return pa.ListArray.from_arrays(lists.offsets, members)
