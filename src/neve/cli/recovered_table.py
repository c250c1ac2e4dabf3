"""What `neve recover --table` says: what is broken, what was done, what is in no snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from neve.cli.cells import safe
from neve.cli.maintenance_plan import orphan_row, show_some
from neve.cli.output import as_record
from neve.errors import EXIT_INCOMPLETE
from neve.sizes import size_text

if TYPE_CHECKING:
    from neve.api import LostTableReport, RepairReport
    from neve.cli.output import Output

_FILES = "unreferenced"


def show_table(output: Output, report: LostTableReport | RepairReport) -> None:
    """Show people what matters; programs get all of it. Ends with 3 if the table stays damaged."""
    from neve.upkeep.table_repair import RepairReport

    record = as_record(report)
    output.document(record)
    if isinstance(report, RepairReport):
        output.say(f"{report.table}: {report.outcome}")
        for line in _damage_lines(report):
            output.say(f"  {safe(line)}")
        if report.index:
            output.say(f"  its index {report.index}")
    else:
        names = [name for name in record if not name.startswith(_FILES)]
        for name in filter(record.get, names):
            output.say(f"{name:<18} {safe(str(record[name]))}")
    _show_unreferenced(output, report)
    if isinstance(report, RepairReport) and report.is_damaged:
        raise typer.Exit(EXIT_INCOMPLETE)


def _damage_lines(report: RepairReport) -> Iterator[str]:
    if report.damaged_file is None:
        return
    yield f"{report.damaged_file} cannot be read: {report.damage}"
    if report.readable_snapshot_id is None:
        yield "No version that is retained can be read without it: restore it from a copy."
        return
    since = f"{report.readable_since:%Y-%m-%d %H:%M:%S}"
    yield (
        f"The newest version that can be read is snapshot {report.readable_snapshot_id}, "
        f"current since {since} UTC."
    )
    yield f"Going back to it loses {_loss(report)}."
    call, *more = report.statements
    if report.is_damaged:
        yield "Restore the file if there is a copy of it. Else go back:"
        yield f"  neve recover --table {report.table} --roll-back"
        yield f'which is: neve sql "{call}"'
    if more:
        yield f"Afterwards, to write what is still to be had: {more[0]}"


def _loss(report: RepairReport) -> str:
    commits = "1 commit" if report.lost_commits == 1 else f"{report.lost_commits:,} commits"
    if report.lost_rows is None or report.returning_rows is None:
        return f"{commits}, whose summaries do not say how many rows they changed"
    back = f"; {report.returning_rows:,} rows that they deleted come back"
    return f"{commits} with {report.lost_rows:,} rows{back if report.returning_rows else ''}"


def _show_unreferenced(output: Output, report: LostTableReport | RepairReport) -> None:
    if report.unreferenced_skipped:
        output.say(f"  files in no snapshot were not looked for: {report.unreferenced_skipped}")
    elif report.unreferenced_files:
        output.say(
            f"\n{report.unreferenced_files:,} files of {size_text(report.unreferenced_bytes or 0)} "
            "are in no snapshot; those that are young may be of a commit that is going on:"
        )
        show_some(
            output,
            ("orphan", "size", "written at"),
            [orphan_row(as_record(each)) for each in report.unreferenced],
        )
        if not report.unreferenced_is_complete:
            output.say("The search stopped at so many: there may be more.")
    elif report.unreferenced_files == 0:
        output.say("  all files of its location are in a snapshot")
