"""The consumer's side of a buffer: list, read, retire. From any process, on any machine."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import pyarrow as pa

from neve.buffer import retire as retirement
from neve.buffer import stream_states
from neve.buffer.frame import Entry, Head, read_frames, read_heads, read_sender_names
from neve.buffer.identity import ensure_identity
from neve.buffer.layout import Kind, buffer_id_of, retained_path
from neve.buffer.part_index import PartIndex, PartIndexes
from neve.buffer.payload import HASH_BYTES, SENDER_BYTES, unpack
from neve.buffer.retained import list_retained, note_duplicates, read_duplicates
from neve.buffer.stream import (
    StreamParts,
    is_closed,
    load_all_streams,
    load_stream,
    load_streams,
    read_entries,
)
from neve.buffer.stream_states import StreamState
from neve.buffer.window import NANOS
from neve.errors import CorruptionError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from neve.buffer.layout import Part
    from neve.buffer.store import BufferStore

T = TypeVar("T")

# Unpacked payloads in one batch; a single request may be larger.
BATCH_BYTES = 16 * 1024 * 1024

_FIELDS: list[tuple[str, pa.DataType]] = [
    ("stream", pa.string()),
    ("segment", pa.int64()),
    ("position", pa.int32()),
    ("signal", pa.string()),
    ("received_unix_nano", pa.int64()),
    ("sender", pa.binary(SENDER_BYTES)),
    ("sender_name", pa.string()),
    ("content_hash", pa.binary(HASH_BYTES)),
    ("records", pa.int32()),
    ("payload", pa.binary()),
]
REQUESTS = pa.schema(_FIELDS)


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
    index: PartIndex


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


class BufferReader:
    """The consumer's side of a buffer."""

    def __init__(
        self, store: BufferStore, *, dedup_seconds: float, retain_seconds: float = 0.0
    ) -> None:
        self._store = store
        self._retain_seconds = retain_seconds
        self._dedup_nanos = int(dedup_seconds * NANOS)
        self._known = PartIndexes(store)

    def streams(self, signal: str | None = None) -> list[StreamStatus]:
        """Return the streams that are there, sorted by name."""

        def read() -> list[StreamStatus]:
            streams = load_streams(self._store, signal) if signal else load_all_streams(self._store)
            return [self._status(stream) for stream in streams]

        return _read_while_retiring(read)

    def _status(self, stream: StreamParts) -> StreamStatus:
        waiting = [part for n, part in stream.segments.items() if n > stream.retired_through]
        waiting.sort(key=lambda part: part.number)
        return StreamStatus(
            stream=stream.name,
            segments=len(waiting),
            bytes=sum(part.file.size for part in waiting),
            open_bytes=stream.open_bytes,
            retired_through=stream.retired_through,
            oldest_received_unix_nano=self._oldest(waiting),
            closed=is_closed(self._known, stream),
            missing=stream.missing,
        )

    def _oldest(self, waiting: list[Part]) -> int | None:
        # The closing segment has none.
        for part in waiting:
            # Another worker may retire it after it was listed.
            with suppress(NotFoundError):
                for entry in read_entries(self._store, part):
                    return entry.received_unix_nano
        return None

    def segments(self, stream: str, after: int = 0) -> list[Segment]:
        """Return the sealed segments after number `after`, contiguous; a gap is waited for."""
        return [
            Segment(stream, part.number, part.sealed_bytes or part.file.size, part.file.path)
            for part in load_stream(self._store, stream).waiting(after)
        ]

    def read(self, segment: Segment) -> Iterator[pa.RecordBatch]:
        """Yield the requests of a segment or a part, as `REQUESTS`, in the order they were stored.

        Of a damaged segment, what lies before the damage is read. The part with the damaged frame
        reports it; the parts behind it yield nothing.

        Raises:
            NotFoundError: it is not there; `is_retired` tells whether it was consumed.
            CorruptionError: it is damaged; the batches before were not.
        """
        data = self._store.read(segment.path)
        if len(data) != segment.bytes:
            if segment.start:
                return  # the first part reports it
            raise CorruptionError(
                f"{segment.path} has {len(data)} bytes instead of {segment.bytes}"
            )
        try:
            yield from _batches(segment, data)
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
        """Return for each stream whether it is here, was dropped, or is not found."""
        return stream_states.load_stream_states(self._store, names)

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
        """Return the streams of a signal that were dropped, and whose note is still there."""
        return stream_states.list_dropped(self._store, signal)

    def remove_drop_note(self, stream: str) -> None:
        """Remove the note of a dropped stream, once no table has a mark of it.

        Idempotent. The note stays while files or dead letters of the stream are left.
        """
        stream_states.remove_drop_note(self._store, stream)

    def known_requests(self, signal: str) -> list[KnownRequests]:
        """Return what identifies the requests known of a signal: those waiting, and retired ones.

        Those retired within the dedup window come under the number they were retired through.
        """
        return _read_while_retiring(lambda: self._known_requests(signal))

    def _known_requests(self, signal: str) -> list[KnownRequests]:
        parts = [
            part
            for stream in load_streams(self._store, signal)
            for part in (*stream.retired, *stream.waiting())
        ]
        return [
            KnownRequests(part.stream, part.number, part.kind is Kind.RETIRED, index)
            for part, index in zip(parts, self._known.load(parts), strict=True)
        ]

    def retire(self, stream: str, through: int) -> None:
        """Remove a stream's segments up to number `through`. Idempotent; see `retire.retire`."""
        retirement.retire(self._store, stream, through, self._keep_since(), self._retain_seconds)

    def drop(self, stream: str) -> bool:
        """Drop a closed and wholly retired stream.

        False while its hashes are still needed, or its segments are retained.
        """
        return _read_while_retiring(
            lambda: retirement.drop(
                self._store, stream, self._keep_since(), self._retain_seconds, self._known
            )
        )

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


