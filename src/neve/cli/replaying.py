"""`neve consolidate --replay`."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import typer

from neve.errors import EXIT_INCOMPLETE, UsageError

if TYPE_CHECKING:
    from neve.api import ReplayReport
    from neve.cli.app import Call
    from neve.cli.output import Output
    from neve.publish.contains import Contained


def replay(context: typer.Context, table: str, since: str | None) -> None:
    """Write retained segments again into a table that lacks them, and say what was done."""
    received_since = None if since is None else parse_time(since)
    call: Call = context.obj
    with call.open() as lake, call.output.working(f"replaying {table}"):
        report = lake.replay(table, received_since)
    call.output.record(_record(report))
    _tell(call.output, report)
    if report.rows_held:
        raise typer.Exit(EXIT_INCOMPLETE)


def parse_time(text: str) -> datetime:
    """Return an ISO time; UTC if it names no offset."""
    try:
        # Python 3.10 does not know the suffix Z.
        time = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError as error:
        raise UsageError(
            f"--from {text}: {error}", hint="write it as 2026-01-31 or 2026-01-31T12:30:00Z"
        ) from error
    return time if time.tzinfo else time.replace(tzinfo=timezone.utc)


def _record(report: ReplayReport) -> dict[str, Any]:
    unavailable = report.unavailable
    return {
        "table": report.table,
        "segments": report.segments,
        "requests": report.requests,
        "rows": report.rows,
        "rows_set_aside": report.rows_set_aside,
        "rows_held": report.rows_held,
        "duplicate_records": report.duplicate_records,
        "retained_segments": report.retained_segments,
        "segments_contained": report.segments_contained,
        "segments_before_from": report.segments_before_from,
        "no_longer_retained": _pairs(unavailable.expired),
        "still_buffered": _pairs(unavailable.still_buffered),
        "other_buffers": list(unavailable.other_buffers),
    }


def _pairs(contained: Contained) -> dict[str, list[list[int]]]:
    return {
        stream: [[segments.first, segments.last] for segments in ranges]
        for stream, ranges in contained.items()
    }


def _tell(output: Output, report: ReplayReport) -> None:
    if not report.retained_segments:
        output.say(
            "Nothing is retained for this table. Set buffer.retain_seconds to keep segments."
        )
    elif report.segments_contained == report.retained_segments:
        output.say("The table has all that is retained.")
    if report.unavailable.expired:
        output.say("Segments that were consumed are not retained any more, and were not written.")
    if report.unavailable.still_buffered:
        output.say("Some segments are not consumed by every table yet: run this again later.")
    for buffer_id in report.unavailable.other_buffers:
        output.say(
            f"The table lacks segments of buffer {buffer_id}: run this where that buffer is."
        )
