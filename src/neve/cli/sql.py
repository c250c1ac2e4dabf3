"""`neve sql`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from neve.errors import UsageError

if TYPE_CHECKING:
    from neve.cli.app import Call


def sql(
    context: typer.Context,
    statement: Annotated[
        str, typer.Argument(help="One statement; - reads it from standard input.")
    ],
    output_format: Annotated[
        Optional[str],  # noqa: UP045 - typer reads it on Python 3.10 too
        typer.Option("--format", help="table, vertical, json, jsonl, csv or parquet."),
    ] = None,
    vertical: Annotated[
        bool, typer.Option("--vertical", help="Show each record down the page.")
    ] = False,
    limit: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Print this many rows at most [40 on a terminal, all elsewhere]."),
    ] = None,
    result_file: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("-o", "--output", metavar="FILE", help="Write the result there."),
    ] = None,
) -> None:
    """Run Spark SQL on the lake. Names have two parts: namespace.table."""
    from neve.cli.results import Options, print_answer, rows_wanted
    from neve.query.spark import run_on_spark

    options = Options("vertical" if vertical else output_format, limit, result_file)
    call: Call = context.obj
    text = sys.stdin.read() if statement == "-" else statement
    if not text.strip():
        raise UsageError("there is no statement to run", hint='try: neve sql "SHOW NAMESPACES"')
    with call.open() as lake:
        with call.output.working("starting Spark"):
            _ = lake.spark
            call.output.progress("running the statement")
            answer = run_on_spark(lake, text, rows_wanted(call.output, options))
        print_answer(answer, call.output, options)
