"""Lists of key-value pairs to maps of text, with the kinds that are not strings beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from neve.telemetry.equal_keys import last_of_equal_keys, offsets_of
from neve.telemetry.schemas import ATTRIBUTES, types_column
from neve.telemetry.values import decode_values

if TYPE_CHECKING:
    from neve.telemetry.arrays import Column, Integers, Lists, Mask, Texts
    from neve.telemetry.equal_keys import Tally


def attribute_columns(name: str, lists: Lists, tally: Tally) -> dict[str, Column]:
    """Return the map under `name`, and the map of its kinds under the name of its types column."""
    keys = lists.values.field("key")
    offsets = lists.offsets.to_numpy()
    values = decode_values(lists.values.field("value"), tally)
    text, is_typed, words = values.text, values.is_typed, values.words()

    is_kept = last_of_equal_keys(keys, offsets, tally)
    if not is_kept.all():
        chosen: Column = pa.array(is_kept)
        keys, text, words = keys.filter(chosen), text.filter(chosen), words.filter(chosen)
        is_typed, offsets = is_typed[is_kept], offsets_of(is_kept, offsets)
    return {
        name: pa.MapArray.from_arrays(pa.array(offsets), keys, text),
        types_column(name): _types(keys, words, is_typed, offsets),
    }


def _types(keys: Texts, words: Texts, is_typed: Mask, offsets: Integers) -> Column:
    if not is_typed.any():
        return pa.nulls(len(offsets) - 1, ATTRIBUTES)
    typed_offsets = offsets_of(is_typed, offsets)
    chosen = pa.array(is_typed)
    starts: Column = pa.array(typed_offsets)
    return pa.MapArray.from_arrays(
        starts,
        keys.filter(chosen),
        words.filter(chosen),
        mask=pa.array(np.diff(typed_offsets) == 0),
    )
