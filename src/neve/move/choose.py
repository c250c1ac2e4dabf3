"""Which tables are meant: names, globs and whole namespaces become tables of a catalog."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from neve.errors import NotFoundError, UsageError
from neve.lake.identifier import Identifier, name_of, parse_identifier
from neve.lake.near_names import missing_namespace_error, missing_table_error
from neve.lake.profile import DEFAULT_CATALOG, profile_named, profiles
from neve.lake.table_ref import TableRef

if TYPE_CHECKING:
    from neve.lake import Lake

_GLOB = frozenset("*?[")


def choose_tables(lake: Lake, patterns: Sequence[str], target: str) -> list[TableRef]:
    """Return the tables that are to be moved, each once, in the order of the patterns.

    Args:
        patterns: `ns.table`, `ns` (all its tables), `ns.orders*`; of a further catalog with its
            name in front.

    Raises:
        NotFoundError: a pattern fits no table.
        UsageError: a table is in the target catalog already, or two would get the same name.
    """
    profile_named(lake.settings, target)
    chosen: dict[TableRef, None] = {}
    for text in patterns:
        chosen |= dict.fromkeys(tables_of(lake, text))
    names: dict[Identifier, TableRef] = {}
    for ref in chosen:
        if ref.catalog == target:
            raise UsageError(
                f"{ref.name} is in catalog {target} already", hint="name another catalog: --to"
            )
        other = names.setdefault(ref.identifier, ref)
        if other != ref:
            raise UsageError(
                f"{other.name} and {ref.name} would get the same name in catalog {target}",
                hint="move them to different catalogs",
            )
    return list(chosen)


def tables_of(lake: Lake, text: str, in_catalog: str | None = None) -> list[TableRef]:
    """Return the tables that a pattern fits.

    Args:
        in_catalog: where they are looked for, if not where the pattern says.
    """
    named, pattern = _split(lake, text)
    catalog = in_catalog or named
    tables = lake.reader(catalog).list_tables()
    profile = profile_named(lake.settings, catalog)
    # A whole namespace, or a table.
    chosen = matching_tables(profile.as_listed((*pattern, ""))[:-1], tables)
    chosen = chosen or matching_tables(profile.as_listed(pattern), tables)
    if not chosen:
        if not _GLOB.isdisjoint(text):
            known = ", ".join(map(name_of, tables[:5]))
            known += ", …" if len(tables) > 5 else ""
            raise NotFoundError(
                f"no table of catalog {catalog} matches {text}",
                hint=f"there are: {known}" if known else "the catalog has no tables yet",
            )
        if len(pattern) == 1:
            raise missing_namespace_error(pattern, sorted({table[:-1] for table in tables}))
        raise missing_table_error(catalog, pattern, tables)
    return [TableRef(catalog, table) for table in chosen]


def _split(lake: Lake, text: str) -> tuple[str, Identifier]:
    """Tell a catalog's name from a namespace's: as in Spark, a configured catalog comes first."""
    first, *rest = parse_identifier(text)
    if rest and first in profiles(lake.settings):
        return first, tuple(rest)
    return DEFAULT_CATALOG, (first, *rest)


def matching_tables(pattern: Identifier, tables: Sequence[Identifier]) -> list[Identifier]:
    """Return the table of that name, else the tables that match it, and those of namespaces."""
    if pattern in tables:
        return [pattern]
    return [
        table
        for table in tables
        if len(table) >= len(pattern)
        and all(fnmatchcase(name, part) for name, part in zip(table, pattern, strict=False))
    ]
