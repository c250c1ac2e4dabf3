"""What a person typed after `neve sql`: words, a file or standard input; where it is wrong."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from neve.cli.cells import safe
from neve.cli.statements import has_words, split_statements
from neve.errors import SqlError, UsageError

_PLACE = re.compile(r"\bline (\d+),? pos (\d+)\b")
_EXCERPT_CHARACTERS = 78
# What Python makes of bytes that are no character.
_SURROGATE = re.compile("[\ud800-\udfff]")


def read_statements(words: Sequence[str], file: Path | None) -> list[str]:
    """Return the statements to run, in order."""
    if file is not None and words:
        raise UsageError("a statement and -f exclude each other")
    text = read_text(file) if file is not None else _typed(words)
    if not text.isascii() and _SURROGATE.search(text):
        raise UsageError("the statement is not UTF-8")
    statements, rest = split_statements(text)
    if has_words(rest):
        statements.append(rest)
    if not statements:
        raise UsageError("there is no statement to run", hint='try: neve sql "SHOW NAMESPACES"')
    return statements


def _typed(words: Sequence[str]) -> str:
    if len(words) != 1:
        _require_no_file_names(words)
        return " ".join(words)
    (word,) = words
    is_one_word = len(word.split()) == 1
    if word == "-" or (is_one_word and word.lower().endswith(".sql")):
        return read_text(Path(word))
    return word


def _require_no_file_names(words: Sequence[str]) -> None:
    """Refuse `SELECT * FROM t` without quotes, of which the shell made `SELECT a b c FROM t`."""
    names = {path.name for path in Path().iterdir() if not path.name.startswith(".")}
    selects = len(words) > 1 and words[0].upper() == "SELECT"
    if selects and words[1] in names and names <= set(words):
        raise UsageError(
            f"the shell replaced * by the names of files ({words[1]}, …)",
            hint='put the statement in quotes: neve sql "SELECT * FROM …"',
        )


def read_text(path: Path) -> str:
    """Read a file, or standard input, which is called `-`."""
    is_input = str(path) == "-"
    try:
        return sys.stdin.read() if is_input else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        name = "standard input" if is_input else path
        raise UsageError(f"{name} cannot be read: {reason}") from error


def excerpt(statement: str, error: SqlError) -> list[str]:
    """Return the line of a statement that an error names, with a caret under the place."""
    place = _PLACE.search(error.message)
    lines = statement.split("\n")
    if place is None or int(place[1]) > len(lines):
        return []
    from rich.cells import cell_len

    line, position = lines[int(place[1]) - 1], int(place[2])
    start = max(0, position - _EXCERPT_CHARACTERS // 2) if len(line) > _EXCERPT_CHARACTERS else 0
    before = safe(line[start:position])
    shown = before + safe(line[position : start + _EXCERPT_CHARACTERS])
    return [f"  {shown}", f"  {' ' * cell_len(before)}^"]
