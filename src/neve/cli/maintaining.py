"""`neve maintain`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from neve.cli.maintenance_plan import show_plans
from neve.cli.output import as_record
from neve.cli.table_arguments import ChosenTables
from neve.errors import EXIT_INCOMPLETE, UsageError
from neve.sizes import size_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from neve.api import MaintenanceReport
    from neve.cli.app import Call
    from neve.cli.output import Output

_REPORT_COLUMNS = (
    *("table", "actions", "rewritten_files", "new_files", "rewritten_bytes", "new_bytes"),
    *("stored_bytes", "written_share", "writes_per_row"),
    *("expired_snapshots", "deleted_rows", "removed_orphans", "removed_bytes"),
    *("conflicts", "seconds", "left", "notes", "error"),
)
_SHOWN_REPORTS = (
    *("table", "actions", "files", "read", "written", "expired", "orphans", "seconds"),
    "outcome",
)


def maintain(
    context: typer.Context,
    tables: ChosenTables = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done and why, and do nothing.")
    ] = False,
    max_bytes: Annotated[
        Optional[str],  # noqa: UP045 - typer reads it on Python 3.10 too
        typer.Option(metavar="SIZE", help="Rewrite at most so much, such as 10GiB."),
    ] = None,
    max_minutes: Annotated[
        Optional[float],  # noqa: UP045 - as above
        typer.Option(metavar="N", min=0, help="Begin nothing more after so many minutes."),
    ] = None,
) -> None:
    """Keep tables fast and small while others write and read them.

    Makes a plan from the health of the tables and carries it out, each action in a commit of its
    own. Ends with 3 if a table failed.
    """
    call: Call = context.obj
    limit = _size(max_bytes)
    with call.open(reads=dry_run) as lake:
        with call.output.working("reading manifests"):
            plans = lake.plan_maintenance(*(tables or ()), max_bytes=limit)
        if dry_run:
            show_plans(call.output, plans)
            failed = any(plan.error for plan in plans)
        else:
            with call.output.working("maintaining tables"):
                reports = lake.maintain(plans=plans, max_minutes=max_minutes)
            _show_reports(call.output, reports)
            failed = any(report.failed for report in reports)
    if failed:
        raise typer.Exit(EXIT_INCOMPLETE)


def _size(text: str | None) -> int | None:
    from neve.config.section import byte_count

    try:
        return None if text is None else int(byte_count(text))
    except ValueError as error:
        raise UsageError(f"--max-bytes {text}: {error}") from None


def _show_reports(output: Output, reports: Sequence[MaintenanceReport]) -> None:
    records = [as_record(report) for report in reports]
    output.data(_REPORT_COLUMNS, records)
    worked = [report for report in reports if report.actions or report.left or report.error]
    if worked:
        output.show(_SHOWN_REPORTS, [_shown(report) for report in worked])
    else:
        output.say("Nothing was to be done.")
    for report in reports:
        if report.error:
            output.say(f"{report.table} failed: {report.error}")
        for line in _amplification(report):
            output.say(f"{report.table}: {line}")
        for note in report.notes:
            output.say(f"{report.table}: {note}")
        for reason in report.left:
            output.say(f"{report.table}: left for the next time: {reason}")


def _amplification(report: MaintenanceReport) -> Iterator[str]:
    if not report.rewritten_files:
        return
    if report.written_share is not None:
        yield (
            f"{size_text(report.new_bytes)} written anew, {report.written_share:.0%} of the "
            f"{size_text(report.stored_bytes)} that it had"
        )
    if report.writes_per_row is not None:
        yield f"each row was written at most {report.writes_per_row:.2f} times so far, on average"


def _shown(report: MaintenanceReport) -> dict[str, Any]:
    before, after = report.rewritten_files, report.new_files
    return {
        "table": report.table,
        "actions": report.actions,
        "files": f"{before:,} became {after:,}" if before else "",
        "read": size_text(report.rewritten_bytes) if before else "",
        "written": size_text(report.new_bytes) if report.new_bytes else "",
        "expired": report.expired_snapshots,
        "orphans": report.removed_orphans,
        "seconds": round(report.seconds, 1),
        "outcome": _outcome(report),
    }


def _outcome(report: MaintenanceReport) -> str:
    if report.error:
        return "failed"
    return "left" if report.left and not report.actions else "done"
