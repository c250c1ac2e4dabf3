"""Run a read on DuckDB, without a JVM."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlglot
from sqlglot import exp

from neve.query.duckdb_execution import Execution
from neve.query.duckdb_tables import TableScans
from neve.query.plain_read import NotPlainError, require_only
from neve.query.selects import translate_query
from neve.query.statement import cte_names

if TYPE_CHECKING:
    from neve.lake import Lake
    from neve.query.answer import Answer


def run_plain_read(lake: Lake, query: exp.Query) -> Answer:
    """Run a query that means the same as in Spark; values, types and names are Spark's.

    Raises:
        NotPlainError: it is not known to mean the same.
        SqlError: DuckDB failed before the first row.
    """
    execution = Execution()
    try:
        translated = translate_query(query, TableScans(lake, execution).scan)
        return execution.run(translated.sql, translated.columns)
    except BaseException:
        execution.close()
        raise


def run_translated(lake: Lake, query: exp.Query) -> Answer:
    """Run any query as DuckDB understands it; values, types and names may differ from Spark's.

    Raises:
        NotPlainError: a part of it would be lost: a version, a sample.
        SqlError: DuckDB failed before the first row.
    """
    execution = Execution()
    try:
        _put_scans(query, TableScans(lake, execution, alone=True))
        return execution.run(query.sql("duckdb"), None)
    except BaseException:
        execution.close()
        raise


def _put_scans(query: exp.Query, scans: TableScans) -> None:
    """Put scans in the place of the tables' names; aliases stay what the statement says."""
    ctes = cte_names(query)
    for table in list(query.find_all(exp.Table)):
        is_name = isinstance(table.this, (exp.Identifier, exp.Dot))
        if not is_name or (not table.args.get("db") and table.name.lower() in ctes):
            continue
        if table.args.get("version"):
            raise NotPlainError(f"{table.parts[-1].name} at another version than the current one")
        require_only(table, "this", "db", "catalog", "alias")
        scan, _ = scans.scan(table)
        alias = table.args.get("alias") or exp.TableAlias(
            this=exp.to_identifier(table.parts[-1].name, quoted=True)
        )
        # In a query of its own, so that DuckDB's further columns of a scan are no names here.
        rows = sqlglot.parse_one(f"SELECT * FROM {scan}", read="duckdb")  # noqa: S608 - quoted
        table.replace(exp.Subquery(this=rows, alias=alias))
    for column in list(query.find_all(exp.Column)):
        if column.args.get("db"):
            column.set("db", None)
            column.set("catalog", None)
