"""Reduce a key's rows and tombstones to one entry."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neve.index.entries import (
    SEVERAL,
    Entries,
    Integers,
    Mask,
    Sequences,
    has_equal_neighbour,
    last_of_equals,
)
from neve.index.splitmix import Hashes


@dataclass(frozen=True)
class Resolved:
    """One entry for each key, sorted; and how many further rows the keys have."""

    entries: Entries
    duplicates: int


def resolve(entries: Entries, bits: int = 0) -> Resolved:
    """Reduce entries of rows and of tombstones, in any order, to one for each key.

    All must be of one bucket; `bits` say how buckets are cut.

    A key that has a row keeps the row's place, whatever tombstones it has: who changes the key must
    find the row. A key that has several rows is SEVERAL. The sequence is the greatest of all of
    them, which is what an event must exceed; of equal tombstones the latest counts.
    """
    order = sorted_places(entries.first, bits)
    tied = has_equal_neighbour(entries.first[order])
    if not tied.any():
        return Resolved(entries.take(order), 0)
    places = order[tied]
    live = entries.file[places] >= 0
    rank = sequence_ranks(entries.sequence.take(pa.array(places)))
    keys = [entries.first[places]]
    if entries.second is not None:
        keys.insert(0, entries.second[places])
    by_row = np.lexsort([entries.position[places], rank, live, *keys])
    by_sequence = np.lexsort([rank, *keys])
    is_last = last_of_equals([key[by_row] for key in keys])
    starts = np.flatnonzero(np.roll(is_last, 1))
    rows = np.add.reduceat(live[by_row].astype(np.int64), starts)
    kept = np.ones(len(order), np.bool_)
    kept[tied] = is_last
    row_source, sequence_source = order.copy(), order.copy()
    row_source[tied] = places[by_row]
    # Both orders have the same groups: what ends a group here is its greatest sequence.
    sequence_source[tied] = places[by_sequence]
    chosen = entries.take(row_source[kept])
    sequence = entries.sequence.take(pa.array(sequence_source[kept]))
    has_several = np.zeros(len(order), np.bool_)
    has_several[np.flatnonzero(tied)[is_last]] = rows > 1
    resolved = mark_several(replace(chosen, sequence=sequence), has_several[kept])
    return Resolved(resolved, int(np.maximum(rows - 1, 0).sum()))


def mark_several(entries: Entries, mask: Mask) -> Entries:
    """Return entries in which those under the mask are SEVERAL."""
    file = np.where(mask, np.int32(SEVERAL), entries.file)
    return replace(entries, file=file, position=np.where(mask, -1, entries.position))


def sorted_places(first: Hashes, bits: int) -> Integers:
    """Return the order of hashes that have the same top bits.

    By the 32 bits behind those, in two passes of a radix sort, which takes half the time of others;
    the few that agree in all of them are put in order afterwards.
    """
    shift = 64 - bits - 32
    if shift < 0:
        return np.argsort(first)
    ranks = (first >> np.uint64(shift)).astype(np.uint32)
    order = np.argsort(ranks.astype(np.uint16), kind="stable")
    order = order[np.argsort((ranks >> np.uint32(16)).astype(np.uint16)[order], kind="stable")]
    tied = has_equal_neighbour(ranks[order])
    if tied.any():
        places = order[tied]
        order[tied] = places[np.argsort(first[places])]
    return order


def sequence_ranks(sequences: Sequences) -> Integers:
    """Return integers in the order of the sequences, equal where those are."""
    if pa.types.is_integer(sequences.type):
        return np.asarray(sequences, np.int64)
    # Ranking is not there for binary; equal values are told apart by their places' order.
    order = np.asarray(pc.array_sort_indices(sequences), np.int64)
    ordered = sequences.take(pa.array(order))
    ranks = np.zeros(len(order), np.int64)
    if len(order) > 1:
        differs = np.asarray(pc.not_equal(ordered.slice(1), ordered.slice(0, len(order) - 1)))
        ranks[order[1:]] = np.cumsum(differs)
    return ranks


def greater(sequences: Sequences, others: Sequences) -> Mask:
    """Tell where sequences are greater than others; they are not where either is NULL."""
    is_greater = pc.fill_null(pc.greater(sequences, others), fill_value=False)
    return np.asarray(is_greater, np.bool_)
