"""Convert fields that may hold what no table can, and remember the rows with such values."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from neve.telemetry.arrays import Column, Integers, Lists, Mask

# Times are kept up to, but not in, the year 2262, in whose April a long of nanoseconds ends.
END_OF_TIME = int(datetime(2262, 1, 1, tzinfo=timezone.utc).timestamp()) * 1_000_000_000


class Faults:
    """The rows that cannot be stored, and why.

    In such a row the columns that the methods return hold any value.
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._faults: list[tuple[Mask, str]] = []

    def time(self, name: str, column: Column) -> Column:
        """Convert nanoseconds since 1970; zero means unknown and becomes NULL."""
        nanos = _as_longs(column)
        self.add((nanos < 0) | (nanos >= END_OF_TIME), f"{name} is after the year 2261")
        return pa.array(nanos, mask=nanos == 0)

    def long(self, name: str, column: Column) -> Column:
        """Convert unsigned 64-bit values to longs."""
        values = _as_longs(column)
        self.add(values < 0, f"{name} does not fit a long")
        return pa.array(values)

    def longs(self, name: str, lists: Lists) -> Lists:
        """Convert lists of unsigned 64-bit values to lists of longs."""
        values = self.of_members(lists).long(name, lists.values)
        return pa.ListArray.from_arrays(lists.offsets, values)

    def of_members(self, lists: Lists) -> Faults:
        """Return the faults of the members of each row's list; each is a fault of the row too."""
        return _MemberFaults(self, lists)

    def add(self, is_faulty: Mask, reason: str) -> None:
        if is_faulty.any():
            self._faults.append((is_faulty, reason))

    def reasons(self) -> dict[int, str]:
        """Return the rows that cannot be stored, each with the first reason."""
        first: dict[int, str] = {}
        for is_faulty, reason in self._faults:
            for row in np.flatnonzero(is_faulty).tolist():
                first.setdefault(row, reason)
        return dict(sorted(first.items()))


class _MemberFaults(Faults):
    def __init__(self, row_faults: Faults, lists: Lists) -> None:
        super().__init__(len(lists.values))
        self._row_faults = row_faults
        self._lists = lists

    def add(self, is_faulty: Mask, reason: str) -> None:
        if is_faulty.any():
            rows = np.zeros(self._row_faults.rows, np.bool_)
            rows[self._lists.value_parent_indices().to_numpy()[is_faulty]] = True
            self._row_faults.add(rows, reason)


def _as_longs(column: Column) -> Integers:
    """Read the same 64 bits with a sign: what does not fit a long is negative."""
    return column.to_numpy().view(np.int64)
