"""`neve shell`: statements one after another, with one lake open."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neve.cli.output import as_record
from neve.cli.reading import is_read, lacks_catalog
from neve.cli.sql import ENGINES, answer_statement, check_engine
from neve.cli.statements import has_words, split_statements
from neve.cli.timeline import print_description
from neve.cli.typed import read_text
from neve.errors import NeveError, UsageError

if TYPE_CHECKING:
    from neve.api import OpenLake
    from neve.cli.app import Call

_LEAVE = ("exit", "quit", r"\q")
_HELP = (
    ("statement;", "runs it; it may have many lines"),
    (r"\dt", "lists the tables"),
    (r"\d TABLE", "describes a table"),
    (r"\engine auto|spark|duckdb", "chooses what runs statements"),
    (r"\x", "shows records down the page, or as a table again"),
    (r"\timing", "says how long each took, or not"),
    (r"\q, exit, Ctrl-D", "leaves; Ctrl-C cancels a statement"),
)


def shell(
    context: typer.Context,
    engine: Annotated[
        str, typer.Option(help="auto, spark or duckdb; \\engine changes it.")
    ] = "auto",
) -> None:
    """Ask the lake in SQL, one statement after another; each ends with a semicolon.

    Where standard input is no terminal, runs the statements in it, up to the first that fails.
    """
    check_engine(engine)
    call: Call = context.obj
    with ExitStack() as stack:
        session = Session(call, stack, engine)
        # What is configured wrong is told before anything is typed.
        session.open()
        if sys.stdin.isatty():
            from neve.cli.prompt import read_lines

            call.output.say(r"Statements end with a semicolon. \? helps, \q leaves.")
            read_lines(session.open, session.enter)
        else:
            session.run_script(read_text(Path("-")))


@dataclass
class Session:
    """What one shell has open, and how it shows answers."""

    call: Call
    stack: ExitStack
    engine: str = "auto"
    vertical: bool = False
    timing: bool = True
    _lake: OpenLake | None = None
    # The lake does not exist, and an empty one stands for it.
    _is_missing: bool = False

    def open(self, statement: str = "SELECT") -> OpenLake:
        """Return the lake; only a statement that may write makes one that does not exist."""
        reads = is_read(statement)
        if self._is_missing and not (reads and lacks_catalog(self.call.load().settings)):
            self.stack.close()
            self._lake = None
        if self._lake is None:
            self._is_missing = reads and lacks_catalog(self.call.load().settings)
            self._lake = self.stack.enter_context(self.call.open(reads=reads))
        return self._lake

    def enter(self, text: str) -> bool:
        """Run what was typed; errors are told. Returns whether the shell goes on."""
        try:
            return self._run(text)
        except NeveError as error:
            self.call.output.error(error)
        except KeyboardInterrupt:
            sys.stderr.write("cancelled\n")
        return True

    def run_script(self, text: str) -> None:
        """Run statements up to the first that fails; the last one needs no semicolon.

        Raises:
            NeveError: a statement failed.
        """
        for statement in _statements(text):
            self._answer(statement)

    def _run(self, text: str) -> bool:
        text = text.strip()
        if text.lower().rstrip(";") in _LEAVE:
            return False
        if text.startswith("\\"):
            self._command(*text.rstrip(";").split(maxsplit=1))
            return True
        for statement in _statements(text):
            self._answer(statement)
        return True

    def _answer(self, statement: str) -> None:
        from neve.cli.results import Options

        options = Options("vertical" if self.vertical else None)
        lake = self.open(statement)
        answer_statement(self.call, lake, statement, self.engine, options, timing=self.timing)

    def _command(self, name: str, argument: str = "") -> None:
        commands: dict[str, Callable[[str], None]] = {
            r"\?": self._help,
            r"\h": self._help,
            r"\d": self._describe,
            r"\dt": self._list_tables,
            r"\engine": self._choose_engine,
            r"\x": self._turn_page,
            r"\timing": self._turn_timing,
        }
        if name not in commands:
            raise UsageError(f"there is no command {name}", hint=r"\? lists them")
        commands[name](argument.strip())

    def _help(self, _: str) -> None:
        for command, does in _HELP:
            self.call.output.say(f"{command:<26}{does}")

    def _list_tables(self, namespace: str) -> None:
        summaries = [as_record(summary) for summary in self.open().tables(namespace or None)]
        columns = ["table", "rows", "files", "bytes", "updated_at"]
        columns += ["error"] if any(summary["error"] for summary in summaries) else []
        self.call.output.rows(columns, summaries)

    def _describe(self, table: str) -> None:
        if table:
            print_description(self.call.output, self.open().table(table))
        else:
            self._list_tables("")

    def _choose_engine(self, engine: str) -> None:
        if engine:
            check_engine(engine)
            self.engine = engine
        self.call.output.say(f"engine: {self.engine} (of {', '.join(ENGINES)})")

    def _turn_page(self, _: str) -> None:
        self.vertical = not self.vertical
        self.call.output.say("records down the page" if self.vertical else "records as a table")

    def _turn_timing(self, _: str) -> None:
        self.timing = not self.timing
        self.call.output.say(f"timing is {'on' if self.timing else 'off'}")


def _statements(text: str) -> list[str]:
    """Return all statements; the last one needs no semicolon."""
    statements, rest = split_statements(text)
    return [*statements, *([rest] if has_words(rest) else [])]
