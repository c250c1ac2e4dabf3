"""`neve merge`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from neve.cli.completion import complete_mirrors
from neve.errors import EXIT_INCOMPLETE, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from neve.cli.app import Call
    from neve.cli.output import Output
    from neve.merge.report import Preview, TableReport

# What becomes of events; the sum is their number.
_OUTCOMES = ("applied", "superseded", "late", "repeated", "set_aside", "truncated")
_COLUMNS = (
    "table",
    "outcome",
    "commits",
    "events",
    *_OUTCOMES,
    "upserted",
    "deleted",
    "strategy",
    "seconds",
    "error",
)
_PREVIEW_COLUMNS = (
    "table",
    "snapshots",
    "events",
    *_OUTCOMES,
    "upserts",
    "deletes",
    "truncates",
    "strategy",
    "why",
    "otherwise",
    "error",
)
# As neve.merge.strategy.Strategy has them; that module loads Spark.
STRATEGIES = ("auto", "index", "scan", "merge")


def merge(
    context: typer.Context,
    tables: Annotated[
        Optional[list[str]],  # noqa: UP045 - typer reads it on Python 3.10 too
        typer.Argument(
            metavar="[TABLE]...",
            help="Mirrors, as namespace.table; all without it.",
            autocompletion=complete_mirrors,
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Merge what is there now, and end.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what the next commit would change.")
    ] = False,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Make the mirrors anew of their whole changelogs.")
    ] = False,
    retry_rejected: Annotated[
        bool,
        typer.Option(
            "--retry-rejected", help="Merge what was set aside, as far as it can be taken now."
        ),
    ] = False,
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss", help="With --rebuild: also of changelogs that may lack events."
        ),
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
    if retry_rejected and not tables:
        raise UsageError(
            "--retry-rejected needs the mirrors' names", hint="neve merge TABLE --retry-rejected"
        )
    if rebuild and retry_rejected:
        raise UsageError(
            "--rebuild and --retry-rejected exclude each other",
            hint="a rebuild reads everything again",
        )
    if accept_loss and not rebuild:
        raise UsageError(
            "--accept-loss is for --rebuild", hint="neve merge TABLE --rebuild --accept-loss"
        )
    if strategy not in STRATEGIES:
        raise UsageError(f"--strategy {strategy} is not known", hint=", ".join(STRATEGIES))
    call: Call = context.obj
    if not (once or dry_run or rebuild or retry_rejected):
        _keep_merging(call, tuple(tables or ()), strategy)
        return
    from neve.merge.once import merge_once, preview_once

    with call.open(reads=dry_run) as lake, call.output.working("merging"):
        names = tables or ()
        options: dict[str, Any] = {
            "rebuild": rebuild,
            "retry_rejected": retry_rejected,
            "accept_loss": accept_loss,
            "strategy": strategy,
        }
        if dry_run:
            previews = preview_once(lake, names, **options)
        else:
            reports = merge_once(lake, names, **options)
    if dry_run:
        rows = [_preview_row(preview) for preview in previews]
        _print(call.output, previews, _PREVIEW_COLUMNS, rows)
    else:
        _print(call.output, reports, _COLUMNS, [_report_row(report) for report in reports])


def _print(
    output: Output,
    turns: Sequence[Preview] | Sequence[TableReport],
    columns: tuple[str, ...],
    rows: list[dict[str, Any]],
) -> None:
    for turn in turns:
        if turn.error:
            output.error(turn.error)
        for note in turn.notes:
            output.progress(note)
    output.data(columns, rows)
    # A person is told of what there is.
    output.show([each for each in columns if each not in _OUTCOMES or _is_any(each, rows)], rows)
    if any(turn.error for turn in turns):
        raise typer.Exit(EXIT_INCOMPLETE)


def _is_any(column: str, rows: Sequence[Mapping[str, Any]]) -> bool:
    return any(row.get(column) for row in rows)


def _report_row(report: TableReport) -> dict[str, Any]:
    return {
        "table": report.table,
        "outcome": report.outcome,
        "commits": report.batches,
        "events": report.rows_scanned,
        "applied": report.applied,
        "superseded": report.superseded,
        "late": report.late_dropped,
        "repeated": report.repeated,
        "set_aside": report.set_aside,
        "truncated": report.truncated,
        "upserted": report.rows_upserted,
        "deleted": report.rows_deleted,
        "strategy": report.strategy,
        "seconds": round(report.duration_seconds, 2),
        "error": report.error.message if report.error else None,
    }


def _preview_row(preview: Preview) -> dict[str, Any]:
    if preview.error:
        return {"table": preview.table, "error": preview.error.message}
    counts = preview.counts
    return {
        "table": preview.table,
        "snapshots": preview.snapshots,
        "events": counts.scanned,
        **{outcome: getattr(counts, outcome) for outcome in _OUTCOMES},
        "upserts": counts.upserted,
        "deletes": counts.deleted,
        "truncates": counts.has_truncate,
        "strategy": preview.strategy,
        "why": preview.why,
        "otherwise": preview.otherwise,
        "error": None,
    }


def _keep_merging(call: Call, names: tuple[str, ...], strategy: str) -> None:
    from neve.cli.service import run_parts, start_service

    settings = start_service(call).settings
    run_parts(call, settings, consolidates=False, mirrors=names, strategy=strategy)
