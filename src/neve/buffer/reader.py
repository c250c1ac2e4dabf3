"""The consumer's side of a buffer: list, read, retire. From any process, on any machine."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from neve.buffer import retire as retirement
from neve.buffer import stream_states
from neve.buffer.frame import Entry, read_heads
from neve.buffer.identity import ensure_identity
from neve.buffer.layout import Kind, buffer_id_of, retained_path
from neve.buffer.listing import Segment, SignalListing, StreamStatus, describe_streams, segments_of
from neve.buffer.part_index import PartHashes, PartIndex, PartIndexes
from neve.buffer.read_ahead import at_once
from neve.buffer.request_batches import REQUESTS, read_batches
from neve.buffer.retained import list_retained, note_duplicates, read_duplicates
from neve.buffer.stream import load_stream
from neve.buffer.stream_states import DropNotes, StreamState
from neve.buffer.window import NANOS
from neve.errors import CorruptionError, NotFoundError
from neve.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from neve.buffer.layout import StoredFile
    from neve.buffer.store import BufferStore

__all__ = [
    "REQUESTS",
    "BufferReader",
    "KnownRequests",
    "RetainedSegment",
    "Segment",
    "StreamStatus",
]

T = TypeVar("T")
Look = tuple[SignalListing, list[StreamStatus]]


@dataclass(frozen=True, slots=True)
class RetainedSegment:
    """A segment that was consumed and is kept for a while."""

    segment: Segment
    consumed_unix_nano: int


@dataclass(frozen=True, slots=True)
class KnownRequests:
    """The requests of a sealed segment, or of segments that were retired."""

    stream: str
    number: int
    is_retired: bool
    index: PartIndex | PartHashes


class BufferReader:
    """The consumer's side of a buffer."""

    def __init__(
        self, store: BufferStore, *, dedup_seconds: float, retain_seconds: float = 0.0
    ) -> None:
        self._store = store
        self._retain_seconds = retain_seconds
        self._dedup_nanos = int(dedup_seconds * NANOS)
        self._known = PartIndexes(store)
        self._notes = DropNotes(store)
        # As each signal was listed last.
        self._listings: dict[str, SignalListing] = {}

    def look(self, signal: str) -> Look:
        """List a signal once, and say what waits in each of its streams, sorted by name."""

        def read() -> Look:
            began = time.monotonic()
            listing = SignalListing.of(signal, self._store.files(signal), began)
            self._known.keep_only(signal, listing.files)
            return listing, self.describe(listing)

        listing, streams = _read_while_retiring(read)
        self._listings[signal] = listing
        return listing, streams

    def look_at_all(self) -> dict[str, Look | Exception]:
        """List every signal, at the same time. What fails is the failure of that signal alone.

        Not the buffer as a whole: there may be many dead letters beside the signals.
        """
        signals = sorted(signal.value for signal in Signal)
        with ThreadPoolExecutor(len(signals)) as pool:
            looking = {signal: pool.submit(self.look, signal) for signal in signals}
        looks: dict[str, Look | Exception] = {}
        for signal, look in looking.items():
            error = look.exception()
            if error is not None and not isinstance(error, Exception):
                raise error
            looks[signal] = error or look.result()
        return looks

    def streams(self, signal: str | None = None) -> list[StreamStatus]:
        """Return the streams that are there, sorted by name."""
        if signal is not None:
            return self.look(signal)[1]
        found: list[StreamStatus] = []
        for look in self.look_at_all().values():
            if isinstance(look, Exception):
                raise look
            found += look[1]
        return found

    def describe(self, listing: SignalListing) -> list[StreamStatus]:
        """Say what waits in the streams of a listing."""
        return describe_streams(listing, self._known)

    def segments(self, stream: str, after: int = 0) -> list[Segment]:
        """Return the sealed segments after number `after`, contiguous; a gap is waited for."""
        return segments_of(load_stream(self._store, stream), after)

    def read_whole(self, segment: Segment) -> bytes:
        """Return a segment as it is stored, for `read`. Raises NotFoundError: it is not there."""
        return self._store.read(segment.path)

    def read(self, segment: Segment, data: bytes | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the requests of a segment or a part, as `REQUESTS`, in the order they were stored.

        Of a damaged segment, what lies before the damage is read. The part with the damaged frame
        reports it; the parts behind it yield nothing.

        Args:
            data: the segment, if it was read before.

        Raises:
            NotFoundError: it is not there; `is_retired` tells whether it was consumed.
            CorruptionError: it is damaged; the batches before were not.
        """
        data = self.read_whole(segment) if data is None else data
        if len(data) != segment.bytes:
            if segment.start:
                return  # the first part reports it
            raise CorruptionError(
                f"{segment.path} has {len(data)} bytes instead of {segment.bytes}"
            )
        try:
            yield from read_batches(segment, data)
        except CorruptionError as error:
            raise CorruptionError(f"{segment.path}: {error.message}") from error

    def entries(self, segment: Segment) -> Iterator[Entry]:
        """Yield what identifies a segment's requests, without reading their payloads.

        Raises as `read` does.
        """
        with self._store.open_file(segment.path) as read:
            for head in read_heads(read, segment.bytes):
                yield from head.entries

    def is_retired(self, segment: Segment) -> bool:
        """Tell whether a segment was declared retired, alone or with its whole stream.

        That it is not there is no proof of it.
        """
        stream = load_stream(self._store, segment.stream)
        if segment.number <= stream.retired_through:
            return True
        return stream_states.is_dropped(self._store, segment.stream)

    @cached_property
    def buffer_id(self) -> str:
        """The id of this buffer, made now if it has none. Raises CorruptionError."""
        return ensure_identity(self._store)

    def stream_states(self, names: Iterable[str]) -> dict[str, StreamState]:
        """Return for each stream whether it is here now, was dropped, or is not found."""
        return self._notes.stream_states(names, self._listed_files)

    def _listed_files(self, stream: str) -> list[StoredFile]:
        listing = self._listings.get(stream.partition("/")[0])
        return listing.streams[stream].files if listing and stream in listing.streams else []

    def dropped(self, names: Iterable[str]) -> set[str]:
        """Return those of our streams that are known to have been dropped.

        One that was there when its signal was listed last counts as present for now.
        """
        gone = [
            name
            for name in names
            if buffer_id_of(name) in (None, self.buffer_id) and not self._listed_files(name)
        ]
        return self._notes.find(gone)

    def owns(self, stream: str) -> bool:
        """Tell whether a stream is this buffer's.

        Its name says so; a stream named before buffers had ids is ours if it is here, or was
        dropped here.
        """
        owner = buffer_id_of(stream)
        if owner is not None:
            return owner == self.buffer_id
        return self.stream_states([stream])[stream] is not StreamState.MISSING

    def dropped_streams(self, signal: str) -> list[str]:
        """Return the streams of a signal that were dropped, and whose note is still there.

        Those that other processes have dropped are listed now and then.
        """
        return self._notes.known(signal)

    def removable_drop_notes(self, signal: str) -> list[str]:
        """Return the dropped streams whose note may be removed, as far as the buffer knows.

        One that had to stay a moment ago is not named: asking again takes listings.
        """
        return self._notes.removable(signal)

    def remove_drop_note(self, stream: str) -> None:
        """Remove the note of a dropped stream, once no table has a mark of it.

        Idempotent. The note stays while files or dead letters of the stream are left.
        """
        self._notes.remove(stream)

    def known_requests(
        self,
        signal: str,
        listing: SignalListing | None = None,
        through: Mapping[str, int] | None = None,
    ) -> list[KnownRequests]:
        """Return what identifies the requests known of a signal: those waiting, and retired ones.

        Those retired within the dedup window come under the number they were retired through.

        Args:
            listing: of the signal; without it, the signal is listed now.
            through: for each stream, the last segment to look at; without it, all that wait.
        """
        listings = [listing] if listing else []

        def read() -> list[KnownRequests]:
            listing = listings.pop() if listings else self.look(signal)[0]
            return self._known_requests(listing, through)

        return _read_while_retiring(read)

    def _known_requests(
        self, listing: SignalListing, through: Mapping[str, int] | None
    ) -> list[KnownRequests]:
        streams = listing.streams.values()
        retired = [part for stream in streams for part in stream.retired]
        waiting = [
            part
            for stream in streams
            for part in stream.waiting()
            if through is None or part.number <= through.get(stream.name, 0)
        ]
        indexes: list[PartIndex | PartHashes]
        indexes = [*self._known.hashes(retired), *self._known.load(waiting)]
        return [
            KnownRequests(part.stream, part.number, part.kind is Kind.RETIRED, index)
            for part, index in zip([*retired, *waiting], indexes, strict=True)
        ]

    def retire(self, stream: str, through: int, listing: SignalListing | None = None) -> None:
        """Remove a stream's segments up to number `through`. Idempotent; see `retire.retire`.

        Args:
            listing: younger than the commits that consumed them; without it, the stream is listed
                now.
        """
        left = retirement.retire(
            self._store,
            stream,
            through,
            self._keep_since(),
            self._retain_seconds,
            self._known,
            listing.streams[stream] if listing else None,
        )
        if listing:
            listing.streams[stream] = left

    def drop_all(self, listing: SignalListing) -> None:
        """Drop the streams of a listing that can be dropped, at the same time; see `drop`."""
        at_once(lambda stream: self.drop(stream, listing), list(listing.streams))

    def drop(self, stream: str, listing: SignalListing | None = None) -> bool:
        """Drop a closed and wholly retired stream.

        False while its hashes are still needed, or its segments are retained.

        Args:
            listing: has the stream; without it, the stream is listed now.
        """
        listed = [listing.streams[stream]] if listing else []
        is_dropped = _read_while_retiring(
            lambda: retirement.drop(
                self._store,
                stream,
                self._keep_since(),
                self._retain_seconds,
                self._known,
                listed.pop() if listed else None,
            )
        )
        if is_dropped:
            self._notes.add(stream)
            if listing:
                del listing.streams[stream]
        return is_dropped

    def retained(self, prefix: str = "") -> list[RetainedSegment]:
        """Return the retained segments of a signal or a stream, or all; sorted by place."""
        return [
            RetainedSegment(
                Segment(
                    part.stream,
                    part.number,
                    part.sealed_bytes or part.file.size,
                    retained_path(part.file.path),
                ),
                part.file.modified_unix_nano,
            )
            for part in list_retained(self._store, prefix)
        ]

    def note_duplicates(
        self, stream: str, number: int, positions: Mapping[str, Sequence[int]]
    ) -> None:
        """Note, before a segment is retired, which of its requests are copies of stored ones.

        Idempotent, and only where segments are retained.

        Args:
            positions: for each table that left requests out, their positions in the segment.
        """
        if self._retain_seconds > 0:
            note_duplicates(self._store, stream, number, positions)

    def noted_duplicates(self, signal: str) -> dict[tuple[str, int], dict[str, list[int]]]:
        """Return what was noted of retained segments: by stream and number, positions by table."""
        return read_duplicates(self._store, signal)

    def finish_retiring(self, signal: str) -> None:
        """Retain, or delete, what a kill left behind between declaration and removal."""
        retirement.finish_retiring(self._store, signal, self._retain_seconds)

    def close_abandoned(self) -> list[str]:
        """End the streams whose receiver is gone, so that all of them can be read."""
        return self._store.close_abandoned()

    def _keep_since(self) -> int:
        return time.time_ns() - self._dedup_nanos


def _read_while_retiring(read: Callable[[], T]) -> T:
    """List and read again if another worker retires what was listed before it was read."""
    for _ in range(retirement.LISTINGS):
        with suppress(NotFoundError):
            return read()
    return read()
