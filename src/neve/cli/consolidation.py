"""`neve consolidate` and `neve staged`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Optional

import typer

from neve.cli.output import as_record
from neve.cli.replaying import replay
from neve.cli.service import run_parts
from neve.errors import EXIT_INCOMPLETE, NeveError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from neve.cli.output import Output
    from neve.consolidate.report import Report
    from neve.lake import Lake

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
    replay_table: Annotated[
        Optional[str],  # noqa: UP045 - typer reads it on Python 3.10 too
        typer.Option(
            "--replay",
            metavar="TABLE",
            help="Write retained segments again into a table that lacks them, and end.",
        ),
    ] = None,
    since: Annotated[
        Optional[str],  # noqa: UP045 - typer reads it on Python 3.10 too
        typer.Option(
            "--from", metavar="TIME", help="Replay only segments with requests received since then."
        ),
    ] = None,
) -> None:
    """Turn buffered requests into tables: stage, audit, publish exactly once."""
    if replay_table is not None:
        replay(context, replay_table, since)
        return
    if since is not None:
        raise UsageError("--from goes with --replay TABLE")
    from neve.consolidate.consolidator import Consolidator, SparkRunner
    from neve.consolidate.spec import consolidate_spec

    call = context.obj
    if not once:
        run_parts(call)
        return
    with call.open() as lake, call.output.working("consolidating"):
        worker = Consolidator(lake, consolidate_spec(lake.settings), SparkRunner(lake))
        report = worker.run_once(wait=True)
    call.output.rows(_RESULT_COLUMNS, [as_record(one) for one in report.results])
    _tell(call.output, report)
    for failure in report.failures:
        call.output.error(NeveError(f"{failure.table} failed: {failure.error}"))
    if report.failed:
        raise typer.Exit(EXIT_INCOMPLETE)


def _tell(output: Output, report: Report) -> None:
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
    from neve.publish.staged_batches import list_staged

    with context.obj.open() as lake:
        found = [as_record(one) for one in list_staged(lake, table)]
    columns = ("table", "batch_id", "state", "rows", "files", "staged_at", "snapshot_id", "ref")
    context.obj.output.rows(columns, found)


@app.command()
def show(
    context: typer.Context,
    table: _Table,
    batch: _Batch,
    limit: Annotated[int, typer.Option("--limit", help="How many rows to show.")] = 20,
) -> None:
    """Show the rows of a held batch."""
    from neve.publish.staged_batches import show as show_batch

    with context.obj.open() as lake:
        answer = show_batch(lake, table, batch, limit)
    context.obj.output.rows(answer.column_names, answer.to_pylist(maps_as_pydicts="lossy"))


@app.command()
def publish(context: typer.Context, table: _Table, batch: _Batch) -> None:
    """Publish a held batch after all; its rows come in exactly once."""
    from neve.publish.staged_batches import release

    _settle(context, table, batch, lambda lake: release(lake, table, batch).value)


@app.command()
def discard(context: typer.Context, table: _Table, batch: _Batch) -> None:
    """Give a held batch up; its rows are never published."""
    from neve.publish.staged_batches import discard as give_up

    def settle(lake: Lake) -> str:
        give_up(lake, table, batch)
        return "discarded"

    _settle(context, table, batch, settle)


def _settle(context: typer.Context, table: str, batch: str, settle: Callable[[Lake], str]) -> None:
    with context.obj.open() as lake:
        outcome = settle(lake)
    context.obj.output.record({"table": table, "batch_id": batch, "outcome": outcome})
