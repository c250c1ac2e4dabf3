"""From what is buffered and how far each table is, to one batch of work. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from neve.buffer.reader import Segment
from neve.publish.ranges import Marks, Range, Ranges

# Of what a task should have, when segments cannot be cut to measure.
SMALLEST_SHARE = 0.9


@dataclass(frozen=True)
class Batch:
    """Segments to decode once, and which of them each table has yet to consume."""

    segments: tuple[Segment, ...]
    ranges: Mapping[str, Ranges]

    @property
    def last(self) -> dict[str, int]:
        """The last segment of each stream that this batch reads."""
        found: dict[str, int] = {}
        for segment in self.segments:
            found[segment.stream] = max(segment.number, found.get(segment.stream, 0))
        return found


def plan_batch(
    waiting: Mapping[str, Sequence[Segment]], marks: Mapping[str, Marks], most_bytes: int
) -> Batch:
    """Choose the next segments of every stream: in order, at least one, up to `most_bytes`.

    Args:
        waiting: the sealed segments of each stream, contiguous from the lowest that is not retired.
        marks: for every table of the signal, how far it is.
    """
    chosen: list[Segment] = []
    size = 0
    # Round robin, oldest first: one busy stream does not keep the others waiting.
    queues = {
        stream: [
            one for one in segments if any(one.number > m.get(stream, 0) for m in marks.values())
        ]
        for stream, segments in sorted(waiting.items())
    }
    position = 0
    while any(position < len(queue) for queue in queues.values()):
        for queue in queues.values():
            if position < len(queue) and (not chosen or size + queue[position].bytes <= most_bytes):
                chosen.append(queue[position])
                size += queue[position].bytes
        if size >= most_bytes:
            break
        position += 1
    batch = Batch(_contiguous(chosen), {})
    return Batch(batch.segments, {table: _ranges(batch.last, of) for table, of in marks.items()})


def _contiguous(chosen: Sequence[Segment]) -> tuple[Segment, ...]:
    """Drop what follows a segment that did not fit: consumption has no gaps."""
    kept: list[Segment] = []
    expected: dict[str, int] = {}
    for segment in sorted(chosen, key=lambda one: (one.stream, one.number)):
        if segment.number == expected.get(segment.stream, segment.number):
            kept.append(segment)
            expected[segment.stream] = segment.number + 1
    return tuple(kept)


def _ranges(last: Mapping[str, int], marks: Marks) -> dict[str, Range]:
    """From right behind each mark: segments below the lowest were retired without rows for it."""
    return {
        stream: Range(marks.get(stream, 0) + 1, number)
        for stream, number in last.items()
        if number > marks.get(stream, 0)
    }


def plan_tasks(segments: Sequence[Segment], task_bytes: int) -> list[tuple[Segment, ...]]:
    """Pack segments into tasks of like size, `task_bytes` and more each: a task writes a file.

    Fewer tasks where segments are too large to be cut evenly.
    """
    count = max(1, _size(segments) // task_bytes)
    tasks = _cut(segments, count)
    while count > 1 and min(map(_size, tasks)) < SMALLEST_SHARE * task_bytes:
        count -= 1
        tasks = _cut(segments, count)
    return tasks


def _size(segments: Sequence[Segment]) -> int:
    return sum(segment.bytes for segment in segments)


def _cut(segments: Sequence[Segment], count: int) -> list[tuple[Segment, ...]]:
    """Cut where the shares end on the whole, so that no remainder gathers in the last."""
    share = _size(segments) / count
    tasks: list[list[Segment]] = [[]]
    size = 0
    for segment in segments:
        if tasks[-1] and size + segment.bytes / 2 > share * len(tasks):
            tasks.append([])
        tasks[-1].append(segment)
        size += segment.bytes
    return [tuple(task) for task in tasks if task]
