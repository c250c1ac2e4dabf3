"""Run a statement on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.query.answer import Answer

if TYPE_CHECKING:
    from neve.lake import Lake


def run_on_spark(lake: Lake, statement: str) -> Answer:
    """Run any statement that Spark knows."""
    rows = lake.query(statement)
    return Answer(rows.schema, iter(rows.to_batches()), "spark")
