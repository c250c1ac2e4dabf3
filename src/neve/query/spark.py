"""Run a statement on Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from neve.query.answer import Answer

if TYPE_CHECKING:
    import pyarrow as pa

    from neve.lake import Lake


def run_on_spark(lake: Lake, statement: str, limit: int | None = None) -> Answer:
    """Run any statement that Spark knows.

    Args:
        limit: how many rows will be read at most; more may come.
    """
    query = lake.run(statement)

    def batches() -> Iterator[pa.RecordBatch]:
        with lake.explaining():
            yield from query.batches(limit)

    def count() -> int:
        with lake.explaining():
            return query.count()

    changed = None if query.schema.names else query.changed_rows()
    return Answer(query.schema, batches(), "spark", count, changed)
