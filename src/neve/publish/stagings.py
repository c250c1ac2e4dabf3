"""Staged snapshots, and what a buffer says of the streams that they are of.

That a stream is not in this buffer proves nothing: it may be another buffer's, or away for a while.
Proof is a mark of the table, or the note that a dropped stream leaves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from neve.buffer.stream_states import StreamState
from neve.errors import StorageError, UsageError
from neve.lake.staged_snapshot import StagedSnapshot
from neve.lake.staging import StagingTable
from neve.publish.batch import STAGED_PREFIX
from neve.publish.ranges import (
    Marks,
    Ranges,
    decode_ranges,
    follows,
    have_others_moved,
    is_consumed,
    read_marks,
)


class Streams(Protocol):
    """What publishing asks of a buffer; a `BufferReader` has it."""

    def stream_states(self, names: Iterable[str]) -> Mapping[str, StreamState]:
        """Return for each stream whether it is there, was dropped, or is not found."""

    def dropped(self, names: Iterable[str]) -> set[str]:
        """Return those of the buffer's streams that are known to have been dropped."""

    def owns(self, stream: str) -> bool:
        """Tell whether a stream is this buffer's, and not another one's."""


@dataclass(frozen=True)
class Staging:
    """A staged snapshot, and what this buffer says of its streams."""

    snapshot: StagedSnapshot
    ranges: Ranges
    states: Mapping[str, StreamState]
    is_own: bool

    @property
    def is_present(self) -> bool:
        return all(state is StreamState.PRESENT for state in self.states.values())

    def is_next(self, marks: Marks) -> bool:
        """Tell whether it goes on where its table is, and all its streams are there."""
        return self.is_present and follows(self.ranges, marks)

    def is_consumed(self, marks: Marks) -> bool:
        """Tell whether it is proven that the table has its rows."""
        return is_proven_consumed(self.ranges, marks, self.states)


def require_present(table: str, states: Mapping[str, StreamState]) -> None:
    """Raise StorageError, retryable, if a stream is not in the buffer and was not dropped."""
    missing = sorted(stream for stream, state in states.items() if state is StreamState.MISSING)
    if missing:
        raise StorageError(
            f"{table}: stream {missing[0]} is not in the buffer, and was not dropped",
            hint="if its directory was moved, move it back; see also: neve staged list",
            retryable=True,
        )


def is_proven_consumed(ranges: Ranges, marks: Marks, states: Mapping[str, StreamState]) -> bool:
    """Tell whether a mark is past these ranges, or a stream of them was dropped."""
    return is_consumed(ranges, marks) or StreamState.DROPPED in states.values()


def was_consumed(table: StagingTable, ranges: Ranges, streams: Streams) -> bool:
    """Tell whether another worker was first: a mark says so, or that a stream was dropped.

    A mark below a range is proof that the stream was not dropped: before that, the table has
    consumed all of it, and a mark is removed but never lowered.

    Raises:
        StorageError: a stream without a mark is not in the buffer, and was not dropped. That
            proves nothing.
    """
    marks = read_marks(table.properties)
    unmarked = [] if is_consumed(ranges, marks) else [s for s in ranges if s not in marks]
    states = streams.stream_states(unmarked) if unmarked else {}
    if is_proven_consumed(ranges, marks, states):
        return True
    require_present(table.name, states)
    return False


def may_hold_copies(table: StagingTable, summary: Mapping[str, str], streams: Streams) -> bool:
    """Tell whether other streams of this buffer were consumed since a batch was decoded.

    A request that was sent to two receivers is in two streams. Which copy is left out follows from
    the marks, so a batch counts only while they are those that it was decoded with. Of two workers
    that consume a copy each, the first to commit wins, and the other decodes again.
    """
    return have_others_moved(summary, read_marks(table.properties), streams.owns)


def has_lost_by_marks(table: StagingTable, ranges: Ranges, streams: Streams) -> bool:
    """Tell whether a batch has lost, also where its streams are not in this buffer.

    Raises:
        UsageError: a batch before it was not published yet.
    """
    marks = read_marks(table.properties)
    if is_proven_consumed(ranges, marks, streams.stream_states(ranges)):
        return True
    if not follows(ranges, marks):
        raise UsageError(
            f"{table.name}: a batch of the same stream comes before this one",
            hint="publish or discard that one first; see: neve staged list",
        )
    return False


def dropped_streams(table: StagingTable, ranges: Ranges, streams: Streams) -> list[str]:
    """Return the streams that were dropped, and whose marks the publish of these ranges removes.

    A mark stays while a batch of its stream is staged: it proves that the batch has lost.
    """
    staged = table.staged(STAGED_PREFIX)
    needed = {*ranges, *(stream for batch in staged for stream in decode_ranges(batch.summary))}
    stale = set(read_marks(table.properties)) - needed
    return sorted(streams.dropped(stale)) if stale else []


def load_stagings(table: StagingTable, prefix: str, streams: Streams) -> list[Staging]:
    """Return what is staged in a table, as it was read last, the oldest first."""
    snapshots = table.staged(prefix)
    ranges = [decode_ranges(snapshot.summary) for snapshot in snapshots]
    names = {stream for of_snapshot in ranges for stream in of_snapshot}
    states = streams.stream_states(names) if names else {}
    return [
        Staging(
            snapshot,
            of_snapshot,
            {stream: states[stream] for stream in of_snapshot},
            is_own=all(streams.owns(stream) for stream in of_snapshot),
        )
        for snapshot, of_snapshot in zip(snapshots, ranges, strict=True)
    ]
