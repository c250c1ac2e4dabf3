"""Repeat what a resource, a scope or a metric says on each of its rows, within reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from neve.telemetry.arrays import Column, Integers

# A few bytes can ask for any number of copies: a small request with one long attribute on its
# resource and a million empty records would fill any memory.
MAX_REPEATED_BYTES = 512 << 20


class TooWideError(Exception):
    """The requests grow beyond memory when they become rows: take fewer at a time."""


def repeat(columns: dict[str, Column], owners: Integers) -> dict[str, Column]:
    """The value of its owner for each row.

    Raises:
        TooWideError: the rows would take more than `MAX_REPEATED_BYTES`.
    """
    rows = len(owners)
    if not columns or not rows:
        return {name: column.slice(0, 0) for name, column in columns.items()}
    copies = np.bincount(owners, minlength=len(next(iter(columns.values()))))
    widths = sum(row_bytes(column) for column in columns.values())
    if copies @ widths > MAX_REPEATED_BYTES:
        raise TooWideError
    indices = pa.array(owners)
    return {
        name: pa.nulls(rows, column.type)
        if column.null_count == len(column)
        else column.take(indices)
        for name, column in columns.items()
    }


def row_bytes(column: Column) -> Any:
    """How many bytes each row of a column takes, about; a number when all take the same."""
    kind = column.type
    if pa.types.is_string(kind):
        return np.diff(_offsets(column)) + 4
    if pa.types.is_map(kind) or pa.types.is_list(kind):
        offsets = _offsets(column)
        members = column.values
        before = np.zeros(len(members) + 1, np.int64)
        np.cumsum(np.broadcast_to(row_bytes(members), len(members)), out=before[1:])
        return np.diff(before[offsets]) + 4
    if pa.types.is_struct(kind):
        return sum(row_bytes(column.field(index)) for index in range(kind.num_fields))
    return 8


def _offsets(column: Column) -> Integers:
    """Where each row begins; all columns here are whole, not slices."""
    return np.frombuffer(column.buffers()[1], np.int32, len(column) + 1).astype(np.int64)
