"""Print the answer to a statement: for a screen, for a pipe, or into a file.

On a terminal a result is cut to what fits: some rows, some columns, the first entries of a map.
Elsewhere nothing is cut, and rows are written as they come, so that memory does not grow.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from neve.cli import formats
from neve.cli.grid import Column, Screen, table_lines, vertical_lines
from neve.cli.output import JsonOutput
from neve.errors import StorageError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from neve.cli.grid import Row
    from neve.cli.output import Output
    from neve.query.answer import Answer

Batches = Iterator["pa.RecordBatch"]

FORMATS = ("table", "vertical", "json", "jsonl", "csv", "parquet")
TERMINAL_ROWS = 40


@dataclass(frozen=True)
class Options:
    """How a person wants to see a result.

    Args:
        format: one of `FORMATS`; None chooses by the file's name, by `--json`, and for a
            terminal by the number of rows.
        limit: print this many rows at most; None means 40 on a terminal, all elsewhere.
        file: write there instead of standard output.
    """

    format: str | None = None
    limit: int | None = None
    file: Path | None = None

    def __post_init__(self) -> None:
        if self.format is not None and self.format not in FORMATS:
            raise UsageError(
                f"--format {self.format} is unknown", hint=f"use one of {', '.join(FORMATS)}"
            )
        if self.format == "parquet" and self.file is None:
            raise UsageError(
                "--format parquet needs a file to write to", hint="add: -o result.parquet"
            )
        if self.limit is not None and self.limit < 0:
            raise UsageError("--limit must not be negative")


def rows_wanted(output: Output, options: Options) -> int | None:
    """Return how many rows `print_answer` reads at most, or None for all of them."""
    if options.limit is not None:
        # One more tells whether there are more.
        return options.limit + 1 if _for_screen(output, options) else options.limit
    return TERMINAL_ROWS + 1 if _for_screen(output, options) else None


def is_for_people(output: Output, options: Options) -> bool:
    """Tell whether results may be printed one after another."""
    return options.file is None and _format(output, options) in ("table", "vertical")


def print_answer(answer: Answer, output: Output, options: Options) -> None:
    """Print or write an answer, and close it.

    A reader that goes away (`| head`) ends it silently. A file is whole or not there at all.
    """
    try:
        with output.working("running the statement"):
            first = next(answer.batches, None)
        batches = chain(() if first is None else (first,), answer.batches)
        if not answer.schema.names:
            _print_done(answer, output, options)
        elif options.file is not None:
            _write_file(answer, batches, output, options, options.file)
        elif _for_screen(output, options):
            _show(answer, batches, output, options)
        else:
            with _reader_may_leave():
                form = _format(output, options)
                _write_stream(answer.schema, batches, form, options.limit, sys.stdout)
    finally:
        answer.close()


def _for_screen(output: Output, options: Options) -> bool:
    return sys.stdout.isatty() and is_for_people(output, options)


def _format(output: Output, options: Options) -> str:
    if options.format is not None:
        return options.format
    suffix = options.file.suffix[1:].lower() if options.file else ""
    if suffix in FORMATS:
        return suffix
    return "json" if isinstance(output, JsonOutput) else "table"


def _print_done(answer: Answer, output: Output, options: Options) -> None:
    """Answer a statement that returns no rows, such as `CREATE` or `INSERT`."""
    changed = answer.changed_rows
    form = _format(output, options)
    if form in ("json", "jsonl"):
        rows: list[Row] = [] if changed is None else [(changed,)]
        sys.stdout.writelines(formats.WRITERS[form]([Column("rows")], iter(rows)))
    elif form != "csv":
        sys.stdout.write("OK\n" if changed is None else f"OK, {counted(changed, 'row')}\n")


def _show(answer: Answer, batches: Batches, output: Output, options: Options) -> None:
    """Show the first rows, then say how many there are."""
    limit = TERMINAL_ROWS if options.limit is None else options.limit
    rows: list[Row] = []
    read = 0
    for batch in batches:
        rows += _rows_of(batch.slice(0, limit - len(rows)))
        read += len(batch)
        if read > limit:
            break
    screen = Screen(shutil.get_terminal_size().columns, colors="NO_COLOR" not in os.environ)
    alone = options.format is None and read == 1
    lay_out = vertical_lines if options.format == "vertical" or alone else table_lines
    _write_lines(lay_out(_columns(answer.schema), rows, screen))
    if read > limit:
        total = _total(answer, read, output) or f"more than {counted(limit, 'row')}"
        _write_lines([f"{total}, {limit:,} shown; --limit shows more"])
    elif not alone:
        _write_lines([counted(read, "row")])


def _total(answer: Answer, read: int, output: Output) -> str | None:
    """Count all rows, or return None if the person does not wait for that and presses Ctrl-C."""
    try:
        with output.working("counting the rows"):
            if answer.count is None:
                return counted(read + sum(map(len, answer.batches)), "row")
            answer.close()
            return counted(answer.count(), "row")
    except KeyboardInterrupt:
        return None


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _write_lines(lines: list[str]) -> None:
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


@contextmanager
def _reader_may_leave() -> Iterator[None]:
    """End silently when whoever reads standard output went away, as `head` does."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # Else Python fails once more when it flushes what is left, at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _write_file(
    answer: Answer, batches: Batches, output: Output, options: Options, path: Path
) -> None:
    """Write beside the file and rename: nobody sees half of it, and no old one is lost."""
    form = _format(output, options)
    # A device or a pipe is written to; a file may have other names, which stay its names.
    is_replaced = path.is_file() or not path.exists()
    target = path.resolve()
    temporary = target.with_name(f".{target.name}.{os.getpid()}") if is_replaced else path
    try:
        if form == "parquet":
            written = _write_parquet(answer.schema, batches, options.limit, temporary)
        else:
            with temporary.open("w", encoding="utf-8", newline="") as stream:
                written = _write_stream(answer.schema, batches, form, options.limit, stream)
        if is_replaced:
            temporary.replace(target)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror}") from error
    finally:
        if is_replaced:
            temporary.unlink(missing_ok=True)
    if isinstance(output, JsonOutput):
        output.record({"file": str(path), "rows": written})
    else:
        output.say(f"{counted(written, 'row')} written to {path}")


