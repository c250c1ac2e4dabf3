"""What people give to name a range: versions, modes and keys, in SQL, commands and functions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime, timezone
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal, cast

from neve.errors import UsageError

if TYPE_CHECKING:
    from neve.versions.resolve import Version

Mode = Literal["changes", "net", "appends"]
MODES = ("changes", "net", "appends")
_OPTIONS = ("mode", "keys")
MOST_DIGITS = 19  # of a snapshot id
_COLUMN = re.compile(r"(?<![^,])(?:\s*`(?:[^`]|``)+`\s*|[^`,]*)(?![^,])")


def parse_version(value: Any) -> Version:
    """Return a version: a number is a snapshot id, and a date its midnight.

    What a text means, only the table's refs tell.

    Raises:
        UsageError: the value is of a type that no version has.
    """
    if isinstance(value, str):
        return value
    # Those of NumPy are no `int`.
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=timezone.utc)
    raise UsageError(
        f"a version is a snapshot id, a tag, a branch or a time, not {type(value).__name__}"
    )


def parse_mode(table: str, text: str) -> Mode:
    """Check the name of a mode.

    Raises:
        UsageError: there is no such mode.
    """
    if text not in MODES:
        raise UsageError(
            f"{table}: there is no mode '{text}'", hint=f"use one of {', '.join(MODES)}"
        )
    return cast("Mode", text)


def parse_keys(table: str, text: str) -> list[str]:
    """Split `a, b`, with backticks around names that hold commas.

    Raises:
        UsageError: a name is missing, or a backtick.
    """
    parts = [part.strip() for part in _COLUMN.findall(text)]
    if not all(parts) or ",".join(_COLUMN.findall(text)) != text:
        raise UsageError(f"{table}: '{text}' is no list of key columns", hint="write keys as: a, b")
    return [part[1:-1].replace("``", "`") if part[0] == "`" else part for part in parts]


def parse_options(table: str, options: Mapping[str, str]) -> tuple[Mode, list[str] | None]:
    """Read what `WITH (…)` says after a clause.

    Raises:
        UsageError: there is no such option, or it has no such value.
    """
    for name in options:
        if name not in _OPTIONS:
            raise UsageError(
                f"{table}: there is no option '{name}' of a version clause",
                hint=f"use {' or '.join(_OPTIONS)}",
            )
    keys = options.get("keys")
    return (
        parse_mode(table, options.get("mode", "changes")),
        None if keys is None else parse_keys(table, keys),
    )
