"""Equal keys in one list of pairs, which OTLP forbids: the last is kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from neve.telemetry.pairs_library import may_repeat_keys

if TYPE_CHECKING:
    from neve.telemetry.arrays import Integers, Mask, Texts

# Equal keys are looked for in a table of (list, key) while that has no more cells than this for
# each entry: a scatter is many times faster than a sort.
_CELLS_PER_ENTRY = 16


@dataclass
class Tally:
    """A count of what decoding leaves out."""

    duplicate_keys: int = 0


def offsets_of(is_kept: Mask, offsets: Integers) -> Integers:
    """Return the offsets of lists of which only some entries are kept."""
    before = np.zeros(len(is_kept) + 1, np.int32)
    np.cumsum(is_kept, out=before[1:])
    return before[offsets]


def last_of_equal_keys(keys: Texts, offsets: Integers, tally: Tally) -> Mask:
    """Mark each entry that no later entry of its list repeats, and count the others."""
    count = len(keys)
    if not may_repeat_keys(keys, offsets):
        return np.ones(count, np.bool_)
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
    is_kept = np.zeros(count, np.bool_)
    is_kept[count - 1 - last_reversed] = True
    tally.duplicate_keys += count - len(last_reversed)
    return is_kept
