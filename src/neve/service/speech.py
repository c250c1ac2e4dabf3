"""The lines of a service about its batches and merges."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from neve.publish.batch import Outcome
from neve.service.log import say

if TYPE_CHECKING:
    from neve.consolidate.report import Report, TableResult
    from neve.merge.report import MergedBatch, TableReport


def say_consolidated(report: Report) -> None:
    """Say what became of each batch. Nothing for a look that found no work.

    What failed is logged where it failed, with the hint: tables, and audits by their name.
    """
    for result in report.results:
        if result.outcome == Outcome.PUBLISHED.value:
            _say_published(result)
        elif result.outcome == Outcome.HELD.value:
            _say_held(result)
        elif result.outcome == Outcome.SUPERSEDED.value:
            say(
                "batch_superseded",
                f"{result.table}: another worker published the batch first",
                table=result.table,
                batch_id=result.batch_id,
            )
    if report.dead_letters:
        say(
            "dead_letters",
            f"{report.dead_letters:,} records cannot become rows and were set aside; "
            "see: neve buffer dead-letters",
            level=logging.WARNING,
            records=report.dead_letters,
        )


def _say_published(result: TableResult) -> None:
    say(
        "batch_published",
        f"{result.table}: {result.rows:,} rows published in {result.seconds:.1f} s"
        + _lag(result.lag_seconds),
        table=result.table,
        batch_id=result.batch_id,
        rows=result.rows,
        files=result.files,
        bytes=result.bytes,
        seconds=result.seconds,
        lag_seconds=result.lag_seconds,
    )


def _say_held(result: TableResult) -> None:
    command = f"neve staged show {result.table} {result.batch_id}"
    say(
        "batch_held",
        f"{result.table}: {result.rows:,} rows are held back; look at them with: {command}",
        level=logging.WARNING,
        table=result.table,
        batch_id=result.batch_id,
        rows=result.rows,
        seconds=result.seconds,
        lag_seconds=result.lag_seconds,
        command=command,
    )


def say_merged(batch: MergedBatch) -> None:
    """Say what a commit has changed in a mirror."""
    say(
        "merged",
        f"{batch}{_lag(batch.lag_seconds)}",
        table=batch.table,
        events=batch.events,
        rows_written=batch.rows_upserted,
        rows_deleted=batch.rows_deleted,
        rows_set_aside=batch.rows_set_aside,
        seconds=round(batch.seconds, 3),
        lag_seconds=batch.lag_seconds,
    )


class NoteSpeaker:
    """Says the notes of a mirror's turns, each once for as long as it stays true."""

    def __init__(self) -> None:
        self._said: dict[str, list[str]] = {}

    def __call__(self, report: TableReport) -> None:
        before = self._said.get(report.table, [])
        self._said[report.table] = list(report.notes)
        for note in report.notes:
            if note not in before:
                say("merge_note", note, level=logging.WARNING, table=report.table)


def _lag(seconds: float | None) -> str:
    """Return the age of the oldest event or request of a batch when it was published."""
    return "" if seconds is None else f", lag {seconds:.1f} s"
