"""What a translated expression is, and what it is translated with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from sqlglot import exp

    from neve.query.sql_types import SqlType

# Names and types of a query's result.
Columns = tuple[tuple[str, "SqlType"], ...]


@dataclass(frozen=True)
class Typed:
    """An expression in DuckDB's SQL, with the type that both engines give it.

    Args:
        name: what Spark calls it inside the name of a column; None: not known here.
    """

    sql: str
    type: SqlType
    name: str | None


class Scope(Protocol):
    """What names mean at the place of an expression."""

    def translate(self, node: exp.Expr) -> Typed:
        """Translate a part of an expression; NotPlainError: it is not in the list."""

    def column(self, parts: tuple[str, ...]) -> Typed:
        """Resolve a name; NotPlainError: it is unknown or ambiguous."""

    def subquery(self, query: exp.Expr) -> tuple[str, Columns]:
        """Translate a query that may name columns of this scope; the SQL is in parentheses."""


Handler = Callable[[Any, Scope], Typed]
# For each kind of node, how it is translated and which of its arguments that takes into account.
Handlers = Mapping[type[Any], tuple[Handler, tuple[str, ...]]]


def quote_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def combine_names(pattern: str, *parts: Typed | str) -> str | None:
    """Fill a pattern with the names of parts; None if one has none."""
    names = [part if isinstance(part, str) else part.name for part in parts]
    return None if None in names else pattern.format(*names)
