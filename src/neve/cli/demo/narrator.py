"""How the demo tells its story: numbered steps that fit 80 columns, with tables below them."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from neve.cli.output import Output

_COLUMNS = 78
_INDENT = "   "


class Narrator:
    """Tells a person what is done; programs get none of it."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._numbers = count(1)

    def step(self, text: str) -> None:
        """Tell the next step, under its number."""
        self._fill(text, f"{next(self._numbers)}. ")

    def explain(self, text: str) -> None:
        """Add a paragraph to the step."""
        self._fill(text, _INDENT)

    def show(self, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
        """Show a table between empty lines."""
        self._output.say("")
        self._output.show(columns, rows)
        self._output.say("")

    def draw(self, text: str) -> None:
        """Show lines as they are."""
        self._output.say(f"\n{text}\n")

    def working(self, text: str) -> AbstractContextManager[None]:
        """Say what is being done, for as long as the block runs."""
        working: AbstractContextManager[None] = self._output.working(text)
        return working

    def _fill(self, text: str, start: str) -> None:
        self._output.say(
            textwrap.fill(
                text,
                _COLUMNS,
                initial_indent=start,
                subsequent_indent=_INDENT,
                break_on_hyphens=False,
                break_long_words=False,
            )
        )
