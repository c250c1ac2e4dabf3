"""`neve sql`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from neve.errors import SqlError

if TYPE_CHECKING:
    from neve.cli.app import Call


def sql(
    context: typer.Context,
    words: Annotated[
        Optional[list[str]],  # noqa: UP045 - typer reads it on Python 3.10 too
        typer.Argument(
            metavar="STATEMENT", help="A statement, or a file with some (x.sql); - reads stdin."
        ),
    ] = None,
    file: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("-f", "--file", metavar="FILE", help="Run the statements of a file, or -."),
    ] = None,
    output_format: Annotated[
        Optional[str],  # noqa: UP045
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
    from neve.cli.results import Options, is_for_people, print_answer, rows_wanted
    from neve.cli.statements import excerpt, read_statements
    from neve.query.spark import run_on_spark

    options = Options("vertical" if vertical else output_format, limit, result_file)
    call: Call = context.obj
    statements = read_statements(words or [], file)
    wanted = rows_wanted(call.output, options)
    with call.open() as lake:
        with call.output.working("starting Spark"):
            _ = lake.spark
        for number, statement in enumerate(statements, start=1):
            try:
                with call.output.working("running the statement"):
                    call.output.progress("running the statement")
                    answer = run_on_spark(lake, statement, wanted)
                # A program gets one document: that of the last statement.
                if number == len(statements) or is_for_people(call.output, options):
                    print_answer(answer, call.output, options)
            except SqlError as error:
                sys.stderr.writelines(line + "\n" for line in excerpt(statement, error))
                raise
