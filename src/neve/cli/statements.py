"""Find where SQL statements end."""

from __future__ import annotations

import re
from collections.abc import Iterator

# Texts and names in quotes, where a backslash or a doubled quote is no end, and comments: in each
# a semicolon ends nothing. An unclosed one reaches to the end.
_PART = re.compile(
    r"""'(?:[^'\\]|\\.|'')*(?:'|$)|"(?:[^"\\]|\\.|"")*(?:"|$)|`(?:[^`]|``)*(?:`|$)"""
    r"|--[^\n]*|/\*|;|[^'\"`;/-]+|.",
    re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")


def split_statements(text: str) -> tuple[list[str], str]:
    """Return the statements that end with a semicolon, without it, and the rest."""
    statements: list[str] = []
    statement = ""
    for part in _parts(text):
        if part == ";":
            statements.append(statement.strip())
            statement = ""
        else:
            statement += part
    return [each for each in statements if has_words(each)], statement.strip()


def without_quoted(text: str) -> str:
    """Return a text without comments, and without what is in quotes."""
    quoted = ("'", '"', "`", "--", "/*")
    return "".join(" " if part.startswith(quoted) else part for part in _parts(text))


def has_words(text: str) -> bool:
    """Tell whether a text holds more than comments and spaces."""
    return any(not part.isspace() and not part.startswith(("--", "/*")) for part in _parts(text))


def _parts(text: str) -> Iterator[str]:
    """Cut a text into quoted texts, comments, semicolons and what is between them."""
    at = 0
    while part := _PART.match(text, at):
        end = _comment_end(text, at) if part[0] == "/*" else part.end()
        yield text[at:end]
        at = end


def _comment_end(text: str, start: int) -> int:
    """Return where a comment ends; as in Spark, comments may stand in comments."""
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, start):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    return len(text)
