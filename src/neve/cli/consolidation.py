"""`neve consolidate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from neve.cli.output import as_record
from neve.cli.service import run_parts
from neve.errors import EXIT_INCOMPLETE

if TYPE_CHECKING:
    from neve.cli.output import Output
    from neve.consolidate.report import Report
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
) -> None:
    """Turn buffered requests into tables: stage, audit, publish exactly once."""
    from neve.consolidate.consolidator import Consolidator, SparkRunner
    from neve.consolidate.spec import consolidate_spec
    from neve.upkeep.spec import upkeep_spec
    from neve.upkeep.upkeep import Upkeep

    call = context.obj
    if not once:
        run_parts(call)
        return
    with call.open() as lake, call.output.working("consolidating"):
        worker = Consolidator(lake, consolidate_spec(lake.settings), SparkRunner(lake))
        report = worker.run_once(wait=True)
        worker.ledger.write()
        upkeep = Upkeep(lake, upkeep_spec(lake.settings)).run()
    namespace = lake.settings.telemetry.namespace
    held = {name.removeprefix(f"{namespace}."): n for name, n in report.held_batches.items()}
    rows = [
        {**as_record(result), "held_batches": held.get(result.table, 0)}
        for result in report.results
    ]
    call.output.rows(_RESULT_COLUMNS, rows)
    _tell(call.output, report, upkeep)
    if report.failed:
        raise typer.Exit(EXIT_INCOMPLETE)


def _tell(output: Output, report: Report, upkeep: UpkeepReport) -> None:
    if not report.results:
        output.say("Nothing was waiting.")
    for name, count in (
        ("requests sent twice and stored once", report.duplicate_requests),
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
