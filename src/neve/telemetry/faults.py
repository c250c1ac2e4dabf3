"""Fields that may hold what no table can: converted, with the rows at fault remembered."""

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
    """Why rows cannot be stored.

    The columns returned hold anything at all where a row is at fault.
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._found: list[tuple[Mask, str]] = []

    def time(self, name: str, column: Column) -> Column:
        """Nanoseconds since 1970; zero means unknown and is NULL."""
        nanos = _as_longs(column)
        self.add((nanos < 0) | (nanos >= END_OF_TIME), f"{name} is after the year 2261")
        return pa.array(nanos, mask=nanos == 0)

    def long(self, name: str, column: Column) -> Column:
        """An unsigned 64-bit value as a long."""
        values = _as_longs(column)
        self.add(values < 0, f"{name} does not fit a long")
        return pa.array(values)

    def longs(self, name: str, lists: Lists) -> Lists:
        """Lists of unsigned 64-bit values as lists of longs."""
        values = self.of_members(lists).long(name, lists.values)
        return pa.ListArray.from_arrays(lists.offsets, values)

    def of_members(self, lists: Lists) -> Faults:
        """The faults of the members of lists, one list a row; each is also a fault of its row."""
        return _MemberFaults(self, lists)

    def add(self, is_faulty: Mask, reason: str) -> None:
        if is_faulty.any():
            self._found.append((is_faulty, reason))

    def reasons(self) -> dict[int, str]:
        """The rows at fault, each with the first reason found."""
        first: dict[int, str] = {}
        for is_faulty, reason in self._found:
            for row in np.flatnonzero(is_faulty).tolist():
                first.setdefault(row, reason)
        return dict(sorted(first.items()))


class _MemberFaults(Faults):
    def __init__(self, of_rows: Faults, lists: Lists) -> None:
        super().__init__(len(lists.values))
        self._of_rows = of_rows
        self._lists = lists

    def add(self, is_faulty: Mask, reason: str) -> None:
        if is_faulty.any():
            rows = np.zeros(self._of_rows.rows, np.bool_)
            rows[self._lists.value_parent_indices().to_numpy()[is_faulty]] = True
            self._of_rows.add(rows, reason)


def _as_longs(column: Column) -> Integers:
    """The same 64 bits with a sign: what does not fit a long is negative."""
    return column.to_numpy().view(np.int64)
