"""`neve health`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neve.ages import age_text
from neve.cli.bars import bar
from neve.cli.output import as_record
from neve.cli.reading import name_lake
from neve.cli.table_arguments import ChosenTables
from neve.errors import EXIT_INCOMPLETE
from neve.sizes import size_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neve.api import TableHealth
    from neve.cli.app import Call
    from neve.cli.output import Output

SHOWN_COLUMNS = ("table", "health", "files", "small", "size", "deleted", "snapshots")
_BAR_COLUMNS = 10


def health(
    context: typer.Context,
    tables: ChosenTables = None,
    listing: Annotated[
        bool, typer.Option("--listing", help="List files, too: those that no snapshot names.")
    ] = False,
) -> None:
    """Score tables by what makes them slow or large, and say what would help.

    Reads metadata only and changes nothing. Ends with 3 if a table cannot be read.
    """
    call: Call = context.obj
    with call.open(reads=True) as lake, call.output.working("reading manifests"):
        reports = lake.health(*(tables or ()), listing=listing)
    columns = list(as_record(reports[0])) if reports else []
    call.output.data(columns, [as_record(report) for report in reports])
    if not reports:
        call.output.say(f"The lake has no tables yet: {name_lake(call.load())}. Try: neve demo")
        return
    show_health(call.output, reports)
    if listing:
        call.output.say(f"\n{_listing_text(reports, call.load().settings.upkeep.orphan_age)}")
    if any(report.error for report in reports):
        raise typer.Exit(EXIT_INCOMPLETE)


def _listing_text(reports: Sequence[TableHealth], orphan_age_seconds: float) -> str:
    searched = [each.unreferenced_files for each in reports if each.unreferenced_files is not None]
    return (
        f"{len(searched):,} of {len(reports):,} tables were searched for files that no snapshot "
        f"names, older than {age_text(orphan_age_seconds)}: {sum(searched):,} found"
    )


def show_health(output: Output, reports: Sequence[TableHealth]) -> None:
    """Show people a line for each table, and below what was found."""
    output.show(SHOWN_COLUMNS, [shown_health(report) for report in reports])
    for report in sorted(reports, key=lambda report: report.score):
        if report.error:
            output.say(f"\n{report.table} is left alone: {report.error}")
            output.say(f"    what can be done: neve recover --table {report.table} --dry-run")
        elif report.findings or report.notes:
            output.say(f"\n{report.table}")
            for note in report.notes:
                output.say(f"  - {note}")
            for finding in report.findings:
                output.say(f"  - {finding.text}")
                if finding.effect or finding.action:
                    parts = (finding.effect, finding.action)
                    output.say("    " + " · ".join(part for part in parts if part))


def shown_health(report: TableHealth) -> dict[str, Any]:
    """Return a table's health as a line of `SHOWN_COLUMNS`."""
    stored = report.rows + report.deleted_rows
    drawn = bar(report.score / 100, _BAR_COLUMNS, sys.stdout.encoding)
    return {
        "table": report.table,
        "health": "unreadable" if report.error else f"{drawn} {report.score:>3}",
        "files": report.files,
        "small": report.small_files,
        "size": size_text(report.bytes),
        "deleted": f"{report.deleted_rows / stored:.0%}" if stored else "0%",
        "snapshots": report.snapshots,
    }
