"""Run a statement on the engine that was asked for, or on the fastest that answers the same."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from neve.errors import NotFoundError, SqlError, UnsupportedError
from neve.query.answer import Answer
from neve.query.interrupts import interrupts_deferred

if TYPE_CHECKING:
    from neve.lake import Lake

logger = logging.getLogger(__name__)


def run(lake: Lake, statement: str, engine: str = "auto", limit: int | None = None) -> Answer:
    """Run a statement.

    Args:
        engine: `spark`, `duckdb`, or `auto`: DuckDB for reads whose answer is the same as Spark's.
        limit: how many rows will be read at most; more may come.

    Raises:
        NeveError: the statement failed; on DuckDB alone also: it is not a read.
    """
    if engine != "spark" and not _needs_spark(statement, engine):
        answer = _without_spark(lake, statement, fall_back=engine == "auto")
        if answer:
            return answer
    from neve.query.spark import run_on_spark

    return run_on_spark(lake, statement, limit)


def _without_spark(lake: Lake, statement: str, *, fall_back: bool) -> Answer | None:
    """Run a read on DuckDB; None: it is for Spark, and nothing was answered yet."""
    with interrupts_deferred():
        from neve.query.duckdb_engine import run_plain_read, run_translated
        from neve.query.plain_read import NotPlainError
        from neve.query.spark_settings import require_usual_meaning
        from neve.query.statement import parse_read

    try:
        query = parse_read(statement)
    except NotPlainError as reason:
        if fall_back:
            logger.info("Spark runs the statement: %s", reason)
            return None
        raise UnsupportedError(
            f"DuckDB only reads: {reason}",
            hint="use --engine spark",
        ) from reason
    try:
        require_usual_meaning(lake.spark_settings())
        return run_plain_read(lake, query)
    except NotPlainError as reason:
        logger.info("Not every engine answers the same: %s", reason)
    except (SqlError, UnsupportedError) as reason:
        if not fall_back:
            raise
        logger.info("Spark runs the statement: %s", reason.message)
        return None
    if fall_back:
        return None
    try:
        return run_translated(lake, query)
    except NotPlainError as reason:
        # A name of one part, of a metadata table, or of what else only Spark reads.
        if isinstance(reason.__cause__, NotFoundError):
            raise reason.__cause__ from reason
        raise UnsupportedError(
            f"DuckDB does not read {reason}", hint="use --engine spark"
        ) from reason


def _needs_spark(statement: str, engine: str) -> bool:
    """Tell whether a statement reads changes. DuckDB alone refuses it."""
    from neve.versions.clauses import find_clauses

    reads_changes = any(clause.kind != "as of" for clause in find_clauses(statement))
    if reads_changes and engine == "duckdb":
        raise UnsupportedError(
            "DuckDB does not read the changes of a table (VERSION SINCE, VERSION BETWEEN)",
            hint="use --engine spark",
        )
    return reads_changes
