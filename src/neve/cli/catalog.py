"""`neve tables` and `neve describe`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from neve.ages import age_text
from neve.cli.completion import complete_namespaces, complete_tables
from neve.cli.output import as_record
from neve.cli.reading import end_if_failed, name_lake
from neve.cli.timeline import print_description
from neve.errors import EXIT_FAILED, EXIT_INCOMPLETE
from neve.sizes import size_text

if TYPE_CHECKING:
    from neve.cli.app import Call

_COLUMNS = (
    *("table", "format_version", "rows", "files", "bytes", "snapshots", "updated_at"),
    "error",
)
# What fits on a screen of 80 columns.
_SHOWN_COLUMNS = ("table", "rows", "files", "size", "snapshots", "age")


def tables(
    context: typer.Context,
    namespace: Annotated[
        Optional[str],  # noqa: UP045 - typer reads it on Python 3.10 too
        typer.Argument(
            help="Only this namespace and what lies below it.", autocompletion=complete_namespaces
        ),
    ] = None,
) -> None:
    """List the tables of the lake.

    Ends with 3 if some cannot be read, with 1 if none can.
    """
    call: Call = context.obj
    with call.open(reads=True) as lake, call.output.working("reading the catalog"):
        summaries = [as_record(summary) for summary in lake.tables(namespace)]
    call.output.data(_COLUMNS, summaries)
    readable = [summary for summary in summaries if not summary["error"]]
    if readable:
        call.output.show(_SHOWN_COLUMNS, [_shown(summary) for summary in readable])
    if not summaries:
        call.output.say(f"The lake has no tables yet: {name_lake(call.load())}. Try: neve demo")
    failures = {each["table"]: each["error"] for each in summaries if each["error"]}
    end_if_failed(call.output, failures, EXIT_INCOMPLETE if readable else EXIT_FAILED)


def _shown(summary: dict[str, Any]) -> dict[str, Any]:
    """Write size and time as people read them."""
    size = summary["bytes"]
    return {
        **summary,
        "size": None if size is None else size_text(size),
        "age": age_text(time.time() - summary["updated_at"].timestamp()),
    }


def describe(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="namespace.table", autocompletion=complete_tables)],
    history: Annotated[
        Optional[int],  # noqa: UP045 - as above
        typer.Option(metavar="N", help="Show N snapshots, the newest first [10; all with --json]."),
    ] = None,
) -> None:
    """Show a table's columns, partitions and properties, and its history of snapshots."""
    call: Call = context.obj
    with call.open(reads=True) as lake, call.output.working("reading the catalog"):
        description = lake.table(table)
    print_description(call.output, description, history)
