"""From few rows that appear and disappear to changes, in Arrow: what `rows.py` does in Spark. Pure.

Rows are numbered; which of them are changes, and of which kind, is told by numpy arrays.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neve.versions.rows import AFTER_UPDATE, BEFORE_UPDATE, DELETE, INSERT

Numbers: TypeAlias = np.ndarray[Any, np.dtype[Any]]
KINDS = (DELETE, INSERT, BEFORE_UPDATE, AFTER_UPDATE)


def find_changes(
    rows: pa.Table,
    signs: Numbers,
    steps: Numbers,
    both: Collection[int],
    keys: Sequence[int],
) -> tuple[Numbers, Numbers]:
    """Cancel rows that are the same, and pair those of one key.

    Args:
        signs: 1 for a row that a step inserts, -1 for one that it deletes.
        steps: the step of each row.
        both: the steps that insert and delete; rows of others are changes as they are.
        keys: the places of the columns that identify a row.

    Returns:
        The rows that are changes, and the kind of each as a place in KINDS.
    """
    kinds = (signs > 0).astype(np.int8)
    is_mixed = np.isin(steps, list(both))
    mixed = np.flatnonzero(is_mixed)
    if not len(mixed):
        return np.arange(rows.num_rows), kinds
    some = rows.take(pa.array(mixed))
    groups = _groups(steps[mixed], [_exact(each) for each in some.columns])
    mixed = mixed[_surplus(groups, signs[mixed])]
    if keys:
        some = rows.take(pa.array(mixed))
        groups = _groups(steps[mixed], [_key(some.column(place)) for place in keys])
        is_update = _has_one_of_each(groups, signs[mixed])[groups]
        kinds[mixed[is_update]] += 2
    kept = np.sort(np.concatenate((np.flatnonzero(~is_mixed), mixed)))
    return kept, kinds[kept]


def find_net_changes(
    rows: pa.Table, signs: Numbers, steps: Numbers, keys: Sequence[int]
) -> tuple[Numbers, Numbers, Numbers]:
    """Cancel what one step does and another one undoes, and pair what is left of one key.

    Returns:
        The rows that are changes, the kind of each as a place in KINDS, and the step since which
        it is there, or is not. Both rows of an update have the later step.
    """
    values = _groups(np.zeros_like(steps), [_exact(each) for each in rows.columns])
    kept = _surplus(_groups(steps, [values]), signs)
    kept = np.sort(kept[_lasting(values[kept], signs[kept], steps[kept])])
    kinds, made_by = (signs[kept] > 0).astype(np.int8), steps[kept]
    if keys:
        some = rows.take(pa.array(kept))
        groups = _groups(np.zeros_like(kept), [_key(some.column(place)) for place in keys])
        is_update = _has_one_of_each(groups, signs[kept])[groups]
        kinds[is_update] += 2
        last = np.zeros(int(groups.max(initial=-1)) + 1, np.int64)
        np.maximum.at(last, groups, made_by)
        made_by = np.where(is_update, last[groups], made_by)
    return kept, kinds, made_by


def _lasting(groups: Numbers, signs: Numbers, steps: Numbers) -> Numbers:
    """Return the rows that no later step undid: as many of a group as its signs come to.

    Seen from the last step back, a row lasts if the sum of the signs has not been as high before.
    """
    order = np.lexsort((-steps, groups))
    groups, signs = groups[order], signs[order].astype(np.int64)
    total = np.bincount(groups, weights=signs).astype(np.int64)[groups]
    first = np.searchsorted(groups, groups)
    sums = np.cumsum(signs * np.sign(total))
    sums -= np.where(first > 0, sums[first - 1], 0)
    # One running maximum for all groups: each begins above all that the groups before it reach.
    above = groups * (2 * len(groups) + 1)
    highest = np.maximum.accumulate(sums + above) - above
    is_first = np.arange(len(groups)) == first
    before = np.where(is_first, 0, np.maximum(np.roll(highest, 1), 0))
    lasting: Numbers = order[(sums > before) & (sums <= np.abs(total))]
    return lasting


def _surplus(groups: Numbers, signs: Numbers) -> Numbers:
    """Return the rows that are left where as many were deleted as inserted are taken away."""
    surplus: Numbers = np.bincount(groups, weights=signs)
    candidates = np.flatnonzero(signs == np.sign(surplus)[groups])
    candidates = candidates[np.argsort(groups[candidates], kind="stable")]
    of_groups = groups[candidates]
    rank = np.arange(len(of_groups)) - np.searchsorted(of_groups, of_groups)
    return np.sort(candidates[rank < np.abs(surplus)[of_groups]])


def _has_one_of_each(groups: Numbers, signs: Numbers) -> Numbers:
    count = int(groups.max(initial=-1)) + 1
    inserts = np.bincount(groups[signs > 0], minlength=count)
    deletes = np.bincount(groups[signs < 0], minlength=count)
    has_one: Numbers = (inserts == 1) & (deletes == 1)
    return has_one


def _groups(steps: Numbers, columns: Sequence[Numbers]) -> Numbers:
    """Number rows, so that those of one step that are equal in all columns have one number."""
    groups: Numbers = np.unique(steps, return_inverse=True)[1]
    for codes in columns:
        both = groups * (int(codes.max(initial=0)) + 1) + codes
        groups = np.unique(both, return_inverse=True)[1]
    return groups


def _exact(column: pa.ChunkedArray) -> Numbers:
    """Return numbers that are equal exactly where two values are the same: -0.0 is not 0.0."""
    if pa.types.is_nested(column.type):
        return _nested(column)
    return _codes(_bits(column.combine_chunks()))


def _key(column: pa.ChunkedArray) -> Numbers:
    """Return numbers that are equal where Spark groups two values: -0.0 with 0.0."""
    values = column.combine_chunks()
    if pa.types.is_floating(values.type):
        values = pc.if_else(pc.equal(values, 0), pa.scalar(0.0, values.type), values)
    return _codes(_bits(values))


def _bits(values: pa.Array) -> pa.Array:
    """Make floating numbers whole ones: Arrow does not say how it compares NaN and -0.0."""
    if not pa.types.is_floating(values.type):
        return values
    values = pc.if_else(pc.is_nan(values), pa.scalar(math.nan, values.type), values)
    return values.view(pa.int32() if pa.types.is_float32(values.type) else pa.int64())


def _codes(values: pa.Array) -> Numbers:
    encoded = pc.dictionary_encode(values)
    # Nothing is a value like others.
    codes: Numbers = pc.add(pc.fill_null(encoded.indices, -1), 1).to_numpy()
    return codes.astype(np.int64)


def _nested(column: pa.ChunkedArray) -> Numbers:
    """Number nested values, which Arrow cannot compare."""
    known: dict[Any, int] = {}
    codes = [
        known.setdefault(_hashable(value, column.type), len(known)) for value in column.to_pylist()
    ]
    return np.array(codes, dtype=np.int64)


def _hashable(value: Any, kind: pa.DataType) -> Any:
    """Return what is equal exactly where two values are the same; maps have no order."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return frozenset(
            (_hashable(key, kind.key_type), _hashable(item, kind.item_type)) for key, item in value
        )
    if pa.types.is_list(kind):
        return tuple(_hashable(each, kind.value_type) for each in value)
    if pa.types.is_struct(kind):
        return tuple(_hashable(value[each.name], each.type) for each in kind)
    if pa.types.is_floating(kind):
        return "NaN" if math.isnan(value) else (value, math.copysign(1, value))
    return value
