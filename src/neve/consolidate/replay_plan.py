"""From what is retained and what a table contains, to the batches of a replay. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from neve.buffer.layout import buffer_id_of
from neve.publish.contains import Contained, has_segment, without
from neve.publish.ranges import Range

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from neve.buffer.reader import Segment
    from neve.publish.ranges import Marks, Ranges


@dataclass(frozen=True)
class ReplayBatch:
    """Segments to write in one commit: of each stream a range without gaps."""

    segments: tuple[Segment, ...]
    # `<table>_rejected` has had rows of them: of those that fail an audit now, some may be there.
    is_in_rejected: bool = False

    @property
    def ranges(self) -> Ranges:
        numbers: dict[str, list[int]] = {}
        for segment in self.segments:
            numbers.setdefault(segment.stream, []).append(segment.number)
        return {stream: Range(min(of), max(of)) for stream, of in numbers.items()}


@dataclass(frozen=True)
class Unavailable:
    """Segments that a table lacks and that are not retained here."""

    # Consumed, and removed when their time was over.
    expired: Contained
    # Consumed by this table, but not by all: still in the buffer, and retained later.
    still_buffered: Contained
    # Other buffers whose segments it lacks: a replay has to be run there.
    other_buffers: tuple[str, ...]


def plan_replay(
    lacking: Iterable[Segment], in_rejected: Contained, most_bytes: int
) -> list[ReplayBatch]:
    """Cut the segments that a table lacks into batches.

    Segments whose failing rows are in the rejected table are kept apart from the others: a row
    does not tell which segment it came from.
    """
    batches: list[ReplayBatch] = []
    current: list[Segment] = []
    size = 0

    def group(segment: Segment) -> bool:
        return has_segment(in_rejected, segment.stream, segment.number)

    for segment in sorted(lacking, key=lambda s: (group(s), s.stream, s.number)):
        if current and (
            size + segment.bytes > most_bytes
            or group(segment) != group(current[0])
            or _leaves_gap(current, segment)
        ):
            batches.append(ReplayBatch(tuple(current), group(current[0])))
            current, size = [], 0
        current.append(segment)
        size += segment.bytes
    if current:
        batches.append(ReplayBatch(tuple(current), group(current[0])))
    return batches


def _leaves_gap(current: Sequence[Segment], segment: Segment) -> bool:
    last = current[-1]
    return last.stream == segment.stream and segment.number != last.number + 1


def find_unavailable(
    consumed: Contained,
    marks: Marks,
    retired_through: Mapping[str, int],
    retained: Contained,
    buffer_id: str,
) -> Unavailable:
    """Return what a table lacks and a replay cannot write.

    Args:
        consumed: what the table contains or holds.
        marks: how far it once was.
        retired_through: for each stream in this buffer, how far it was retired.
        retained: what this buffer retains.
    """
    expired: Contained = {}
    still_buffered: Contained = {}
    others = set()
    for stream in sorted({*marks, *retired_through}):
        # What was retired above a mark was looked at, and had no rows for this table.
        last = marks.get(stream, 0) or retired_through.get(stream, 0)
        lacking = without([Range(1, last)], [*consumed.get(stream, ()), *retained.get(stream, ())])
        if not lacking:
            continue
        if stream in retired_through:
            later = [Range(retired_through[stream] + 1, last)]
            buffered = without(lacking, without(lacking, later))
            still_buffered |= {stream: buffered} if buffered else {}
            lost = without(lacking, later)
            expired |= {stream: lost} if lost else {}
        elif buffer_id_of(stream) in (buffer_id, None):
            expired[stream] = lacking
        else:
            others.add(str(buffer_id_of(stream)))
    return Unavailable(expired, still_buffered, tuple(sorted(others)))
