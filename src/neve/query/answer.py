"""What a statement returns, whichever engine ran it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import pyarrow as pa

Engine = Literal["spark", "duckdb"]


@dataclass(frozen=True)
class Answer:
    """The rows of a statement, read batch by batch, in order, and only as far as they are wanted.

    Args:
        batches: can be read once. Closing the iterator (a generator) cancels what still runs.
    """

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    engine: Engine
