"""Lay rows out for a screen: as a table whose columns fit, or each record down the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from neve.cli.cells import NULL, fitted, safe, short, whole

Row = Sequence[Any]

_GAP = "  "
# A column is shown at this width at least, or not at all.
_LEAST_WIDTH = 12
_MOST_LINES = 4
_BOLD, _DIM, _PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[0m"


@dataclass(frozen=True)
class Screen:
    """The terminal that rows are laid out for.

    Args:
        colors: header and NULL in other type.
    """

    columns: int
    colors: bool = True

    def bold(self, text: str) -> str:
        return f"{_BOLD}{text}{_PLAIN}" if self.colors else text

    def dim(self, text: str) -> str:
        return f"{_DIM}{text}{_PLAIN}" if self.colors else text


@dataclass(frozen=True)
class Column:
    """A column of a result.

    Args:
        right: numbers end at the same place, so that they can be compared.
    """

    name: str
    right: bool = False


def table_lines(columns: Sequence[Column], rows: Sequence[Row], screen: Screen) -> list[str]:
    """Return a header, the rows, and what is not shown of the columns; no line is too long."""
    names = [safe(column.name) for column in columns]
    cells = [[short(value) for value in row] for row in rows]
    shown, empty = _with_values(columns, rows)
    widths = _widths([_natural_width(i, names, cells) for i in shown], screen.columns)
    fit = shown[: len(widths)]

    def line(texts: Sequence[str], values: Row | None) -> str:
        parts = []
        for i, width in zip(fit, widths, strict=True):
            text = fitted(texts[i], width, right=columns[i].right)
            text = text.rstrip() if i == fit[-1] else text
            if values is None:
                text = screen.bold(text)
            elif values[i] is None:
                text = screen.dim(text)
            parts.append(text)
        return _GAP.join(parts)

    lines = [line(names, None)]
    lines += [line(cells[number], row) for number, row in enumerate(rows)]
    if len(fit) < len(shown):
        lines.append(f"{len(columns)} columns ({len(fit)} shown); --vertical shows all")
    return lines + _note_of_empty([names[i] for i in empty], screen)


def vertical_lines(
    columns: Sequence[Column], rows: Sequence[Row], screen: Screen, *, first: int = 1
) -> list[str]:
    """Return each record down the page, one line a column; long values are cut at some lines."""
    from rich.cells import cell_len

    shown, empty = _with_values(columns, rows)
    names = [fitted(safe(columns[i].name), max(screen.columns // 2, 1)).rstrip() for i in shown]
    width = max((cell_len(name) for name in names), default=0)
    room = max(screen.columns - width - len(_GAP), 1)
    lines = []
    for number, row in enumerate(rows, start=first):
        if len(rows) > 1 or first > 1:
            lines.append(screen.dim(f"row {number}"))
        for name, i in zip(names, shown, strict=True):
            value = row[i]
            first_line, *rest = _wrapped(short(value), room)
            text = screen.dim(NULL) if value is None else first_line
            lines.append(f"{screen.bold(fitted(name, width))}{_GAP}{text}".rstrip())
            lines += [" " * (width + len(_GAP)) + part for part in rest]
    return lines + _note_of_empty([safe(columns[i].name) for i in empty], screen)


def whole_record(columns: Sequence[Column], row: Row, number: int) -> list[str]:
    """Return one record down the page with nothing cut, for a pipe or a file."""
    width = max((len(column.name) for column in columns), default=0)
    cells = zip(columns, row, strict=True)
    return [
        f"row {number}",
        *(f"{safe(column.name):<{width}}{_GAP}{whole(value)}".rstrip() for column, value in cells),
    ]


def _with_values(columns: Sequence[Column], rows: Sequence[Row]) -> tuple[list[int], list[int]]:
    """Divide columns into those to show and those that are NULL in every row."""
    empty = [i for i in range(len(columns)) if rows and all(row[i] is None for row in rows)]
    # Nothing would be left.
    if len(empty) == len(columns):
        empty = []
    return [i for i in range(len(columns)) if i not in empty], empty


def _note_of_empty(names: Sequence[str], screen: Screen) -> list[str]:
    if not names:
        return []
    noun = "1 column is" if len(names) == 1 else f"{len(names)} columns are"
    return [fitted(f"{noun} NULL in every row: {', '.join(names)}", screen.columns).rstrip()]


def _natural_width(i: int, names: Sequence[str], cells: Sequence[Sequence[str]]) -> int:
    from rich.cells import cell_len

    return max(cell_len(names[i]), *(cell_len(row[i]) for row in cells), 1)


def _widths(natural: Sequence[int], room: int) -> list[int]:
    """Choose how many columns fit, from the left, and share the room among them."""
    widths: list[int] = []
    for width in natural:
        least = min(width, _LEAST_WIDTH)
        taken = sum(widths) + len(_GAP) * len(widths)
        if widths and taken + least > room:
            break
        widths.append(min(least, room))
    spare = room - sum(widths) - len(_GAP) * (len(widths) - 1)
    # The narrowest first: each gets an equal share of what is left, and gives back the rest.
    for done, i in enumerate(sorted(range(len(widths)), key=lambda i: natural[i])):
        more = min(natural[i] - widths[i], spare // (len(widths) - done))
        widths[i] += max(more, 0)
        spare -= max(more, 0)
    return widths


def _wrapped(text: str, width: int) -> list[str]:
    from rich.cells import chop_cells

    lines = chop_cells(text, width) or [""]
    if len(lines) > _MOST_LINES:
        last = fitted(lines[_MOST_LINES - 1] + lines[_MOST_LINES], width)
        lines = [*lines[: _MOST_LINES - 1], last]
    return lines
