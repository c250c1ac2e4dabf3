"""Names of namespaces and tables: parsing what people type, quoting what Spark reads."""

from __future__ import annotations

import re
from collections.abc import Iterable

from neve.errors import UsageError

Identifier = tuple[str, ...]

_PART = re.compile(r"`(?P<quoted>(?:[^`]|``)+)`|(?P<plain>[^`.\s]+)")


def parse_identifier(text: str) -> Identifier:
    """Split `ns.table`, with backticks around parts that hold dots."""
    parts: list[str] = []
    at = 0
    while found := _PART.match(text, at):
        parts.append(found["quoted"].replace("``", "`") if found["quoted"] else found["plain"])
        at = found.end()
        if at == len(text):
            return tuple(parts)
        if text[at] != ".":
            break
        at += 1
    raise UsageError(
        f"'{text}' is not a table name", hint="write namespace.table, with `…` around odd parts"
    )


def name_of(parts: Iterable[str]) -> str:
    """Write an identifier as `parse_identifier` reads it: backticks only where they are needed."""
    return ".".join(
        part if (plain := _PART.fullmatch(part)) and plain["plain"] else quote_identifier([part])
        for part in parts
    )


def quote_identifier(parts: Iterable[str]) -> str:
    """Write an identifier so that Spark reads exactly these parts."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)
