"""Rows that wait in memory until there are enough of them for a data file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Protocol, TypeVar

import numpy as np
import pyarrow as pa


class PendingRows:
    """Rows of one table that wait to be written."""

    def __init__(self) -> None:
        self.bytes = 0
        self._parts: list[pa.Table] = []

    def add(self, rows: pa.Table, *, copy: bool = True) -> None:
        """Keep rows, or a copy of them.

        Some of their columns are parts of what the decoder read, and keep all of it in memory: as
        much again as the rows. A copy does not.
        """
        self._parts.append(rows.take(pa.array(np.arange(len(rows)))) if copy else rows)
        self.bytes += self._parts[-1].nbytes

    def take(self) -> tuple[pa.Table, int]:
        """Return the rows and the average bytes of a row; none wait any more."""
        rows = pa.concat_tables(self._parts)
        row_bytes = self.bytes // len(rows)
        self._parts, self.bytes = [], 0
        return rows, row_bytes


class HasBytes(Protocol):
    """Something that waits in memory."""

    @property
    def bytes(self) -> int: ...


P = TypeVar("P", bound=HasBytes)


def tables_to_write(pending: Sequence[P], needed_bytes: int, most_bytes: int) -> Iterator[P]:
    """Yield the largest tables, until rows of this size fit beside the others.

    Each must be written before the next is asked for.
    """
    while any(table.bytes for table in pending):
        if sum(table.bytes for table in pending) + needed_bytes <= most_bytes:
            return
        yield max(pending, key=attrgetter("bytes"))
