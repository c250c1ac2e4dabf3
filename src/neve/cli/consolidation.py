"""`neve consolidate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Optional

import typer

from neve.cli.completion import complete_tables
from neve.cli.output import as_record
from neve.cli.replaying import replay
from neve.cli.service import run_parts, start_service
from neve.errors import EXIT_INCOMPLETE, NeveError, UsageError

if TYPE_CHECKING:
    from neve.api import ConsolidationReport
    from neve.cli.app import Call
    from neve.cli.output import Output
    from neve.upkeep.upkeep import UpkeepReport

_RESULT_COLUMNS = (
    "table",
    "outcome",
    "rows",
    "files",
    "bytes",
    "seconds",
    "held_batches",
    "error",
)


def consolidate(
    context: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="Take what is sealed now, and end.")] = False,
    replay_table: Annotated[
        Optional[str],  # noqa: UP045 - typer reads it on Python 3.10 too
        typer.Option(
            "--replay",
            autocompletion=complete_tables,
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
    call: Call = context.obj
    if not once:
        run_parts(call, start_service(call).settings)
        return
    with call.open() as lake, call.output.working("consolidating"):
        report = lake.consolidate()
        upkeep = lake.look_after_tables()
    rows = [
        {**as_record(result), "held_batches": report.held_batches.get(result.table, 0)}
        for result in report.results
    ]
    call.output.rows(_RESULT_COLUMNS, rows)
    _tell(call.output, report, upkeep)
    for failure in report.failures:
        call.output.error(NeveError(f"{failure.table} failed: {failure.error}"))
    if report.failed:
        raise typer.Exit(EXIT_INCOMPLETE)


def _tell(output: Output, report: ConsolidationReport, upkeep: UpkeepReport) -> None:
    if not report.results:
        output.say("Nothing was waiting.")
    for name, count in (
        ("records sent twice and stored once", report.duplicate_records),
        ("records set aside, see: neve buffer dead-letters", report.dead_letters),
        ("rows set aside by audits", report.set_aside),
        ("attribute values that do not fit their column, kept in the map", report.unfit_values),
        ("staged batches that nobody published, cleaned up", upkeep.abandoned),
        ("snapshots expired", upkeep.expired_snapshots),
    ):
        if count:
            output.say(f"{count} {name}")
    for table, result in report.audits:
        if not result.passed:
            output.say(
                f"{table}: audit {result.name} failed for {result.failing} of {result.total} rows "
                f"({result.on_failure})"
            )
    for table, reason in upkeep.failures.items():
        output.say(f"{table} was not looked after: {reason}")
