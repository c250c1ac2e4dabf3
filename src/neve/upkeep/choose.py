"""Which tables are meant: names, globs and whole namespaces of the configured catalog."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from neve.lake.identifier import Identifier
from neve.lake.near_names import missing_table_error
from neve.lake.profile import DEFAULT_CATALOG

if TYPE_CHECKING:
    from neve.lake import Lake


def choose_tables(lake: Lake, patterns: Sequence[str]) -> list[Identifier]:
    """Return the tables that patterns fit, each once; without a pattern, all tables.

    Raises:
        NotFoundError: a pattern fits no table.
    """
    tables = lake.reader().list_tables()
    if not patterns:
        return tables
    chosen: dict[Identifier, None] = {}
    for pattern in patterns:
        parts = lake.profile.table(pattern)
        name = ".".join(parts)
        fitting = [parts] if parts in tables else [each for each in tables if _fits(each, name)]
        if not fitting:
            raise missing_table_error(DEFAULT_CATALOG, parts, tables)
        chosen |= dict.fromkeys(fitting)
    return list(chosen)


def _fits(table: Identifier, pattern: str) -> bool:
    name = ".".join(table)
    return fnmatchcase(name, pattern) or name.startswith(f"{pattern}.")
