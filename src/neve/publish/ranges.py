"""How far a table has consumed each stream, and what a batch adds to that. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

MARK_PREFIX = "neve.mark."
RANGES = "neve.ranges"
BATCH_ID = "neve.batch-id"
# In the summary of rejected rows: the ranges of the batch that they are of. Not as `neve.ranges`,
# which say what a table has consumed: the table of rejected rows consumes nothing.
BATCH_RANGES = "neve.batch-ranges"
# In the summary of what a replay staged: it lies below the table's marks.
REPLAY = "neve.replay"
# In the summary of a batch's clean rows: the snapshot of those that its audits set aside.
REJECTED_SNAPSHOT = "neve.rejected-snapshot"
# In the summary of a batch that was searched for copies of requests: the marks it was decoded with,
# of the streams that it has no range of.
OTHER_MARKS = "neve.other-marks"
# A property of the table, from the commit that publishes such a batch until those rows are shown.
REJECTED_PREFIX = "neve.rejected."

Marks = Mapping[str, int]


@dataclass(frozen=True)
class Range:
    """Segments `first` to `last` of one stream, both included."""

    first: int
    last: int


Ranges = Mapping[str, Range]


def read_marks(properties: Mapping[str, str]) -> dict[str, int]:
    """Return the last consumed segment of each stream, from a table's properties."""
    return {
        key.removeprefix(MARK_PREFIX): int(value)
        for key, value in properties.items()
        if key.startswith(MARK_PREFIX)
    }


def write_marks(ranges: Ranges) -> dict[str, str]:
    """Return the table properties that say these ranges are consumed."""
    return {f"{MARK_PREFIX}{stream}": str(segments.last) for stream, segments in ranges.items()}


def encode_ranges(ranges: Ranges) -> str:
    """Write ranges into one summary value."""
    pairs = {stream: [segments.first, segments.last] for stream, segments in ranges.items()}
    return json.dumps(pairs, sort_keys=True)


def decode_ranges(summary: Mapping[str, str], key: str = RANGES) -> dict[str, Range]:
    """Read ranges from a snapshot's summary."""
    pairs = json.loads(summary.get(key, "{}"))
    return {stream: Range(first, last) for stream, (first, last) in pairs.items()}


def encode_other_marks(marks: Marks, ranges: Ranges) -> dict[str, str]:
    """Return the summary entry that names the marks of all streams but those of the ranges."""
    others = {stream: mark for stream, mark in marks.items() if stream not in ranges}
    return {OTHER_MARKS: json.dumps(others, sort_keys=True, separators=(",", ":"))}


def streams_moved_since(summary: Mapping[str, str], marks: Marks) -> set[str]:
    """Return the streams whose marks are not those that a batch was decoded with, but its own.

    None without the entry: copies were not searched for, or by a version that did not write it.
    """
    if OTHER_MARKS not in summary:
        return set()
    decoded_with: dict[str, int] = json.loads(summary[OTHER_MARKS])
    others = (decoded_with.keys() | marks.keys()) - decode_ranges(summary).keys()
    return {stream for stream in others if decoded_with.get(stream) != marks.get(stream)}


def follows(ranges: Ranges, marks: Marks) -> bool:
    """Tell whether every range begins right behind its mark."""
    return all(segments.first == marks.get(stream, 0) + 1 for stream, segments in ranges.items())


def is_consumed(ranges: Ranges, marks: Marks) -> bool:
    """Tell whether any of these segments is below a mark: then all are, or were never right.

    Marks move by whole ranges, so a batch that overlaps a mark lost against the one that moved it.
    """
    return any(segments.first <= marks.get(stream, 0) for stream, segments in ranges.items())
