"""Values of a result as text: safe for a terminal, of a known width, shortened where asked."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import date, datetime
from itertools import islice
from typing import Any

NULL = "NULL"
ELLIPSIS = "…"

# What moves a cursor, starts an escape sequence, breaks a line or turns the writing direction.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
# A short form shows this many entries of a map or items of a list.
_SHOWN_ENTRIES = 4
_SHOWN_CHARACTERS = 40
# More of one value fits on no screen, and to measure the width of all of it may take a minute.
_MEASURED_CHARACTERS = 10_000


def safe(text: str) -> str:
    """Replace every character that a terminal would obey, and not show, by its escape."""
    return _UNSAFE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    number = ord(character)
    return _ESCAPES.get(character) or (f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}")


def whole(value: object) -> str:
    """Return a value as text of one line, with everything in it."""
    if isinstance(value, (list, tuple, dict)):
        return safe(json.dumps(plain(value), ensure_ascii=False))
    return safe(_scalar(value))


def short(value: object) -> str:
    """Return a value as text of one line, with the first entries of what is nested."""
    if isinstance(value, Mapping):
        entries = [
            f"{_nested(key)}: {_nested(inner)}"
            for key, inner in islice(value.items(), _SHOWN_ENTRIES)
        ]
        return "{" + ", ".join([*entries, *_more(value)]) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join([*map(_nested, value[:_SHOWN_ENTRIES]), *_more(value)]) + "]"
    if isinstance(value, (str, bytes)) and len(value) > _MEASURED_CHARACTERS:
        return safe(_scalar(value[:_MEASURED_CHARACTERS])) + ELLIPSIS
    return safe(_scalar(value))


def _more(value: Any) -> list[str]:
    return [f"{ELLIPSIS} {len(value) - _SHOWN_ENTRIES} more"] if len(value) > _SHOWN_ENTRIES else []


def _nested(value: object) -> str:
    text = short(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + ELLIPSIS


def _scalar(value: object) -> str:
    if value is None:
        return NULL
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return value.isoformat(" ")
    if isinstance(value, bytes):
        return value.hex()
    return str(value)


def plain(value: Any) -> Any:
    """Reduce a value to what JSON has; what JSON lacks becomes text."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    return str(value)


def fitted(text: str, width: int, *, right: bool = False) -> str:
    """Cut or pad a text to a width, in columns of the screen: many characters take two."""
    from rich.cells import cell_len, set_cell_size

    length = cell_len(text)
    if length > width:
        return set_cell_size(text, width - 1) + ELLIPSIS if width else ""
    padding = " " * (width - length)
    return padding + text if right else text + padding
