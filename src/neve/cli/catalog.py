"""`neve tables` and `neve describe`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Optional

import typer

from neve.cli.completion import complete_namespaces, complete_tables
from neve.cli.output import as_record
from neve.cli.reading import name_lake

if TYPE_CHECKING:
    from neve.cli.app import Call


def tables(
    context: typer.Context,
    namespace: Annotated[
        Optional[str],  # noqa: UP045 - typer reads it on Python 3.10 too
        typer.Argument(
            help="Only this namespace and what lies below it.", autocompletion=complete_namespaces
        ),
    ] = None,
) -> None:
    """List the tables of the lake."""
    call: Call = context.obj
    with call.open(reads=True) as lake, call.output.working("reading the catalog"):
        summaries = [as_record(summary) for summary in lake.tables(namespace)]
    columns = ("table", "format_version", "rows", "files", "bytes", "snapshots", "updated_at")
    call.output.rows(columns, summaries)
    if not summaries:
        call.output.say(f"The lake has no tables yet: {name_lake(call.load())}. Try: neve demo")


def describe(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="namespace.table", autocompletion=complete_tables)],
) -> None:
    """Show a table's columns, partitions, snapshots and properties."""
    call: Call = context.obj
    with call.open(reads=True) as lake, call.output.working("reading the catalog"):
        call.output.record(as_record(lake.table(table)))
