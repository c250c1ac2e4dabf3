"""The rows of one table, made in parts of bounded size, and the records that were set aside."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from neve import limits
from neve.telemetry.inherited import row_bytes
from neve.telemetry.schemas import SCHEMAS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from neve.telemetry.arrays import Column, Integers, Mask
    from neve.telemetry.faults import Faults
    from neve.telemetry.inherited import Inherited


@dataclass(frozen=True)
class DeadLetter:
    """A record that no table can hold, or a whole request."""

    request: int
    """The request's position among those decoded together."""
    path: str
    """Where the record stands in it; empty for the whole request."""
    reason: str


@dataclass(frozen=True)
class TableRows:
    """The rows that requests give one table: their own columns, and those they inherit."""

    name: str
    own: dict[str, Column]
    inherited: list[Inherited]
    """From its request first, as `Context.inherited` has it."""
    dead_letters: list[DeadLetter]

    @classmethod
    def without_faults(
        cls,
        name: str,
        own: dict[str, Column],
        inherited: list[Inherited],
        faults: Faults,
        place: Callable[[int], tuple[int, str]],
    ) -> TableRows:
        """Keep the rows without faults; `place` says the request and the path of the others."""
        reasons = faults.reasons()
        if not reasons:
            return cls(name, own, inherited, [])
        letters = [DeadLetter(*place(row), reason) for row, reason in reasons.items()]
        is_sound: Mask = np.ones(faults.rows, np.bool_)
        is_sound[list(reasons)] = False
        return cls(name, own, inherited, letters).only(is_sound)

    def only(self, kept: Mask) -> TableRows:
        """Return the same without the rows that are not kept."""
        chosen: Column = pa.array(kept)
        own = {column: values.filter(chosen) for column, values in self.own.items()}
        inherited = [columns.only(kept) for columns in self.inherited]
        return TableRows(self.name, own, inherited, self.dead_letters)

    @property
    def requests(self) -> Integers:
        """The position of each row's request among those read together."""
        return self.inherited[0].owners

    def __len__(self) -> int:
        return len(next(iter(self.own.values())))

    @property
    def nbytes(self) -> int:
        """The bytes of all columns, with what is inherited counted once."""
        inherited = (column for one in self.inherited for column in one.columns.values())
        return sum(column.nbytes for column in (*self.own.values(), *inherited))

    def row_bytes(self) -> Integers:
        """Return about how many bytes each row takes with what it inherits."""
        sizes: Integers = sum(
            (columns.row_bytes() for columns in self.inherited), start=np.int64(0)
        )
        own_bytes = sum(column.nbytes for column in self.own.values())
        # Only where it matters: the own columns of usual rows are small, and there are many.
        is_large = own_bytes > limits.DECODED_PART_BYTES
        return sizes + (row_bytes(self.own) if is_large else own_bytes // len(self))

    def parts(self) -> Iterator[pa.Table]:
        """Yield the rows in order, as tables of about `DECODED_PART_BYTES`."""
        schema = SCHEMAS[self.name]
        for start, end in pairwise(self._starts()):
            columns = {name: column.slice(start, end - start) for name, column in self.own.items()}
            for inherited in self.inherited:
                columns |= inherited.rows(start, end)
            yield pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)

    def _starts(self) -> list[int]:
        """Return where each part begins, and the number of rows."""
        rows = len(self)
        if not rows:
            return []
        part = np.cumsum(self.row_bytes()) // limits.DECODED_PART_BYTES
        return [*np.flatnonzero(np.diff(part, prepend=-1)).tolist(), rows]
