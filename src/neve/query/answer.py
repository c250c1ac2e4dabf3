"""What a statement returns, whichever engine ran it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import pyarrow as pa

Engine = Literal["spark", "duckdb"]


@dataclass(frozen=True)
class Answer:
    """The rows of a statement, read batch by batch, in order, and only as far as they are wanted.

    Args:
        schema: has no columns if the statement returns no rows, such as `CREATE` or `INSERT`.
        batches: can be read once. Closing the iterator (a generator) cancels what still runs.
        count: counts all rows without `batches`, where that is cheaper than reading them.
        changed_rows: how many rows the statement inserted, updated or deleted, if known.
    """

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    engine: Engine
    count: Callable[[], int] | None = None
    changed_rows: int | None = None

    def close(self) -> None:
        """Cancel what still runs; idempotent."""
        close = getattr(self.batches, "close", None)
        if close is not None:
            close()
