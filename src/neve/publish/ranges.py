"""How far a table has consumed each stream, and what a batch adds to that. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b

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
# of its buffer's streams that it has no range of. A digest, since each snapshot keeps its summary;
# earlier versions wrote the marks. They take a digest for marks that have moved, and decode again.
OTHER_MARKS = "neve.other-marks"
_DIGEST = "digest"
_DIGEST_BYTES = 16
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


def encode_other_marks(marks: Marks, ranges: Ranges, owns: Callable[[str], bool]) -> dict[str, str]:
    """Return the summary entry that tells later whether marks of other streams have moved.

    Args:
        owns: tells whether a stream is of the batch's buffer.
    """
    return {OTHER_MARKS: json.dumps({_DIGEST: _digest_others(marks, ranges, owns)})}


def have_others_moved(
    summary: Mapping[str, str], marks: Marks, owns: Callable[[str], bool]
) -> bool:
    """Tell whether marks of a buffer's streams are not those that its batch was decoded with.

    The batch's own do not count. False without the entry: copies were not searched for, or by a
    version that did not write it.
    """
    if OTHER_MARKS not in summary:
        return False
    ranges, stated = decode_ranges(summary), json.loads(summary[OTHER_MARKS])
    if _DIGEST in stated:
        return bool(stated[_DIGEST] != _digest_others(marks, ranges, owns))
    others = (stated.keys() | marks.keys()) - ranges.keys()
    return any(stated.get(stream) != marks.get(stream) and owns(stream) for stream in others)


def _digest_others(marks: Marks, ranges: Ranges, owns: Callable[[str], bool]) -> str:
    others = sorted(each for each in marks.items() if each[0] not in ranges and owns(each[0]))
    return blake2b(json.dumps(others).encode(), digest_size=_DIGEST_BYTES).hexdigest()


def follows(ranges: Ranges, marks: Marks) -> bool:
    """Tell whether every range begins right behind its mark."""
    return all(segments.first == marks.get(stream, 0) + 1 for stream, segments in ranges.items())


def is_consumed(ranges: Ranges, marks: Marks) -> bool:
    """Tell whether any of these segments is below a mark: then all are, or were never right.

    Marks move by whole ranges, so a batch that overlaps a mark lost against the one that moved it.
    """
    return any(segments.first <= marks.get(stream, 0) for stream, segments in ranges.items())
