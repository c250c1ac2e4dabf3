"""Parse Spark SQL; tell reads from everything else."""

from __future__ import annotations

import logging
from typing import Any, ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.parsers.spark import SparkParser

from neve.query.plain_read import NotPlainError

# It warns of statements that it does not know, which are Spark's business.
logging.getLogger("sqlglot").setLevel(logging.ERROR)


def _date_trunc(arguments: list[exp.Expr]) -> exp.Expr:
    """Keep what sqlglot takes for the short form of a unit; Spark has none and returns NULL."""
    if arguments and arguments[0].name in exp.TimeUnit.UNABBREVIATED_UNIT_NAME:
        return exp.Anonymous(this="date_trunc", expressions=arguments)
    truncated: exp.Expr = SparkParser.FUNCTIONS["DATE_TRUNC"](arguments)
    return truncated


class AnsiSpark(Spark):
    """Spark 4, where a failed cast and a division by zero are errors, not NULL."""

    SAFE_DIVISION = False

    class Parser(SparkParser):
        STRICT_CAST = True
        FUNCTIONS: ClassVar[dict[str, Any]] = {**SparkParser.FUNCTIONS, "DATE_TRUNC": _date_trunc}


def parse_read(text: str) -> exp.Query:
    """Parse a statement that only reads.

    Raises:
        NotPlainError: it is something else, several statements, or beyond the parser.
    """
    try:
        statements = [node for node in sqlglot.parse(text, read=AnsiSpark) if node is not None]
    except (SqlglotError, RecursionError) as error:
        raise NotPlainError("the parser does not know the statement") from error
    if len(statements) != 1:
        raise NotPlainError("several statements")
    (statement,) = statements
    if not isinstance(statement, exp.Query):
        raise NotPlainError(f"{statement.key} is not a query")
    # SELECT … INTO, and what a dialect may hide below a query.
    for node in statement.walk():
        if isinstance(node, (exp.DML, exp.DDL, exp.Command, exp.Into)) and not isinstance(
            node, exp.Query
        ):
            raise NotPlainError(f"{node.key} is not a query")
    return statement


def table_parts(node: Any) -> tuple[str, ...]:
    """Return the parts of a table's name, however many it has."""
    return tuple(part.name for part in node.parts)


def cte_names(query: exp.Expr) -> frozenset[str]:
    return frozenset(cte.alias.lower() for cte in query.find_all(exp.CTE))
