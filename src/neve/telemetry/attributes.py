"""Lists of key-value pairs to maps of text, with the kinds that are not strings beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from neve.telemetry.schemas import ATTRIBUTES, types_column
from neve.telemetry.values import decode_values

if TYPE_CHECKING:
    from neve.telemetry.arrays import Column, Integers, Lists, Mask, Texts

# Equal keys are looked for in a table of (list, key) while that has no more cells than this for
# each entry: a scatter is many times faster than a sort.
_CELLS_PER_ENTRY = 16


@dataclass
class Tally:
    """What decoding leaves out, counted."""

    duplicate_keys: int = 0


def attribute_columns(name: str, lists: Lists, tally: Tally) -> dict[str, Column]:
    """The map under `name`, and the map of its kinds under the name that goes with it."""
    keys = lists.values.field("key")
    offsets = lists.offsets.to_numpy()
    values = decode_values(lists.values.field("value"))
    tally.duplicate_keys += values.duplicate_keys
    text, is_typed, words = values.text, values.is_typed, values.words()

    kept = _last_of_equal_keys(keys, offsets)
    if not kept.all():
        tally.duplicate_keys += len(kept) - int(np.count_nonzero(kept))
        chosen = pa.array(kept)
        keys, text, words = keys.filter(chosen), text.filter(chosen), words.filter(chosen)
        is_typed, offsets = is_typed[kept], _offsets_of(kept, offsets)
    return {
        name: pa.MapArray.from_arrays(pa.array(offsets), keys, text),
        types_column(name): _types(keys, words, is_typed, offsets),
    }


def _types(keys: Texts, words: Texts, is_typed: Mask, offsets: Integers) -> Column:
    if not is_typed.any():
        return pa.nulls(len(offsets) - 1, ATTRIBUTES)
    typed_offsets = _offsets_of(is_typed, offsets)
    chosen = pa.array(is_typed)
    starts: Column = pa.array(typed_offsets)
    return pa.MapArray.from_arrays(
        starts,
        keys.filter(chosen),
        words.filter(chosen),
        mask=pa.array(np.diff(typed_offsets) == 0),
    )


def _offsets_of(kept: Mask, offsets: Integers) -> Integers:
    """The offsets of lists of which only some entries are kept."""
    before = np.zeros(len(kept) + 1, np.int32)
    np.cumsum(kept, out=before[1:])
    return before[offsets]


def _last_of_equal_keys(keys: Texts, offsets: Integers) -> Mask:
    """Mark each entry that no later entry of its list repeats."""
    count = len(keys)
    lists = len(offsets) - 1
    encoded = keys.dictionary_encode()
    distinct = len(encoded.dictionary)
    cells = np.repeat(np.arange(lists) * distinct, np.diff(offsets))
    cells += encoded.indices.to_numpy()
    if lists * distinct <= _CELLS_PER_ENTRY * count:
        table = np.zeros(lists * distinct, np.bool_)
        table[cells] = True
        if np.count_nonzero(table) == count:
            return np.ones(count, np.bool_)
    _, last_reversed = np.unique(cells[::-1], return_index=True)
    kept = np.zeros(count, np.bool_)
    kept[count - 1 - last_reversed] = True
    return kept
