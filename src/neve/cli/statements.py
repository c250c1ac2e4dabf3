"""Find where SQL statements end."""

from __future__ import annotations

import re

# Texts and names in quotes, where a backslash or a doubled quote is no end, and comments: in each
# a semicolon ends nothing. An unclosed one reaches to the end.
_PARTS = re.compile(
    r"""'(?:[^'\\]|\\.|'')*(?:'|$)|"(?:[^"\\]|\\.|"")*(?:"|$)|`(?:[^`]|``)*(?:`|$)"""
    r"|--[^\n]*|/\*.*?(?:\*/|$)|;|[^'\"`;/-]+|.",
    re.DOTALL,
)


def split_statements(text: str) -> tuple[list[str], str]:
    """Return the statements that end with a semicolon, without it, and the rest."""
    statements: list[str] = []
    statement = ""
    for part in _PARTS.findall(text):
        if part == ";":
            statements.append(statement.strip())
            statement = ""
        else:
            statement += part
    return [each for each in statements if has_words(each)], statement.strip()


def without_quoted(text: str) -> str:
    """Return a text without comments, and without what is in quotes."""
    parts = _PARTS.findall(text)
    return "".join(" " if part.startswith(("'", '"', "`", "--", "/*")) else part for part in parts)


def has_words(text: str) -> bool:
    """Tell whether a text holds more than comments and spaces."""
    return any(
        not part.isspace() and not part.startswith(("--", "/*")) for part in _PARTS.findall(text)
    )
