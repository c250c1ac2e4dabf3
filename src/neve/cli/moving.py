"""`neve move`: tables go to another catalog; how far they are; whether they arrived."""

from __future__ import annotations

import sys
from datetime import datetime, timezone
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from neve.ages import age_text
from neve.cli.completion import complete_tables
from neve.errors import EXIT_INCOMPLETE, NeveError, UsageError
from neve.sizes import size_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neve.cli.app import Call
    from neve.move.report import CheckReport, MoveReport, PlanReport
    from neve.move.spec import MoveSpec

# Words that stand in the place of the first table.
_STATUS, _VERIFY = "status", "verify"
_PLAN_COLUMNS = (
    "table",
    "target",
    "location",
    "format_version",
    "snapshots",
    "refs",
    "files",
    "bytes",
    "copy_files",
    "copy_bytes",
    "rewrite_count",
    "existing",
    "left_behind",
    "blocked_by",
)
_PLAN_SHOWN = ("table", "files", "size", "to copy", "to rewrite")
_REPORT_COLUMNS = (
    "table",
    "target",
    "outcome",
    "location",
    "metadata_location",
    "snapshots",
    "rows",
    "deletes",
    "files_copied",
    "bytes_copied",
    "files_skipped",
    "rewrite_count",
    "left_behind",
    "seconds",
    "error",
)
_REPORT_SHOWN = ("table", "outcome", "copied", "size", "rewritten", "seconds")
_STATUS_COLUMNS = (
    "table",
    "target",
    "stage",
    "files",
    "files_copied",
    "bytes",
    "bytes_copied",
    "rewrite_count",
    "rewrite_error",
    "error",
    "location",
    "began_at",
    "updated_at",
)
_STATUS_SHOWN = ("table", "target", "stage", "copied", "size", "age")
_CHECK_COLUMNS = ("table", "target", "outcome", "files", "snapshots", "rows", "problems", "error")
_CHECK_SHOWN = ("table", "outcome", "files", "snapshots")
_TERMINAL_SECONDS, _PIPE_SECONDS = 0.5, 10.0


