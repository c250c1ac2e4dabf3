"""What Spark says about a statement it refuses, without Java's stack."""

from __future__ import annotations

from collections.abc import Container

from pyspark.errors import PySparkException

from neve.errors import CatalogError, NeveError, SqlError
from neve.lake import jvm
from neve.lake.identifier import Identifier, parse_identifier

_NO_SUCH_TABLE = "TABLE_OR_VIEW_NOT_FOUND"


def missing_relation(error: Exception, catalogs: Container[str]) -> Identifier | None:
    """Return the table that a statement named and no catalog has, without its catalog's name."""
    if not isinstance(error, PySparkException) or error.getCondition() != _NO_SUCH_TABLE:
        return None
    identifier = parse_identifier((error.getMessageParameters() or {})["relationName"])
    return identifier[1:] if len(identifier) > 1 and identifier[0] in catalogs else identifier


def explain(error: Exception) -> NeveError:
    """Turn what Spark raised into one line of its own words."""
    causes = jvm.messages(error)
    if isinstance(error, PySparkException) and error.getCondition():
        return SqlError(_own_words(error))
    return CatalogError(f"Spark failed: {causes[-1]}", hint="run again with -v for Spark's own log")


def _own_words(error: PySparkException) -> str:
    """Keep the message with its line and column; drop the echoed statement and the plan."""
    kept = []
    for line in str(error).splitlines():
        if line.startswith(("== SQL", "JVM stacktrace", "'", "+-")):
            break
        kept.append(line.strip().rstrip(";"))
    return " ".join(filter(None, kept))
