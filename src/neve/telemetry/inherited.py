"""Columns that rows take over from the request, resource, scope or metric they belong to.

A resource's attributes are sent once and stored on each of its rows. A small request can so become
many gigabytes; that is why rows are made in ranges, and never all at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeGuard

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from neve.telemetry.arrays import Column, Integers, Lists, Mask, Messages


@dataclass(frozen=True)
class Inherited:
    """The columns of some owners, and which owner each row has."""

    columns: dict[str, Column]
    owners: Integers

    def row_bytes(self) -> Integers:
        """Return about how many bytes each row takes over."""
        return row_bytes(self.columns)[self.owners]

    def column(self, name: str) -> Column:
        """Return one column of all rows."""
        return self.columns[name].take(pa.array(self.owners))

    def rows(self, start: int, end: int) -> dict[str, Column]:
        """Return the columns of the rows from `start` up to `end`."""
        indices: Column = pa.array(self.owners[start:end])
        return {
            name: pa.nulls(len(indices), column.type)
            if column.null_count == len(column)
            else column.take(indices)
            for name, column in self.columns.items()
        }

    def only(self, kept: Mask) -> Inherited:
        """Return the same without the rows that are not kept."""
        return Inherited(self.columns, self.owners[kept])


def row_bytes(columns: dict[str, Column]) -> Integers:
    """Return about how many bytes each row of some columns takes."""
    rows = len(next(iter(columns.values())))
    total = np.zeros(rows, np.int64)
    for column in columns.values():
        total += _value_bytes(column)
    return total


def _value_bytes(column: Column) -> Integers | int:
    """Return the size of each value, or one number when all have the same."""
    if pa.types.is_string(column.type):
        return np.diff(_offsets(column)) + 4
    if _has_members(column):
        members = column.values
        before = np.zeros(len(members) + 1, np.int64)
        np.cumsum(np.broadcast_to(_value_bytes(members), len(members)), out=before[1:])
        return np.diff(before[_offsets(column)]) + 4
    if _has_fields(column):
        fields = [column.field(position) for position in range(column.type.num_fields)]
        return sum((_value_bytes(field) for field in fields), start=np.int64(0))
    return 8


def _has_members(column: Column) -> TypeGuard[Lists]:
    return bool(pa.types.is_map(column.type) or pa.types.is_list(column.type))


def _has_fields(column: Column) -> TypeGuard[Messages]:
    return bool(pa.types.is_struct(column.type))


def _offsets(column: Column) -> Integers:
    """Return where each value of a column, or of a slice of one, begins."""
    start = column.offset * np.dtype(np.int32).itemsize
    return np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, start).astype(np.int64)
