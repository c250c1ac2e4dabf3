"""`neve merge`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from neve.errors import EXIT_INCOMPLETE, NeveError, UsageError

if TYPE_CHECKING:
    from neve.cli.app import Call
    from neve.cli.output import Output
    from neve.merge.apply import Merger
    from neve.merge.report import Preview, TableReport

_COLUMNS = (
    "table",
    "outcome",
    "commits",
    "events",
    "upserted",
    "deleted",
    "late",
    "set_aside",
    "strategy",
    "seconds",
    "error",
)
_PREVIEW_COLUMNS = (
    "table",
    "snapshots",
    "events",
    "upserts",
    "deletes",
    "late",
    "repeated",
    "set_aside",
    "truncates",
    "strategy",
    "why",
    "error",
)
# As neve.merge.strategy.Strategy has them; that module loads Spark.
STRATEGIES = ("auto", "index", "scan", "merge")


def merge(
    context: typer.Context,
    tables: Annotated[
        Optional[list[str]],  # noqa: UP045 - typer reads it on Python 3.10 too
        typer.Argument(metavar="[TABLE]...", help="Mirrors, as namespace.table; all without it."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Merge what is there now, and end.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what the next commit would change.")
    ] = False,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Make the mirrors anew of their whole changelogs.")
    ] = False,
    strategy: Annotated[
        str,
        typer.Option(
            "--strategy",
            metavar="|".join(STRATEGIES),
            help="How rows are found and replaced; auto takes the cheapest.",
        ),
    ] = "auto",
) -> None:
    """Keep mirrors of changelogs: the newest event of each key, exactly once."""
    if rebuild and not tables:
        raise UsageError("--rebuild needs the mirrors' names", hint="neve merge TABLE --rebuild")
    if strategy not in STRATEGIES:
        raise UsageError(f"--strategy {strategy} is not known", hint=", ".join(STRATEGIES))
    call: Call = context.obj
    if not (once or dry_run or rebuild):
        _keep_merging(call, tuple(tables or ()), strategy)
        return
    from neve.merge.apply import configured_mergers

    with call.open() as lake, call.output.working("merging"):
        mergers = configured_mergers(lake, tuple(tables or ()), call.output.progress, strategy)
        turn, columns = (_preview, _PREVIEW_COLUMNS) if dry_run else (_merge_one, _COLUMNS)
        rows = [turn(one, call.output, rebuild=rebuild) for one in mergers]
    call.output.rows(columns, rows)
    if any(row["error"] for row in rows):
        raise typer.Exit(EXIT_INCOMPLETE)


def _merge_one(merger: Merger, output: Output, *, rebuild: bool) -> dict[str, Any]:
    """Merge one table; a failure is its own, and the others go on."""
    from neve.merge.report import TableReport

    report = TableReport(merger.name)
    failure: dict[str, Any] = {}
    try:
        if rebuild:
            merger.rebuild(report)
        else:
            merger.merge(report=report)
    except NeveError as error:
        output.error(error)
        failure = {"outcome": "failed", "error": error.message}
    for note in report.notes:
        output.progress(note)
    return {**_row(report), **failure}


def _row(report: TableReport) -> dict[str, Any]:
    return {
        "table": report.table,
        "outcome": report.outcome,
        "commits": report.batches,
        "events": report.rows_scanned,
        "upserted": report.rows_upserted,
        "deleted": report.rows_deleted,
        "late": report.late_dropped,
        "set_aside": report.set_aside,
        "strategy": report.strategy,
        "seconds": round(report.duration_seconds, 2),
        "error": None,
    }


def _preview(merger: Merger, output: Output, *, rebuild: bool) -> dict[str, Any]:
    """Preview one table; a failure is its own, and the others go on."""
    try:
        found: Preview = merger.preview(rebuild=rebuild)
    except NeveError as error:
        output.error(error)
        return {"table": merger.name, "error": error.message}
    for note in found.notes:
        output.progress(note)
    counts = found.counts
    return {
        "table": found.table,
        "snapshots": found.snapshots,
        "events": counts.scanned,
        "upserts": counts.upserted,
        "deletes": counts.deleted,
        "late": counts.late,
        "repeated": counts.repeated,
        "set_aside": counts.set_aside,
        "truncates": counts.truncated,
        "strategy": found.strategy,
        "why": found.why,
        "error": None,
    }


def _keep_merging(call: Call, names: tuple[str, ...], strategy: str) -> None:
    from neve.cli.service import run_parts

    run_parts(call, consolidates=False, mirrors=names, strategy=strategy)
