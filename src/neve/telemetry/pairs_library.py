"""What `pairs.c` does, for Arrow's arrays."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from neve.native import load_library

if TYPE_CHECKING:
    from neve.telemetry.arrays import Column, Integers, Texts

# The kind of a pair that was not read.
OTHER = -1


class UsualPairs(NamedTuple):
    """Keys with the texts and kinds of their values; `others` of them were not read."""

    keys: Texts
    text: Texts
    kind: Integers
    others: int


def read_usual_pairs(wire: Column) -> UsualPairs:
    """Read messages of the type KeyValue that have a key and a string, an integer or a boolean."""
    count = len(wire)
    offsets = np.frombuffer(wire.buffers()[1], np.int32, count + 1, wire.offset * 4)
    data = np.frombuffer(wire.buffers()[2] or b"", np.uint8)
    size = int(offsets[-1] - offsets[0])
    # What is not written is not in memory, so that a large bound costs nothing.
    keys, key_offsets = np.empty(size, np.uint8), np.empty(count + 1, np.int32)
    texts, text_offsets = np.empty(2 * size, np.uint8), np.empty(count + 1, np.int32)
    kind = np.empty(count, np.int8)
    arrays: tuple[Integers, ...] = (keys, key_offsets, texts, text_offsets, kind)
    others: int = _library().neve_read_pairs(
        _address(data), _address(offsets), count, *(_address(array) for array in arrays)
    )
    return UsualPairs(_strings(keys, key_offsets), _strings(texts, text_offsets), kind, others)


def may_repeat_keys(keys: Texts, lists: Integers) -> bool:
    """Tell whether a list of keys may have one of them twice. False: certainly not."""
    offsets = np.frombuffer(keys.buffers()[1], np.int32, len(keys) + 1, keys.offset * 4)
    data = np.frombuffer(keys.buffers()[2] or b"", np.uint8)
    lists = np.ascontiguousarray(lists, np.int32)
    arrays: tuple[Integers, ...] = (data, offsets, lists)
    return bool(
        _library().neve_may_repeat_keys(*(_address(array) for array in arrays), len(lists) - 1)
    )


def _strings(data: Integers, offsets: Integers) -> Texts:
    used = data[: int(offsets[-1])]
    return pa.StringArray.from_buffers(
        len(offsets) - 1, pa.py_buffer(offsets.data), pa.py_buffer(used.data)
    )


def _address(array: Integers) -> Any:
    return array.ctypes.data


@cache
def _library() -> ctypes.CDLL:
    library = load_library(Path(__file__).with_name("libpairs.so"))
    pointer, count = ctypes.c_void_p, ctypes.c_int64
    library.neve_read_pairs.argtypes = (pointer, pointer, count, *(pointer,) * 5)
    library.neve_read_pairs.restype = count
    library.neve_may_repeat_keys.argtypes = (pointer, pointer, pointer, count)
    library.neve_may_repeat_keys.restype = ctypes.c_int
    return library
