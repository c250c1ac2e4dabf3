"""Which segments' rows are in a table: a statement in the summary of each snapshot on `main`.

A mark is a table property and survives a rollback; the summary does not. Their difference is what
a rolled-back table lacks, and what a replay may write again.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from neve.publish.ranges import BATCH_RANGES, RANGES, Range, decode_ranges, read_marks

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from neve.lake.staging import StagingTable
    from neve.publish.ranges import Ranges

CONTAINS = "neve.contains"
# Iceberg's own: whose rows a snapshot has, if they were staged or cherry-picked.
SOURCE_SNAPSHOT_ID = "source-snapshot-id"
# In a batch's summary: the first segment that it read of a stream of which the table had no mark.
READ_FROM = "neve.read-from"

Contained = dict[str, tuple[Range, ...]]
"""For each stream, the ranges of its segments in order; they neither touch nor overlap."""


def contained_in(table: StagingTable) -> Contained:
    """Return which segments' rows are on `main`, as the table was read last.

    The nearest statement counts: other writers' commits, such as compactions, make none. Without
    one, a table with marks was written by an earlier version, or its history was expired: it has
    everything up to its marks, so that no row is written twice.
    """
    picked: Contained = {}
    for summary in table.main_summaries():
        if CONTAINS in summary:
            return add(decode_contained(summary[CONTAINS]), picked)
        # A worker of an earlier version, which may run beside us, states only what it added.
        picked = with_ranges(picked, ranges_read(summary))
        if SOURCE_SNAPSHOT_ID in summary:
            # Somebody has cherry-picked rows that were rolled back.
            source = table.summary_of(int(summary[SOURCE_SNAPSHOT_ID]))
            if source is None:
                break
            picked = with_ranges(picked, ranges_read(source))
    if table.main_id is None:
        return {}
    return {stream: (Range(1, mark),) for stream, mark in read_marks(table.properties).items()}


def contained_after(
    table: StagingTable,
    summary: Mapping[str, str],
    streams_to_state: Callable[[Collection[str]], set[str]],
) -> str:
    """Return the statement of a commit that adds a batch to the `main` of now.

    Args:
        summary: the batch's own.
        streams_to_state: chooses the streams that the statement still has to name: its bound.
    """
    before = contained_in(table)
    kept = streams_to_state(before)
    known = {stream: ranges for stream, ranges in before.items() if stream in kept}
    return encode_contained(with_ranges(known, ranges_read(summary)))


def ranges_read(summary: Mapping[str, str]) -> Ranges:
    """Return the ranges that a batch really looked at; of rejected rows, their batch.

    A range begins behind the table's mark. A table that was dropped and made anew has no mark of a
    stream, and never saw what was retired before.
    """
    read_from: dict[str, int] = json.loads(summary.get(READ_FROM, "{}"))
    return {
        stream: Range(read_from.get(stream, segments.first), segments.last)
        for key in (RANGES, BATCH_RANGES)
        for stream, segments in decode_ranges(summary, key).items()
    }


def encode_read_from(first_read: Mapping[str, int], ranges: Ranges) -> dict[str, str]:
    """Return the summary entry that says where a batch began to read; none if at its ranges.

    Args:
        first_read: the lowest segment read of each stream.
    """
    later = {
        stream: first_read[stream]
        for stream, segments in ranges.items()
        if segments.first == 1 and first_read.get(stream, 1) > 1
    }
    return {READ_FROM: json.dumps(later, sort_keys=True)} if later else {}


def encode_contained(contained: Contained) -> str:
    """Write a statement into one summary value."""
    pairs = {
        stream: [[segments.first, segments.last] for segments in ranges]
        for stream, ranges in contained.items()
    }
    return json.dumps(pairs, sort_keys=True, separators=(",", ":"))


def decode_contained(text: str) -> Contained:
    """Read a statement."""
    return {
        stream: tuple(Range(first, last) for first, last in pairs)
        for stream, pairs in json.loads(text).items()
    }


def has_segment(contained: Contained, stream: str, number: int) -> bool:
    """Tell whether a segment's rows are in the table."""
    return any(segments.first <= number <= segments.last for segments in contained.get(stream, ()))


def overlaps(contained: Contained, ranges: Ranges) -> bool:
    """Tell whether any segment of these ranges is in the table."""
    return any(
        known.first <= segments.last and segments.first <= known.last
        for stream, segments in ranges.items()
        for known in contained.get(stream, ())
    )


def with_ranges(contained: Contained, ranges: Ranges) -> Contained:
    """Return what is contained after these ranges were added."""
    return add(contained, {stream: (segments,) for stream, segments in ranges.items()})


def add(contained: Contained, more: Contained) -> Contained:
    """Return what is contained in either."""
    added = {s: merge((*contained.get(s, ()), *ranges)) for s, ranges in more.items()}
    return {**contained, **added}


def merge(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Return ranges in order, those that touch or overlap as one."""
    merged: list[Range] = []
    for segments in sorted(ranges, key=lambda segments: segments.first):
        if merged and segments.first <= merged[-1].last + 1:
            merged[-1] = Range(merged[-1].first, max(merged[-1].last, segments.last))
        else:
            merged.append(segments)
    return tuple(merged)


def without(ranges: Iterable[Range], removed: Iterable[Range]) -> tuple[Range, ...]:
    """Return what is left of ranges when others are taken out."""
    left = list(merge(ranges))
    for cut in merge(removed):
        left = [
            part
            for segments in left
            for part in (
                Range(segments.first, min(segments.last, cut.first - 1)),
                Range(max(segments.first, cut.last + 1), segments.last),
            )
            if part.first <= part.last
        ]
    return tuple(left)
