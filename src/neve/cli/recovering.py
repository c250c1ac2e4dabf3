"""`neve recover`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Optional

import typer

from neve.cli.confirmation import confirm
from neve.cli.output import as_record
from neve.cli.recovered_table import show_table
from neve.errors import EXIT_INCOMPLETE, NeveError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from neve.api import OpenLake
    from neve.cli.output import Output
    from neve.direct.recover import RecoveryReport

COLUMNS = (
    "id",
    "table",
    "rows",
    "files",
    "written_at",
    "outcome",
    "snapshot_id",
    "reason",
    "hint",
)
_SHOWN_COLUMNS = ("id", "table", "rows", "outcome", "reason")


def recover(
    context: typer.Context,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")
    ] = False,
    forget: Annotated[
        Optional[str],  # noqa: UP045 - typer reads it on Python 3.10 too
        typer.Option("--forget", metavar="ID", help="Drop this record instead. Asks first."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    table: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--table", metavar="TABLE", help="Register this table again, which the catalog lost."
        ),
    ] = None,
    location: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--location", metavar="PATH", help="Where that table lies."),
    ] = None,
    metadata: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--metadata", metavar="FILE", help="The metadata file to register."),
    ] = None,
    roll_back: Annotated[
        bool,
        typer.Option(
            "--roll-back", help="Go back to the newest version of that table that can be read."
        ),
    ] = False,
) -> None:
    """Register files that were written directly and whose commit was not confirmed.

    With --table: register a table again whose entry in the catalog was lost, from its newest
    metadata file. Of one that is in the catalog, rebuild an index that is missing or wrong, and
    say what cannot be read, and what going back to a version that can would lose.

    Each record's files come into their table exactly once, and not at all if they are there
    already. Ends with 3 if something is left that only a person can decide on.
    """
    if roll_back and table is None:
        raise UsageError("--roll-back belongs to --table", hint="name the table")
    if forget is not None:
        if dry_run or table:
            raise UsageError("--forget goes with neither --dry-run nor --table")
        _forget(context, forget, yes=yes)
        return
    output: Output = context.obj.output
    if table is not None:
        with context.obj.open() as lake, output.working(f"looking for {table}"):
            report = lake.recover_table(
                table,
                location=location,
                metadata_file=metadata,
                dry_run=dry_run,
                roll_back=roll_back,
            )
        show_table(output, report)
        return
    if location or metadata:
        raise UsageError("--location and --metadata belong to --table", hint="name the table")
    with context.obj.open() as lake, output.working("reading recovery records"):
        reports = lake.recover(dry_run=dry_run)
        unregistered = list(_unregistered(lake))
    output.data(COLUMNS, [as_record(report) for report in reports])
    if reports:
        output.show(_SHOWN_COLUMNS, [as_record(report) for report in reports])
    else:
        output.say("There is no recovery record: nothing is to be done.")
    for line in unregistered:
        output.say(line)
    _end(output, reports)


def _unregistered(lake: OpenLake) -> Iterator[str]:
    """Say which tables the catalog may have lost. A failure changes nothing of the recovery."""
    try:
        for name in lake.unregistered_tables():
            yield (
                f"{name} lies in the warehouse and is not in the catalog. If it was lost there: "
                f"neve recover --table {name} --dry-run"
            )
    except NeveError as error:
        yield f"Tables that the catalog has lost could not be looked for: {error}"


def _end(output: Output, reports: Sequence[RecoveryReport]) -> None:
    """Say once what to do about records that are left, and end with 3 then."""
    left = [report for report in reports if report.outcome == "left"]
    for hint in dict.fromkeys(report.hint for report in left if report.hint):
        output.say(f"Hint: {hint}")
    if left:
        raise typer.Exit(EXIT_INCOMPLETE)


def _forget(context: typer.Context, record_id: str, *, yes: bool) -> None:
    with context.obj.open() as lake:
        if not yes:
            from neve.direct.recover import find_record

            record = find_record(lake.settings, record_id)
            question = f"Forget {record.rows:,} acknowledged rows of {record.table}?"
            confirm("neve recover --forget", "forget", question)
        report = lake.forget_recovery(record_id)
    context.obj.output.record(
        {"id": report.id, "table": report.table, "rows": report.rows, "outcome": report.outcome}
    )
