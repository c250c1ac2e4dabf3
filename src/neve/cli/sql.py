"""`neve sql`."""

from __future__ import annotations

import csv
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from neve.errors import UsageError

if TYPE_CHECKING:
    from neve.cli.app import Call

FORMATS = ("table", "json", "csv")


def sql(
    context: typer.Context,
    statement: Annotated[
        str, typer.Argument(help="One statement; - reads it from standard input.")
    ],
    output_format: Annotated[str, typer.Option("--format", help="table, json or csv.")] = "table",
) -> None:
    """Run Spark SQL on the lake. Names have two parts: namespace.table."""
    from neve.cli.output import JsonOutput
    from neve.query.spark import run_on_spark

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
        answer = run_on_spark(lake, text)
        rows = [row for batch in answer.batches for row in batch.to_pylist(maps_as_pydicts="lossy")]
    if output_format == "csv":
        writer = csv.DictWriter(sys.stdout, answer.schema.names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return
    output = JsonOutput() if output_format == "json" else call.output
    output.rows(answer.schema.names, rows)
