"""Staged snapshots, and what a buffer says of the streams that they are of.

That a stream is not in this buffer proves nothing: it may be another buffer's, or away for a while.
Proof is a mark of the table, or the note that a dropped stream leaves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from neve.buffer.stream_states import StreamState
from neve.errors import StorageError
from neve.lake.staging import StagedSnapshot, StagingTable
from neve.publish.ranges import Marks, Ranges, decode_ranges, follows, is_consumed


class Streams(Protocol):
    """What publishing asks of a buffer; a `BufferReader` has it."""

    def stream_states(self, names: Iterable[str]) -> Mapping[str, StreamState]:
        """Return for each stream whether it is there, was dropped, or is not found."""

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