def move(
    context: typer.Context,
    tables: Annotated[
        Optional[list[str]],  # noqa: UP045 - typer reads it on Python 3.10 too
        typer.Argument(
            metavar="status|verify|TABLE",
            help="namespace.table, a glob such as 'shop.o*', or a whole namespace.",
            autocompletion=complete_tables,
        ),
    ] = None,
    to: Annotated[
        Optional[str],  # noqa: UP045 - typer reads it on Python 3.10 too
        typer.Option("--to", metavar="CATALOG", help="The configured catalog they go to."),
    ] = None,
    location: Annotated[
        Optional[str],  # noqa: UP045 - typer reads it on Python 3.10 too
        typer.Option("--location", metavar="URI", help="Where the files of the one table are put."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan; write nothing.")
    ] = False,
    incremental: Annotated[
        bool, typer.Option("--incremental", help="Extend a table that was moved before.")
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Put the source in the place of an existing table.")
    ] = False,
    skip_rewrite: Annotated[
        bool,
        typer.Option(
            "--skip-rewrite", help="Copy nothing: the target's store has all files already."
        ),
    ] = False,
    verify: Annotated[
        str,
        typer.Option("--verify", metavar="sample|full", help="Compare a sample, or all rows."),
    ] = "sample",
    engine: Annotated[
        str,
        typer.Option("--engine", metavar="local|spark", help="Where manifests are rewritten."),
    ] = "local",
    limit: Annotated[
        Optional[str],  # noqa: UP045 - typer reads it on Python 3.10 too
        typer.Option("--limit", metavar="SIZE", help="Copy at most so much a second: 50MB."),
    ] = None,
    tables_at_once: Annotated[
        int, typer.Option("--tables-at-once", min=1, help="Tables moved side by side.")
    ] = 2,
) -> None:
    """Move tables to another catalog and store, and prove that they arrived.

    The source is never written to, and the target is registered only once its copy is proven.
    An interrupted move goes on when the same command is run again. `neve move status` shows how
    far moves are; `neve move verify` checks tables that were moved before.
    """
    call: Call = context.obj
    word = tables[0] if tables and tables[0] in (_STATUS, _VERIFY) else None
    names = (tables or [])[1 if word else 0 :]
    if word == _STATUS:
        _print_status(call, names, to)
        return
    if not names or to is None:
        missing = "the tables" if not names else "--to CATALOG"
        command = f"neve move {word}" if word else "neve move"
        raise UsageError(
            f"{command} needs {missing}", hint=f"such as: {command} shop.orders --to archive"
        )
    spec = _spec(
        to,
        location=location,
        rewrite=not skip_rewrite,
        existing=_existing(incremental=incremental, replace=replace),
        verification=verify,
        engine=engine,
        bytes_per_second=_parse_limit(limit),
        tables_at_once=tables_at_once,
    )
    if word == _VERIFY:
        _verify(call, names, spec)
    elif dry_run:
        _plan(call, names, spec)
    else:
        _move(call, names, spec)


def _existing(*, incremental: bool, replace: bool) -> str:
    if incremental and replace:
        raise UsageError(
            "--incremental and --replace exclude each other",
            hint="--incremental keeps what the target has, --replace does not",
        )
    return "extend" if incremental else "replace" if replace else "refuse"


def _spec(to: str, **options: Any) -> MoveSpec:
    from neve.move.spec import Engine, Existing, MoveSpec, Verification

    kinds: dict[str, type[Enum]] = {
        "existing": Existing,
        "verification": Verification,
        "engine": Engine,
    }
    for name, kind in kinds.items():
        known = [each.value for each in kind]
        if options[name] not in known:
            option = "verify" if name == "verification" else name
            raise UsageError(f"--{option} {options[name]} is not known", hint=", ".join(known))
        options[name] = kind(options[name])
    return MoveSpec(to, **options)


def _parse_limit(text: str | None) -> int | None:
    if text is None:
        return None
    from pydantic import ByteSize, TypeAdapter, ValidationError

    try:
        size = int(TypeAdapter(ByteSize).validate_python(text))
    except ValidationError:
        size = 0
    if size <= 0:
        raise UsageError(f"--limit {text} is no size", hint="such as 500kB, 50MB, 1GiB")
    return size


def _move(call: Call, names: Sequence[str], spec: MoveSpec) -> None:
    from neve.move.moves import move_tables

    with call.open() as lake, call.output.working("planning"):
        reports = move_tables(lake, names, spec, interval_seconds=_interval_seconds())
    for report in reports:
        # Elsewhere than on a terminal, the line stands there since the table arrived.
        if sys.stderr.isatty() and report.location and not report.error:
            call.output.progress(f"{report.table}: {report.outcome} at {report.location}")
        for line in report.left_behind:
            call.output.progress(f"{report.table}: {line}")
        if report.error:
            call.output.error(_naming(report.table, report.error))
    call.output.data(_REPORT_COLUMNS, [_report_row(report) for report in reports])
    call.output.show(_REPORT_SHOWN, [_shown_report(report) for report in reports])
    if any(report.error for report in reports):
        raise typer.Exit(EXIT_INCOMPLETE)


def _plan(call: Call, names: Sequence[str], spec: MoveSpec) -> None:
    from neve.move.moves import plan_moves

    with call.open(reads=True) as lake, call.output.working("planning"):
        plans = plan_moves(lake, names, spec)
    for plan in plans:
        if plan.location:
            call.output.progress(f"{plan.table}: the target location is {plan.location}")
        for line in (*plan.notes, *plan.left_behind):
            call.output.progress(f"{plan.table}: {line}")
        for reason in plan.blocked_by:
            call.output.progress(f"{plan.table}: cannot be moved: {reason}")
    call.output.data(_PLAN_COLUMNS, [_plan_row(plan) for plan in plans])
    call.output.show(_PLAN_SHOWN, [_shown_plan(plan) for plan in plans])
    if any(plan.blocked_by for plan in plans):
        raise typer.Exit(EXIT_INCOMPLETE)


def _verify(call: Call, names: Sequence[str], spec: MoveSpec) -> None:
    from neve.move.moves import verify_moved

    with call.open(reads=True) as lake, call.output.working("verifying"):
        reports = verify_moved(lake, names, spec)
    for report in reports:
        if report.error:
            call.output.error(_naming(report.table, report.error))
        for problem in report.problems:
            call.output.progress(f"{report.table}: {problem}")
    rows = [_check_row(report) for report in reports]
    call.output.data(_CHECK_COLUMNS, rows)
    call.output.show(_CHECK_SHOWN, rows)
    if any(report.error or report.problems for report in reports):
        raise typer.Exit(EXIT_INCOMPLETE)


def _print_status(call: Call, names: Sequence[str], to: str | None) -> None:
    from neve.move.status import list_moves

    states = list_moves(call.load().settings, names, to)
    rows = [{column: state.get(column) for column in _STATUS_COLUMNS} for state in states]
    call.output.data(_STATUS_COLUMNS, rows)
    if not rows:
        asked = bool(names) or to is not None
        call.output.say("No such move is known." if asked else "No table was moved from here.")
        return
    for row in rows:
        if error := row["error"] or row["rewrite_error"]:
            call.output.progress(f"{row['table']} to {row['target']}: {error}")
    call.output.show(_STATUS_SHOWN, [_shown_status(row) for row in rows])


def _naming(table: str, error: NeveError) -> NeveError:
    """Return the error with the table in its message: several may fail."""
    if table in error.message:
        return error
    return NeveError(f"{table}: {error.message}", hint=error.hint, code=error.code)


def _interval_seconds() -> float:
    return _TERMINAL_SECONDS if sys.stderr.isatty() else _PIPE_SECONDS


def _report_row(report: MoveReport) -> dict[str, Any]:
    row = {name: getattr(report, name) for name in _REPORT_COLUMNS if name != "error"}
    error = report.error.message if report.error else None
    return {**row, "seconds": round(report.seconds, 2), "error": error}


def _shown_report(report: MoveReport) -> dict[str, Any]:
    row = _report_row(report)
    size = size_text(report.bytes_copied)
    return {**row, "copied": report.files_copied, "size": size, "rewritten": report.rewrite_count}


def _plan_row(plan: PlanReport) -> dict[str, Any]:
    return {name: getattr(plan, name) for name in _PLAN_COLUMNS}


def _shown_plan(plan: PlanReport) -> dict[str, Any]:
    return {
        "table": plan.table,
        "files": sum(plan.files.values()),
        "size": size_text(plan.bytes),
        "to copy": f"{plan.copy_files} ({size_text(plan.copy_bytes)})",
        "to rewrite": plan.rewrite_count,
    }


def _check_row(report: CheckReport) -> dict[str, Any]:
    row = {name: getattr(report, name) for name in _CHECK_COLUMNS if name != "error"}
    return {**row, "error": report.error.message if report.error else None}


def _shown_status(row: dict[str, Any]) -> dict[str, Any]:
    return {
        **row,
        "copied": f"{row['files_copied']} of {row['files']}",
        "size": f"{size_text(row['bytes_copied'])} of {size_text(row['bytes'])}",
        "age": _age(row["updated_at"]),
    }


def _age(time_text: str | None) -> str | None:
    if time_text is None:
        return None
    updated = datetime.fromisoformat(time_text)
    return age_text((datetime.now(timezone.utc) - updated).total_seconds())