class _StoredRequest(NamedTuple):
    """A request as it was read; a tuple, as there are many of them."""

    position: int
    entry: Entry
    sender_name: str | None
    payload: bytes


def _batches(segment: Segment, data: bytes) -> Iterator[pa.RecordBatch]:
    requests: list[_StoredRequest] = []
    size = 0
    damage: CorruptionError | None = None
    try:
        for request in _requests(segment, data):
            requests.append(request)
            size += request.entry.raw_bytes
            if size >= BATCH_BYTES:
                yield _batch(segment, requests)
                requests, size = [], 0
    except CorruptionError as error:
        damage = error
    # What came before the damage is whole.
    if requests:
        yield _batch(segment, requests)
    if damage is not None:
        raise damage


def _frames(segment: Segment, data: bytes) -> Iterator[tuple[int, Head, memoryview]]:
    """Yield the frames of a part, each with the position of its first request."""
    within = range(segment.start, segment.bytes if segment.end is None else segment.end)
    position, offset = 0, 0
    try:
        for head, payloads in read_frames(data):
            if head.offset in within:
                yield position, head, payloads
            elif head.offset >= within.stop:
                return
            position, offset = position + head.count, head.end
    except CorruptionError:
        if offset in within:
            raise


def _requests(segment: Segment, data: bytes) -> Iterator[_StoredRequest]:
    for position, head, payloads in _frames(segment, data):
        offset = 0
        names = read_sender_names(head, payloads)
        for number, (entry, name) in enumerate(zip(head.entries, names, strict=True), position):
            stored = payloads[offset : offset + entry.stored_bytes]
            offset += entry.stored_bytes
            payload = unpack(stored, entry.codec, entry.raw_bytes)
            yield _StoredRequest(number, entry, name, payload)


def _batch(segment: Segment, requests: list[_StoredRequest]) -> pa.RecordBatch:
    signal = segment.stream.partition("/")[0]
    columns: dict[str, list[Any]] = {
        "stream": [segment.stream] * len(requests),
        "segment": [segment.number] * len(requests),
        "position": [request.position for request in requests],
        "signal": [signal] * len(requests),
        "received_unix_nano": [request.entry.received_unix_nano for request in requests],
        "sender": [request.entry.sender for request in requests],
        "sender_name": [request.sender_name for request in requests],
        "content_hash": [request.entry.content_hash for request in requests],
        "records": [request.entry.records for request in requests],
        "payload": [request.payload for request in requests],
    }
    return pa.RecordBatch.from_pydict(columns, schema=REQUESTS)