def _write_parquet(schema: pa.Schema, batches: Batches, limit: int | None, path: Path) -> int:
    from pyarrow import parquet

    written = 0
    with parquet.ParquetWriter(path, schema) as writer:
        for batch in _limited(batches, limit):
            writer.write_batch(batch)
            written += len(batch)
    return written


def _write_stream(
    schema: pa.Schema, batches: Batches, form: str, limit: int | None, stream: IO[str]
) -> int:
    """Write rows as they come; return how many."""
    written = 0

    def rows() -> Iterator[Row]:
        nonlocal written
        for batch in _limited(batches, limit):
            yield from _rows_of(batch)
            written += len(batch)

    texts = formats.WRITERS[form](_columns(schema), rows())
    # The only format that leaves control characters as they are: a terminal would obey them.
    if form == "csv" and stream.isatty():
        texts = map(formats.safe_lines, texts)
    for text in texts:
        stream.write(text)
    return written


def _limited(batches: Batches, limit: int | None) -> Batches:
    """Read no further than the limit."""
    left = limit
    for batch in batches:
        part = batch if left is None else batch.slice(0, left)
        yield part
        if left is not None:
            left -= len(part)
            if left == 0:
                return


def _columns(schema: pa.Schema) -> list[Column]:
    from pyarrow.types import is_decimal, is_floating, is_integer

    numbers = (is_decimal, is_floating, is_integer)
    return [
        Column(field.name, right=any(is_kind(field.type) for is_kind in numbers))
        for field in schema
    ]


def _rows_of(batch: pa.RecordBatch) -> Iterator[Row]:
    return zip(*map(_values, batch.columns), strict=True)


def _values(column: pa.Array) -> list[Any]:
    """Return a column's values as Python has them; as text where Python has none."""
    import pyarrow as pa

    values: list[Any]
    try:
        # Python's times end at microseconds.
        if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
            column = column.cast(pa.string())
        values = column.to_pylist(maps_as_pydicts="lossy")
    except (ValueError, OverflowError):  # and at the year 9999
        values = column.cast(pa.string()).to_pylist()
    return values
