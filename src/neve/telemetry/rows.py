"""The rows of one table, and what had to be set aside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from neve.telemetry.schemas import SCHEMAS

if TYPE_CHECKING:
    from collections.abc import Callable

    from neve.telemetry.arrays import Column
    from neve.telemetry.faults import Faults


@dataclass(frozen=True)
class DeadLetter:
    """A record that no table can hold, or a whole request."""

    request: int
    """The request's position among those decoded together."""
    path: str
    """Where the record stands in it; empty for the whole request."""
    reason: str


@dataclass(frozen=True)
class Rows:
    """What requests give one table."""

    name: str
    table: pa.Table
    dead_letters: list[DeadLetter]

    @classmethod
    def of(
        cls,
        name: str,
        columns: dict[str, Column],
        faults: Faults,
        place: Callable[[int], tuple[int, str]],
    ) -> Rows:
        """Take the rows without faults; `place` says the request and the path of the others."""
        schema = SCHEMAS[name]
        table = pa.Table.from_arrays([columns[column] for column in schema.names], schema=schema)
        reasons = faults.reasons()
        if reasons:
            is_sound = np.ones(faults.rows, np.bool_)
            is_sound[list(reasons)] = False
            table = table.filter(pa.array(is_sound))
        letters = [DeadLetter(*place(row), reason) for row, reason in reasons.items()]
        return cls(name, table, letters)
