"""What one listing of a signal shows: its streams, their segments, and the lease on the signal.

A run of consolidation lists a signal twice, whatever the number of its streams: before it plans,
and after its batch (docs/decisions/0019-listings.md).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from neve.buffer.stream import StreamParts, is_closed, last_part, may_close, parse_streams

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from neve.buffer.layout import Part, StoredFile
    from neve.buffer.part_index import PartIndexes


@dataclass(frozen=True, slots=True)
class Segment:
    """A sealed segment, or a part of it: the frames that begin from `start` up to `end`."""

    stream: str
    number: int
    bytes: int
    path: str
    start: int = 0
    end: int | None = None


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """A stream, and what of it waits to be consumed."""

    stream: str
    segments: int
    bytes: int
    open_bytes: int
    retired_through: int
    oldest_received_unix_nano: int | None
    closed: bool
    # The number of a segment that later ones wait for. If it never comes, it is lost.
    missing: int | None

    @property
    def signal(self) -> str:
        return self.stream.partition("/")[0]


@dataclass
class SignalListing:
    """The streams of a signal when they were listed; what its reader retires or drops is removed.

    Args:
        files: as they were listed, also those that belong to no stream.
        streams: by their names, sorted.
        described: what was said of each, for as long as it is the same.
        began: by the monotonic clock, when listing began.
    """

    signal: str
    files: Sequence[StoredFile]
    streams: dict[str, StreamParts]
    described: dict[StreamParts, StreamStatus] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    @classmethod
    def of(cls, signal: str, files: Sequence[StoredFile], began: float) -> SignalListing:
        streams = {stream.name: stream for stream in parse_streams(files)}
        return cls(signal, files, streams, began=began)

    @property
    def age_seconds(self) -> float:
        return time.monotonic() - self.began

    def segments(self) -> dict[str, list[Segment]]:
        """Return the sealed segments of each stream, contiguous; a gap is waited for."""
        return {name: segments_of(stream) for name, stream in self.streams.items()}

    @property
    def retired_through(self) -> dict[str, int]:
        return {name: stream.retired_through for name, stream in self.streams.items()}

    def shows_all_of(self, marks: Mapping[str, int]) -> bool:
        """Tell whether it shows every stream that is named here, as far as it is consumed.

        If not, it is older than the marks: a request that a table has consumed may be unknown.
        """
        return all(
            name in self.streams and self.streams[name].last_number >= mark
            for name, mark in marks.items()
        )


def segments_of(stream: StreamParts, after: int = 0) -> list[Segment]:
    """Return the sealed segments after a number, contiguous."""
    return [
        Segment(stream.name, part.number, part.sealed_bytes or part.file.size, part.file.path)
        for part in stream.waiting(after)
    ]


def describe_streams(listing: SignalListing, known: PartIndexes) -> list[StreamStatus]:
    """Say what waits in each stream; what has to be read for that is read at the same time.

    Raises:
        NotFoundError: a part was retired after it was listed.
    """
    described = listing.described
    new = [
        (stream, _waiting(stream)) for stream in listing.streams.values() if stream not in described
    ]
    firsts = [waiting[0] for _, waiting in new if waiting]
    lasts = (last_part(stream) for stream, _ in new)
    known.prefetch([*firsts, *(last for last in lasts if last is not None and may_close(last))])
    described.update((stream, _status(stream, waiting, known)) for stream, waiting in new)
    return [described[stream] for stream in listing.streams.values()]


def _waiting(stream: StreamParts) -> list[Part]:
    waiting = [part for n, part in stream.segments.items() if n > stream.retired_through]
    return sorted(waiting, key=lambda part: part.number)


def _status(stream: StreamParts, waiting: list[Part], known: PartIndexes) -> StreamStatus:
    return StreamStatus(
        stream=stream.name,
        segments=len(waiting),
        bytes=sum(part.file.size for part in waiting),
        open_bytes=stream.open_bytes,
        retired_through=stream.retired_through,
        oldest_received_unix_nano=_oldest(waiting, known),
        closed=is_closed(known, stream),
        missing=stream.missing,
    )


def _oldest(waiting: list[Part], known: PartIndexes) -> int | None:
    # The closing segment has none, and of a damaged one nothing may be known.
    for part in waiting:
        received = known.load([part])[0].received_unix_nano
        if len(received):
            return int(received[0])
    return None
