"""`neve sql`."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from neve.errors import SqlError, UsageError

if TYPE_CHECKING:
    from neve.api import OpenLake
    from neve.cli.app import Call
    from neve.cli.results import Options

ENGINES = ("auto", "spark", "duckdb")


def sql(
    context: typer.Context,
    words: Annotated[
        Optional[list[str]],  # noqa: UP045 - typer reads it on Python 3.10 too
        typer.Argument(
            metavar="STATEMENT", help="A statement, or a file with some (x.sql); - reads stdin."
        ),
    ] = None,
    file: Annotated[
        Optional[Path],  # noqa: UP045 - as above
        typer.Option("-f", "--file", metavar="FILE", help="Run the statements of a file, or -."),
    ] = None,
    output_format: Annotated[
        Optional[str],  # noqa: UP045 - as above
        typer.Option("--format", help="table, vertical, json, jsonl, csv or parquet."),
    ] = None,
    vertical: Annotated[
        bool, typer.Option("--vertical", help="Show each record down the page.")
    ] = False,
    limit: Annotated[
        Optional[int],  # noqa: UP045 - as above
        typer.Option(help="Print this many rows at most [40 on a terminal, all elsewhere]."),
    ] = None,
    result_file: Annotated[
        Optional[Path],  # noqa: UP045 - as above
        typer.Option("-o", "--output", metavar="FILE", help="Write the result there."),
    ] = None,
    engine: Annotated[
        str,
        typer.Option(help="spark, duckdb (reads only), or auto: duckdb if it answers the same."),
    ] = "auto",
) -> None:
    """Run Spark SQL on the lake. Names have two parts: namespace.table."""
    from neve.cli.reading import is_read
    from neve.cli.results import Options, is_for_people
    from neve.cli.typed import read_statements

    check_engine(engine)
    options = Options("vertical" if vertical else output_format, limit, result_file)
    call: Call = context.obj
    statements = read_statements(words or [], file)
    *earlier, last = statements
    # A program gets one document: that of the last statement.
    shown = is_for_people(call.output, options)
    with call.open(reads=all(map(is_read, statements))) as lake:
        for statement in earlier:
            answer_statement(call, lake, statement, engine, options, shown=shown)
        answer_statement(call, lake, last, engine, options)


def check_engine(engine: str) -> None:
    if engine not in ENGINES:
        raise UsageError(f"--engine {engine} is unknown", hint=f"use one of {', '.join(ENGINES)}")


def answer_statement(
    call: Call,
    lake: OpenLake,
    text: str,
    engine: str,
    options: Options,
    *,
    timing: bool = True,
    shown: bool = True,
) -> None:
    """Run a statement and print its answer; tell a person which engine it was, and how long.

    Args:
        shown: else the statement runs for what it changes, and nothing is printed.
    """
    from neve.cli.results import print_answer, rows_wanted
    from neve.cli.typed import excerpt
    from neve.query.run import run

    started = time.monotonic()
    try:
        with call.output.working("running the statement"):
            answer = run(lake, text, engine, rows_wanted(call.output, options))
        if not shown:
            answer.close()
            return
        print_answer(answer, call.output, options)
    except SqlError as error:
        sys.stderr.writelines(line + "\n" for line in excerpt(text, error))
        raise
    if timing and sys.stderr.isatty():
        took = f"{time.monotonic() - started:.1f} s ({answer.engine})"
        sys.stderr.write(f"\x1b[2m{took}\x1b[0m\n" if "NO_COLOR" not in os.environ else f"{took}\n")
