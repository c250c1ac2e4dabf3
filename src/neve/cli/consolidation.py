"""`neve consolidate` and `neve staged`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Optional

import typer

from neve.cli.output import as_record
from neve.cli.service import run_parts
from neve.errors import EXIT_INCOMPLETE

if TYPE_CHECKING:
    from neve.api import ConsolidationReport
    from neve.cli.app import Call
    from neve.cli.output import Output

app = typer.Typer(help="What audits hold back.", no_args_is_help=True)

_Table = Annotated[str, typer.Argument(help="namespace.table")]
_Batch = Annotated[str, typer.Argument(help="The batch's id, as neve staged list shows it.")]
_RESULT_COLUMNS = ("table", "outcome", "rows", "files", "bytes", "seconds", "error")


@app.callback()
def group() -> None:
    """What audits hold back."""


def consolidate(
    context: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="Take what is sealed now, and end.")] = False,
) -> None:
    """Turn buffered requests into tables: stage, audit, publish exactly once."""
    call: Call = context.obj
    if not once:
        run_parts(call)
        return
    with call.open() as lake, call.output.working("consolidating"):
        report = lake.consolidate()
    call.output.rows(_RESULT_COLUMNS, [as_record(one) for one in report.results])
    _tell(call.output, report)
    if report.failed:
        raise typer.Exit(EXIT_INCOMPLETE)


def _tell(output: Output, report: ConsolidationReport) -> None:
    if not report.results:
        output.say("Nothing was waiting.")
    for name, count in (
        ("requests sent twice and stored once", report.duplicate_requests),
        ("records set aside, see: neve buffer dead-letters", report.dead_letters),
        ("rows set aside by audits", report.set_aside),
        ("attribute values that do not fit their column, kept in the map", report.unfit_values),
        ("staged batches that nobody published, cleaned up", report.abandoned),
    ):
        if count:
            output.say(f"{count} {name}")
    for table, result in report.audits:
        if not result.passed:
            output.say(
                f"{table}: audit {result.name} failed for {result.failing} of {result.total} rows "
                f"({result.on_failure})"
            )


@app.command("list")
def list_batches(
    context: typer.Context,
    table: Annotated[
        Optional[str],  # noqa: UP045 - typer reads it on Python 3.10 too
        typer.Argument(help="namespace.table; all telemetry tables without it."),
    ] = None,
) -> None:
    """List the batches that are staged or held."""
    with context.obj.open() as lake:
        batches = [as_record(batch) for batch in lake.staged(table)]
    columns = ("table", "batch_id", "state", "rows", "files", "staged_at", "snapshot_id", "ref")
    context.obj.output.rows(columns, batches)


@app.command()
def show(
    context: typer.Context,
    table: _Table,
    batch: _Batch,
    limit: Annotated[int, typer.Option("--limit", help="How many rows to show.")] = 20,
) -> None:
    """Show the rows of a held batch."""
    with context.obj.open() as lake:
        answer = lake.staged_rows(table, batch, limit)
    context.obj.output.rows(answer.column_names, answer.to_pylist(maps_as_pydicts="lossy"))


@app.command()
def publish(context: typer.Context, table: _Table, batch: _Batch) -> None:
    """Publish a held batch after all; its rows come in exactly once."""
    with context.obj.open() as lake:
        outcome = lake.publish_staged(table, batch)
    _print_outcome(context, table, batch, outcome.value)


@app.command()
def discard(context: typer.Context, table: _Table, batch: _Batch) -> None:
    """Give a held batch up; its rows are never published."""
    with context.obj.open() as lake:
        lake.discard_staged(table, batch)
    _print_outcome(context, table, batch, "discarded")


def _print_outcome(context: typer.Context, table: str, batch: str, outcome: str) -> None:
    context.obj.output.record({"table": table, "batch_id": batch, "outcome": outcome})
