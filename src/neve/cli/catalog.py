"""`neve tables`, `neve describe`, `neve sql`."""

from __future__ import annotations

import csv
import sys
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from neve.cli.output import as_record
from neve.errors import UsageError

if TYPE_CHECKING:
    from neve.cli.app import Call

FORMATS = ("table", "json", "csv")


def tables(
    context: typer.Context,
    namespace: Annotated[
        Optional[str],  # noqa: UP045 - typer reads it on Python 3.10 too
        typer.Argument(help="Only this namespace and what lies below it."),
    ] = None,
) -> None:
    """List the tables of the lake."""
    call: Call = context.obj
    with call.open() as lake, call.output.working("reading the catalog"):
        summaries = [as_record(summary) for summary in lake.tables(namespace)]
    columns = ("table", "format_version", "rows", "files", "bytes", "snapshots", "updated_at")
    call.output.rows(columns, summaries)
    if not summaries:
        call.output.say("The catalog has no tables yet. Try: neve demo")


def describe(
    context: typer.Context, table: Annotated[str, typer.Argument(help="namespace.table")]
) -> None:
    """Show a table's columns, partitions, snapshots and properties."""
    call: Call = context.obj
    with call.open() as lake, call.output.working("reading the catalog"):
        call.output.record(as_record(lake.table(table)))


def sql(
    context: typer.Context,
    statement: Annotated[
        str, typer.Argument(help="One statement; - reads it from standard input.")
    ],
    output_format: Annotated[str, typer.Option("--format", help="table, json or csv.")] = "table",
) -> None:
    """Run Spark SQL on the lake. Names have two parts: namespace.table."""
    from neve.cli.output import JsonOutput

    if output_format not in FORMATS:
        raise UsageError(
            f"--format {output_format} is unknown", hint=f"use one of {', '.join(FORMATS)}"
        )
    call: Call = context.obj
    text = sys.stdin.read() if statement == "-" else statement
    if not text.strip():
        raise UsageError("there is no statement to run", hint='try: neve sql "SHOW NAMESPACES"')
    with call.open() as lake, call.output.working("starting Spark"):
        _ = lake.spark
        call.output.progress("running the statement")
        answer = lake.query(text)
    rows = answer.to_pylist(maps_as_pydicts="lossy")
    if output_format == "csv":
        writer = csv.DictWriter(sys.stdout, answer.column_names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return
    output = JsonOutput() if output_format == "json" else call.output
    output.rows(answer.column_names, rows)
