"""Lists of key-value pairs to maps of text, with the kinds that are not strings beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from neve.telemetry.equal_keys import last_of_equal_keys, offsets_of
from neve.telemetry.pairs import read_pairs
from neve.telemetry.schemas import ATTRIBUTES, types_column

if TYPE_CHECKING:
    from neve.telemetry.arrays import Column, Integers, Lists, Texts
    from neve.telemetry.equal_keys import Tally
    from neve.telemetry.values import Values


def attribute_columns(name: str, lists: Lists, tally: Tally) -> dict[str, Column]:
    """Return the map under `name`, and the map of its kinds under the name of its types column."""
    offsets = lists.offsets.to_numpy()
    pairs = read_pairs(lists.values, tally)
    keys, values = pairs.keys, pairs.values
    is_kept = last_of_equal_keys(keys, offsets, tally)
    if not is_kept.all():
        keys, values = keys.filter(pa.array(is_kept)), values.filter(is_kept)
        offsets = offsets_of(is_kept, offsets)
    return {
        name: pa.MapArray.from_arrays(pa.array(offsets), keys, values.text),
        types_column(name): _types(keys, values, offsets),
    }


def _types(keys: Texts, values: Values, offsets: Integers) -> Column:
    is_typed = values.is_typed
    if not is_typed.any():
        return pa.nulls(len(offsets) - 1, ATTRIBUTES)
    typed_offsets = offsets_of(is_typed, offsets)
    chosen = pa.array(is_typed)
    starts: Column = pa.array(typed_offsets)
    return pa.MapArray.from_arrays(
        starts,
        keys.filter(chosen),
        values.filter(is_typed).words(),
        mask=pa.array(np.diff(typed_offsets) == 0),
    )
