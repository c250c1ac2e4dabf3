"""What a command prints: text for people, or one JSON document for programs."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from typing import Any, Protocol

from neve.cli.cells import plain, safe
from neve.errors import NeveError
from neve.masking import SecretMask


class Output(Protocol):
    """How results, progress and errors reach whoever called."""

    def say(self, text: str) -> None:
        """Tell a person something; programs do not get it."""

    def rows(self, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
        """Print a table; in JSON an array of objects."""

    def show(self, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
        """Show a person a table on the way to the result; programs do not get it."""

    def data(self, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
        """Give a program an array of objects; people are shown another table."""

    def record(self, value: Mapping[str, Any]) -> None:
        """Print one thing; in JSON an object."""

    def document(self, value: Mapping[str, Any]) -> None:
        """Give a program an object; people are shown it in other words."""

    def progress(self, text: str) -> None:
        """Say what is being done now."""

    def working(self, text: str) -> Any:
        """Show that work is going on for as long as the block runs."""

    def error(self, error: NeveError) -> None:
        """Print what went wrong and what to do."""

    def hide(self, secrets: frozenset[str]) -> None:
        """Keep these strings out of everything printed from now on."""

    def redact(self, text: str) -> str:
        """Return a text without what `hide` was told, and without passwords of addresses."""


class _Diagnostics:
    """Progress and errors, on standard error; the same for text and JSON."""

    def __init__(self) -> None:
        self._mask = SecretMask()
        self.status: Any = None

    def hide(self, secrets: frozenset[str]) -> None:
        self._mask = self._mask.with_secrets(secrets)

    def redact(self, text: str) -> str:
        return self._mask(text)

    def progress(self, text: str) -> None:
        if self.status is not None:
            self.status.update(_styled(self.redact(text)))
        else:
            sys.stderr.write(safe(self.redact(text)) + "\n")

    @contextmanager
    def working(self, text: str) -> Iterator[None]:
        if not sys.stderr.isatty():
            yield
            return
        from rich.console import Console

        with Console(stderr=True).status(_styled(text)) as status:
            self.status = status
            try:
                yield
            finally:
                self.status = None

    def error(self, error: NeveError) -> None:
        text = " ".join(str(error).split())
        # What failed may be a value that somebody sent.
        sys.stderr.write(f"neve: {safe(self.redact(text))}\n")


class TextOutput(_Diagnostics):
    """For people: rich tables on a terminal, aligned columns elsewhere."""

    def say(self, text: str) -> None:
        sys.stdout.write(text + "\n")

    def rows(self, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        # A pipe has no width: nothing may be cut off there.
        console = Console() if sys.stdout.isatty() else Console(width=100_000, no_color=True)
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in columns:
            numbers = rows and all(_is_number(row.get(column)) for row in rows)
            table.add_column(
                Text(safe(column)), justify="right" if numbers else "left", overflow="fold"
            )
        for row in rows:
            table.add_row(*(Text(self._text(row.get(column))) for column in columns))
        console.print(table)

    show = rows

    def data(self, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
        pass

    def document(self, value: Mapping[str, Any]) -> None:
        pass

    def record(self, value: Mapping[str, Any]) -> None:
        width = max((len(key) for key in value), default=0)
        for key, inner in value.items():
            if _is_table(inner):
                self.say(f"{key}:")
                self.rows(list(inner[0]), inner)
            else:
                self.say(f"{key:<{width}}  {self._text(inner)}")

    def _text(self, value: object) -> str:
        return safe(self.redact(_cell(value)))


class JsonOutput(_Diagnostics):
    """For programs: one document on standard output, nothing else there."""

    def say(self, text: str) -> None:
        pass

    def show(self, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
        pass

    def rows(self, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
        self._print([{column: row.get(column) for column in columns} for row in rows])

    data = rows

    def record(self, value: Mapping[str, Any]) -> None:
        self._print(dict(value))

    document = record

    def _print(self, document: Any) -> None:
        sys.stdout.write(json.dumps(plain(document), indent=2, allow_nan=False) + "\n")


def as_record(value: Any) -> dict[str, Any]:
    """Turn a frozen result into what `record` and `rows` print."""
    return dataclasses.asdict(value)


def _styled(text: str) -> Any:
    """Return a text as rich shows it as it is: brackets in it are no markup."""
    from rich.text import Text

    return Text(safe(text))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_table(value: object) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and isinstance(value[0], Mapping)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, (datetime, date)):
        return value.isoformat(" ") if isinstance(value, datetime) else value.isoformat()
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple, dict)):
        return json.dumps(plain(value), ensure_ascii=False)
    return str(value)
