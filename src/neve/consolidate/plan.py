"""From what is buffered and how far each table is, to batches of work. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from neve.buffer.reader import Segment
from neve.publish.ranges import Marks, Range, Ranges

# Of what a task should have: a segment is not read by another task as well for less than this.
SMALLEST_PART = 1 / 32
# Files of usual records have 0.77 to 0.88 times as many bytes as were stored of them. A task with
# so many times the bytes of a file writes one that is large enough.
BYTES_OF_FILE = 1.375


@dataclass(frozen=True)
class Progress:
    """How far a table is."""

    marks: Marks
    # For each stream the last segment that the table needs no more: consumed by its mark, retired,
    # or seen to hold no rows for it.
    position: Mapping[str, int]


@dataclass(frozen=True)
class Batch:
    """Segments to decode once, for tables that are at the same position."""

    segments: tuple[Segment, ...]
    ranges: Mapping[str, Ranges]

    @property
    def last(self) -> dict[str, int]:
        """The last segment of each stream that this batch reads."""
        last: dict[str, int] = {}
        for segment in self.segments:
            last[segment.stream] = max(segment.number, last.get(segment.stream, 0))
        return last

    def only(self, table: str) -> Batch:
        """Return the same batch for one of its tables."""
        return Batch(self.segments, {table: self.ranges[table]})


def position_of(marks: Marks, *others: Mapping[str, int]) -> dict[str, int]:
    """Return the highest segment that any of these names, for each stream."""
    position: dict[str, int] = {}
    for numbers in (marks, *others):
        for stream, number in numbers.items():
            position[stream] = max(number, position.get(stream, 0))
    return position


def plan_batches(
    waiting: Mapping[str, Sequence[Segment]], progress: Mapping[str, Progress], most_bytes: int
) -> list[Batch]:
    """Plan the next batch of each table; tables at the same position share one.

    Mostly that is one batch for all. A table that is behind gets its own, and the others do not
    wait for it: those ahead come first.

    Args:
        waiting: the sealed segments of each stream, contiguous from the lowest that is not retired.
    """
    groups: dict[tuple[int, ...], list[str]] = {}
    for table, of_table in progress.items():
        position = tuple(of_table.position.get(stream, 0) for stream in sorted(waiting))
        groups.setdefault(position, []).append(table)
    batches = []
    for _, tables in sorted(groups.items(), key=lambda group: sum(group[0]), reverse=True):
        segments = _choose(waiting, progress[tables[0]].position, most_bytes)
        last = Batch(segments, {}).last
        ranges = {table: _ranges(last, progress[table].marks) for table in tables}
        batches.append(Batch(segments, ranges))
    return [batch for batch in batches if batch.segments]


def _choose(
    waiting: Mapping[str, Sequence[Segment]], position: Mapping[str, int], most_bytes: int
) -> tuple[Segment, ...]:
    """Choose the next segments of every stream: in order, at least one, up to `most_bytes`."""
    chosen: list[Segment] = []
    size = 0
    # Round robin, oldest first: one busy stream does not keep the others waiting.
    queues = {
        stream: [segment for segment in segments if segment.number > position.get(stream, 0)]
        for stream, segments in waiting.items()
    }
    turn = 0
    while queues:
        for stream, queue in sorted(queues.items()):
            if turn == len(queue) or (chosen and size + queue[turn].bytes > most_bytes):
                # What follows a segment that does not fit waits as well: consumption has no gaps.
                del queues[stream]
            else:
                chosen.append(queue[turn])
                size += queue[turn].bytes
        turn += 1
    return tuple(sorted(chosen, key=attrgetter("stream", "number")))


def _ranges(last: Mapping[str, int], marks: Marks) -> dict[str, Range]:
    """From right behind each mark: what lies between it and the position holds no rows."""
    return {stream: Range(marks.get(stream, 0) + 1, number) for stream, number in last.items()}


def plan_tasks(
    segments: Sequence[Segment], task_bytes: int, parallelism: int = 1
) -> list[tuple[Segment, ...]]:
    """Cut segments into tasks of equal size: a task writes a file.

    Where there is enough for all cores, a task has enough for a file of `task_bytes`; where there
    are more tasks than can run side by side, they are a multiple of `parallelism`, so that none of
    the cores waits for the last ones. Of less, as many cores are used as there are pieces of
    `task_bytes`, though a file is somewhat smaller then.
    """
    if not segments:
        return []
    size = _size(segments)
    count = int(size / (task_bytes * BYTES_OF_FILE))
    if count < parallelism:
        count = min(parallelism, size // task_bytes)
    else:
        count -= count % parallelism
    return _cut(segments, max(1, count))


def _size(segments: Sequence[Segment]) -> int:
    return sum(segment.bytes for segment in segments)


def _cut(segments: Sequence[Segment], count: int) -> list[tuple[Segment, ...]]:
    """Cut where the shares end on the whole, so that no remainder gathers in the last."""
    share = _size(segments) / count
    smallest = share * SMALLEST_PART
    tasks: list[list[Segment]] = [[]]
    taken = 0
    for segment in segments:
        start = 0
        while len(tasks) < count:
            room = share * len(tasks) - taken
            if segment.bytes - start <= room + smallest:
                break
            if room > smallest:
                end = start + int(room)
                tasks[-1].append(_part(segment, start, end))
                taken, start = taken + int(room), end
            tasks.append([])
        tasks[-1].append(_part(segment, start, segment.bytes))
        taken += segment.bytes - start
    return [tuple(task) for task in tasks if task]


def _part(segment: Segment, start: int, end: int) -> Segment:
    if start == 0 and end == segment.bytes:
        return segment
    return replace(segment, start=start, end=end)
