"""The formats that rows are written in, one row after another: nothing is kept, nothing cut."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from types import MappingProxyType

from neve.cli.cells import plain, safe, whole
from neve.cli.grid import Column, Row, whole_record

# The first rows say how wide a column is; later ones may be wider, and are not cut.
_ROWS_MEASURED = 1000


def table(columns: Sequence[Column], rows: Iterator[Row]) -> Iterator[str]:
    """Write aligned columns."""
    from rich.cells import cell_len

    names = [safe(column.name) for column in columns]
    first = [[whole(value) for value in row] for row in islice(rows, _ROWS_MEASURED)]
    widths = [max(map(cell_len, cells)) for cells in zip(names, *first, strict=True)]

    def line(cells: Sequence[str]) -> str:
        parts = []
        for cell, width, column in zip(cells, widths, columns, strict=True):
            padding = " " * (width - cell_len(cell))
            parts.append(padding + cell if column.right else cell + padding)
        return "  ".join(parts).rstrip() + "\n"

    yield line(names)
    yield from map(line, first)
    for row in rows:
        yield line([whole(value) for value in row])


def vertical(columns: Sequence[Column], rows: Iterator[Row]) -> Iterator[str]:
    """Write each record down the page."""
    for number, row in enumerate(rows, start=1):
        yield "\n".join(whole_record(columns, row, number)) + "\n"


def json_array(columns: Sequence[Column], rows: Iterator[Row]) -> Iterator[str]:
    """Write one JSON document: an array of objects, one a line."""
    separator = "["
    for text in _objects(columns, rows):
        yield f"{separator}\n  {text}"
        separator = ","
    yield "[]\n" if separator == "[" else "\n]\n"


def json_lines(columns: Sequence[Column], rows: Iterator[Row]) -> Iterator[str]:
    """Write one JSON object a line."""
    for text in _objects(columns, rows):
        yield text + "\n"


def _objects(columns: Sequence[Column], rows: Iterator[Row]) -> Iterator[str]:
    names = _unique([column.name for column in columns])
    for row in rows:
        document = dict(zip(names, map(plain, row), strict=True))
        yield json.dumps(document, allow_nan=False)


def _unique(names: Sequence[str]) -> list[str]:
    """Number names that repeat, such as those of a join: an object has each name once."""
    unique: list[str] = []
    for name in names:
        candidate, number = name, 1
        while candidate in unique:
            number += 1
            candidate = f"{name}_{number}"
        unique.append(candidate)
    return unique


def csv(columns: Sequence[Column], rows: Iterator[Row]) -> Iterator[str]:
    """Write CSV with a header. NULL is nothing, an empty text is `""`."""
    yield ",".join(_csv_text(column.name) for column in columns) + "\n"
    for row in rows:
        yield ",".join(map(_csv_cell, row)) + "\n"


def _csv_cell(value: object) -> str:
    if value is None:
        return ""
    plain_value = plain(value)
    if isinstance(plain_value, (dict, list)):
        return _csv_text(json.dumps(plain_value, ensure_ascii=False))
    if isinstance(plain_value, bool):
        return str(plain_value).lower()
    return _csv_text(plain_value) if isinstance(plain_value, str) else str(plain_value)


def _csv_text(text: str) -> str:
    if not text or any(character in text for character in ',"\r\n') or text != text.strip():
        return '"' + text.replace('"', '""') + '"'
    return text


def safe_lines(text: str) -> str:
    """Escape, for a terminal, everything but newlines."""
    return "\n".join(map(safe, text.split("\n")))


WRITERS: MappingProxyType[str, Callable[[Sequence[Column], Iterator[Row]], Iterator[str]]] = (
    MappingProxyType(
        {
            "table": table,
            "vertical": vertical,
            "json": json_array,
            "jsonl": json_lines,
            "csv": csv,
        }
    )
)
