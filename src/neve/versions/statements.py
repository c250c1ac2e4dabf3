"""Run Spark SQL that has version clauses.

A range becomes a temporary view of the rows that changed. A time after `VERSION AS OF` becomes the
id of the snapshot that was current then. All else reaches Spark as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from neve.errors import NeveError, SqlError, UnsupportedError
from neve.versions.clause_words import may_have_clause

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from neve.lake import Lake
    from neve.lake.lake import SqlArgs
    from neve.versions.stored_queries import StoredQuery

Execute = Callable[[str, "SqlArgs"], "DataFrame"]

_RANGE_IN_TEXT = re.compile(r"near '(SINCE|BETWEEN)'", re.IGNORECASE)
_NO_SNAPSHOT_AT = re.compile(r"Cannot find a snapshot older than (\S+)")


def run_statement(lake: Lake, execute: Execute, statement: str, args: SqlArgs) -> DataFrame:
    """Run a statement, whether or not it has version clauses.

    Args:
        execute: runs Spark SQL as it is.
        args: the values of parameters. Those in clauses are taken out; Spark binds the others.

    Raises:
        NotFoundError: there is no such table or version.
        UsageError: a version, an option or a parameter makes no sense.
        UnsupportedError: the clause stands after something that has no versions, or in a query
            that is stored for other sessions.
    """
    try:
        if not may_have_clause(statement):
            return execute(statement, args)
        return _run(lake, execute, statement, args)
    except NeveError as error:
        _explain_immediate(statement, error)
        if too_early := _NO_SNAPSHOT_AT.search(error.message):
            _explain_time(lake, statement, too_early[1], error)
        raise


def _run(lake: Lake, execute: Execute, statement: str, args: SqlArgs) -> DataFrame:
    from neve.versions.clauses import find_clauses, place_in_original, splice
    from neve.versions.replacing import Replacing
    from neve.versions.statement_views import StatementViews

    clauses = find_clauses(statement)
    has_range = any(clause.kind != "as of" for clause in clauses)
    stored = _require_storable(statement) if has_range else None
    with StatementViews(lake, stored) as views:
        replacing = Replacing(lake, args, views.add)
        replacements = [(each, text) for each in clauses if (text := replacing.text_for(each))]
        try:
            return execute(splice(statement, replacements), replacing.remaining_args())
        except SqlError as error:
            message = place_in_original(statement, replacements, error.message)
            raise SqlError(message, hint=error.hint, code=error.code) from error
        except NeveError as error:
            replacing.explain(clauses, error)
            raise


def _require_storable(statement: str) -> StoredQuery | None:
    """Return what a statement with a range stores, if it may."""
    from neve.versions.clauses import tokenize
    from neve.versions.stored_queries import stored_query

    stored = stored_query(tokenize(statement))
    if stored is not None and not stored.is_temporary:
        raise UnsupportedError(
            f"{stored.name} would be read by other sessions and engines, which do not know VERSION "
            "SINCE and VERSION BETWEEN",
            hint="use CREATE TEMPORARY VIEW, or CREATE TABLE … AS",
        )
    return stored


def _explain_time(lake: Lake, statement: str, moment: str, error: NeveError) -> None:
    """Name the table that had no snapshot yet at the time after its TIMESTAMP AS OF."""
    from neve.versions.clauses import tables_at_times
    from neve.versions.named_tables import named_table, readable_metadata
    from neve.versions.resolve import resolve_version

    for name in tables_at_times(statement):
        ref = named_table(lake, name)
        if metadata := readable_metadata(lake, ref):
            try:
                resolve_version(ref.name, metadata, moment)
            except NeveError as reason:
                raise reason from error


def _explain_immediate(statement: str, error: NeveError) -> None:
    """Say that Spark itself reads the text of EXECUTE IMMEDIATE, where that has a range.

    The text may be in a variable, so that only Spark's refusal shows it.
    """
    from neve.versions.clauses import tokenize

    if not isinstance(error, SqlError) or "IMMEDIATE" not in statement.upper():
        return
    words = [token.text.upper() for token in tokenize(statement)[:2]]
    if words == ["EXECUTE", "IMMEDIATE"] and (found := _RANGE_IN_TEXT.search(error.message)):
        raise UnsupportedError(
            f"Spark reads the text of EXECUTE IMMEDIATE by itself, and does not know VERSION "
            f"{found[1].upper()}",
            hint="run the text as a statement of its own: lake.sql(text, args) binds parameters",
        ) from error
