"""Commands that only read: an embedded lake that does not exist is not made, and is named."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from neve.cli.statements import without_quoted
from neve.errors import EXIT_INCOMPLETE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from neve.cli.output import Output
    from neve.config import CatalogSettings, Loaded, Settings

_READING_WORDS = {"select", "show", "describe", "desc", "explain", "values", "table"}
# Of Hive's SQL: what they begin may end in an INSERT.
_OPENING_WORDS = {"with", "from"}
_WRITING = re.compile(r"\b(insert|update|delete|merge|create|drop|alter|truncate)\b", re.IGNORECASE)
_FIRST_WORD = re.compile(r"[\s(]*(\w+)")


def is_read(statement: str) -> bool:
    """Say whether a statement certainly changes nothing; what is not known may."""
    text = without_quoted(statement)
    first = _FIRST_WORD.match(text)
    word = first[1].lower() if first else ""
    return word in _READING_WORDS or (word in _OPENING_WORDS and not _WRITING.search(text))


def end_if_failed(
    output: Output, failures: Mapping[str, object], status: int = EXIT_INCOMPLETE
) -> None:
    """Name each table that cannot be read, with the reason, and end with a status that says so."""
    for table, reason in failures.items():
        output.progress(f"{table} cannot be read: {reason}")
    if failures:
        raise typer.Exit(status)


def with_empty_catalogs(settings: Settings, directory: Path) -> Settings:
    """Return settings in which embedded catalogs that do not exist are empty ones in `directory`.

    Both engines would make the file of an embedded catalog when they connect.
    """
    catalogs = {
        name: _existing(catalog, directory / name) for name, catalog in settings.catalogs.items()
    }
    # No catalog can be called so.
    catalog = _existing(settings.catalog, directory / "-")
    return settings.model_copy(update={"catalog": catalog, "catalogs": catalogs})


def lacks_catalog(settings: Settings) -> bool:
    """Say whether an embedded catalog that is configured does not exist."""
    return any(map(_is_missing, (settings.catalog, *settings.catalogs.values())))


def _existing(catalog: CatalogSettings, directory: Path) -> CatalogSettings:
    if not _is_missing(catalog):
        return catalog
    return catalog.model_copy(update={"uri": f"sqlite:///{directory}/catalog.db"})


def _is_missing(catalog: CatalogSettings) -> bool:
    if catalog.type != "sqlite" or not catalog.uri:
        return False
    try:
        Path(catalog.uri.removeprefix("sqlite:///")).stat()
    except FileNotFoundError:
        return True
    except OSError:
        # A place where it cannot be: whoever connects says why.
        return False
    return False


def name_lake(loaded: Loaded) -> str:
    """Name the catalog, without its secrets, and where its settings come from."""
    from neve.config.load import DEFAULT_FILE
    from neve.masking import mask_logins

    catalog = loaded.settings.catalog
    where = mask_logins(catalog.uri or catalog.warehouse or catalog.type)
    if loaded.path:
        place = f"configuration {loaded.path.resolve()}"
    else:
        place = f"built-in defaults, no {DEFAULT_FILE} in {Path.cwd()}"
    variables = sorted(
        source
        for key, source in loaded.sources.items()
        if key[0] == "catalog" and source.startswith("NEVE_")
    )
    return ", ".join([f"catalog {where}", place, *variables])
