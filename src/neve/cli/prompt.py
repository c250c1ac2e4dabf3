"""The prompt of `neve shell`: editing, history, completion. Loads prompt_toolkit."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import Completer, Completion
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from neve.cli.statements import split_statements
from neve.errors import NeveError
from neve.lake.identifier import quote_identifier

if TYPE_CHECKING:
    from prompt_toolkit.document import Document

    from neve.lake import Lake

_PROMPT = "neve> "
_CONTINUED = "  ... "
# Longer than it takes to write a word, shorter than it takes to wonder where a new table is.
_NAMES_SECONDS = 10.0
_PART = r"(?:\w|`[^`]*`)+"
_NAME_AT_END = re.compile(rf"{_PART}(?:\.{_PART})*\.?$|`[^`]*$")
_TABLE_NAMES = re.compile(
    rf"\b(?:FROM|JOIN|TABLE|INTO|UPDATE)\s+({_PART}(?:\.{_PART})+)", re.IGNORECASE
)
_WORDS = """
    SELECT FROM WHERE GROUP BY ORDER HAVING LIMIT OFFSET JOIN LEFT RIGHT FULL CROSS ON AS AND OR NOT
    IN IS NULL LIKE BETWEEN CASE WHEN THEN ELSE END DISTINCT UNION ALL WITH EXISTS CAST INTERVAL
    ASC DESC NULLS FIRST LAST COUNT SUM MIN MAX AVG COALESCE DATE_TRUNC CURRENT_TIMESTAMP()
    INSERT INTO VALUES UPDATE SET DELETE MERGE CREATE TABLE NAMESPACE DROP ALTER DESCRIBE SHOW
    TABLES NAMESPACES CALL VERSION OF SINCE TIMESTAMP HOUR DAY MINUTE
"""


def read_lines(open_lake: Callable[[], Lake], enter: Callable[[str], bool]) -> None:
    """Ask for statements until `enter` says that it was the last, or Ctrl-D."""
    session: PromptSession[str] = PromptSession(
        history=_history(),
        completer=LakeCompleter(open_lake),
        complete_while_typing=False,
        multiline=Condition(lambda: not _is_complete(session.default_buffer.text)),
        prompt_continuation=_CONTINUED,
    )
    while True:
        try:
            text = session.prompt(_PROMPT)
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        if text.strip() and not enter(text):
            return


def _is_complete(text: str) -> bool:
    """Tell whether Enter ends what is typed, or begins a new line of it."""
    text = text.strip()
    if not text or text.startswith("\\") or text.lower() in ("exit", "quit"):
        return True
    statements, rest = split_statements(text)
    return bool(statements) and not rest


def history_file() -> Path:
    """Return where the shell's history lies: in the user's directory for state."""
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(base).expanduser() / "neve" / "history"


def _history() -> History:
    """Open the history, which only its owner may read; without a home it is not kept."""
    path = history_file()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_APPEND, 0o600))
        path.chmod(0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))


class LakeCompleter(Completer):
    """Completes words of SQL, names of tables, and columns of the tables that are typed."""

    def __init__(self, open_lake: Callable[[], Lake]) -> None:
        self._open_lake = open_lake
        self._read_at = 0.0
        self._tables: list[str] = []

    def get_completions(self, document: Document, _: Any) -> Iterable[Completion]:
        typed = _NAME_AT_END.search(document.text_before_cursor)
        word = typed[0] if typed else ""
        names = [*self._columns(document.text), *self._table_names()]
        for name in dict.fromkeys(names):
            if name.lower().startswith(word.lower()):
                yield Completion(name, -len(word))
        if word and "." not in word:
            for keyword in _WORDS.split():
                if keyword.lower().startswith(word.lower()):
                    yield Completion(keyword if word.isupper() else keyword.lower(), -len(word))

    def _table_names(self) -> list[str]:
        if time.monotonic() - self._read_at > _NAMES_SECONDS:
            try:
                self._tables = [_written(name) for name in self._open_lake().reader().list_tables()]
            except NeveError:
                self._tables = []
            self._read_at = time.monotonic()
        return self._tables

    def _columns(self, text: str) -> list[str]:
        columns = []
        for name in _TABLE_NAMES.findall(text):
            try:
                lake = self._open_lake()
                ref = lake.ref(name)
                metadata = lake.reader(ref.catalog).read(ref.identifier)
            except NeveError:
                continue
            columns += [_written((field["name"],)) for field in metadata.fields]
        return columns


def _written(identifier: tuple[str, ...]) -> str:
    """Write a name as people do: in backticks only where it needs them."""
    parts = [
        part if re.fullmatch(r"[A-Za-z_]\w*", part) else quote_identifier([part])
        for part in identifier
    ]
    return ".".join(parts)
