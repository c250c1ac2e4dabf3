"""Run a statement on Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from neve.query.answer import Answer

if TYPE_CHECKING:
    import pyarrow as pa

    from neve.lake import Lake


def run_on_spark(lake: Lake, statement: str, limit: int | None = None) -> Answer:
    """Run any statement that Spark knows.

    Args:
        limit: how many rows will be read at most; more may come.
    """
    return read_frame(lake, lambda: lake.sql(statement), limit)


def read_frame(lake: Lake, make_frame: Callable[[], Any], limit: int | None = None) -> Answer:
    """Read the rows of a DataFrame; Ctrl-C ends what makes it, too."""
    query = lake.stream(make_frame)

    def batches() -> Iterator[pa.RecordBatch]:
        with lake.explaining():
            yield from query.batches(limit)

    def count() -> int:
        with lake.explaining():
            return query.count()

    changed = None if query.schema.names else query.changed_rows()
    return Answer(query.schema, batches(), "spark", count, changed)
