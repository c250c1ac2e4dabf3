"""Remove what was consumed, and keep its hashes for as long as a retry may come."""

from __future__ import annotations

import contextlib
import logging
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from neve import failpoints
from neve.buffer.frame import (
    EMPTY_SEGMENT_BYTES,
    packed_heads_only,
    parse_entries,
    read_heads,
)
from neve.buffer.layout import Kind, Part, StoredFile, part_path
from neve.buffer.part_index import PartIndex, PartIndexes, read_bytes
from neve.buffer.read_ahead import read_ahead
from neve.buffer.replay import may_be_forgotten
from neve.buffer.retained import remove_retained, retain_or_delete
from neve.buffer.stream import StreamParts, is_closed, load_stream, load_streams
from neve.buffer.stream_states import is_dropped, put_drop_note
from neve.buffer.window import NANOS
from neve.errors import CorruptionError, NotFoundError, StorageError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator

    from neve.buffer.store import BufferStore

logger = logging.getLogger(__name__)

# How often a listing is repeated whose segments are retired while they are read.
LISTINGS = 10


def retire(
    store: BufferStore,
    name: str,
    through: int,
    keep_since_unix_nano: int,
    retain_seconds: float = 0.0,
    known: PartIndexes | None = None,
    listed: StreamParts | None = None,
) -> StreamParts:
    """Declare segments up to `through` consumed, then remove them from the stream.

    The declaration is one atomic, durable file; removal only follows it. Idempotent, and safe
    beside other callers. Numbers up to `through` never come back.

    A declaration keeps the hashes of the segments it adds. Earlier ones stay beside it until the
    dedup window is past them, so that a batch does not copy the whole window; but a declaration
    takes over those no larger than itself, so that there are few.

    Args:
        retain_seconds: if it is more than 0, segments are moved and not deleted.
        known: what was read of this store before, if anything.
        listed: the stream as a listing shows it that is younger than the commits of the tables;
            without it, the stream is listed now.

    Returns:
        What is left of the stream.

    Raises:
        UsageError: a segment up to `through` was never there to be consumed.
        StorageError: nothing of the stream is there, and it was not dropped.
    """
    known = known or PartIndexes(store)
    stream = listed or load_stream(store, name)
    if not stream.segments and not stream.retired:
        _require_dropped(store, name)
        return stream
    needless = _past_window(stream, through, keep_since_unix_nano)
    new: list[Part] = []
    if through > stream.retired_through:
        declared = _declare(store, known, stream, through, keep_since_unix_nano)
        needless += declared.absorbed
        new = declared.new
        failpoints.reach("buffer.retire_declared")
    last = max(through, stream.retired_through)
    consumed = [part for n, part in stream.segments.items() if n <= last]
    retain_or_delete(store, consumed, retain_seconds)
    failpoints.reach("buffer.retire_removed")
    store.delete([part.file.path for part in needless])
    return replace(
        stream,
        segments={n: part for n, part in stream.segments.items() if n > last},
        retired=(*(part for part in stream.retired if part not in needless), *new),
    )


def _past_window(stream: StreamParts, through: int, keep_since: int) -> list[Part]:
    """Return declarations of which no hash is needed; the highest stays, for its number."""
    declared = max(through, stream.retired_through)
    return [
        part
        for part in stream.retired
        if part.number < declared and part.file.modified_unix_nano < keep_since
    ]


def _require_dropped(store: BufferStore, name: str) -> None:
    """Raise if a stream without parts was not dropped by another worker: it may come back."""
    if not is_dropped(store, name):
        raise StorageError(
            f"stream {name} is not in the buffer, and was not dropped",
            hint="if its directory was moved, move it back",
            retryable=True,
        )


@dataclass
class _Declared:
    """A declaration, and the earlier ones whose hashes it has taken over."""

    new: list[Part]
    absorbed: list[Part]


def _declare(
    store: BufferStore, known: PartIndexes, stream: StreamParts, through: int, keep_since: int
) -> _Declared:
    """Put a declaration, unless another caller has."""
    waiting = stream.waiting()
    if not waiting or through > waiting[-1].number:
        raise UsageError(
            f"{stream.name} has no segments up to {through} to retire",
            hint="retire what was listed and consumed, no more",
        )
    consumed = [part for part in waiting if part.number <= through]
    try:
        kept = _recent_packed(known, consumed, keep_since)
        earlier = _absorbed(stream.retired, keep_since, EMPTY_SEGMENT_BYTES + len(kept))
        absorbed = []
        for part, index in zip(earlier, known.load(earlier), strict=True):
            # A damaged one stays until the window is past it: its hashes cannot be taken over.
            if not index.is_damaged:
                absorbed.append(part)
                kept += index.packed_since(keep_since)
        closing = is_closed(known, stream) and through == max(stream.segments)
    except NotFoundError:
        # Another caller is retiring the same segments: list them again.
        again = load_stream(store, stream.name)
        if through > again.retired_through:
            return _declare(store, known, again, through, keep_since)
        return _Declared(_declared_since(stream, again), [])
    path = part_path(stream.name, through, Kind.RETIRED)
    data = packed_heads_only(kept, closing=closing)
    if not store.put_new(path, data):
        # Another caller's declaration of the same number may not have taken over the same ones.
        return _Declared(_declared_since(stream, load_stream(store, stream.name)), [])
    file = StoredFile(path, len(data), time.time_ns())
    known.add(file, PartIndex(kept, closing))
    return _Declared([Part(stream.name, through, Kind.RETIRED, file, None)], absorbed)


def _declared_since(before: StreamParts, now: StreamParts) -> list[Part]:
    return [part for part in now.retired if part not in before.retired]


def _absorbed(retired: Iterable[Part], keep_since: int, size: int) -> list[Part]:
    """Choose the newest declarations, each no larger than all that the new one has before it.

    So sizes at least double from one to the next: there are few, and each hash is copied few times.
    """
    absorbed = []
    for part in sorted(retired, key=lambda part: part.number, reverse=True):
        if part.file.modified_unix_nano < keep_since:
            continue
        if part.file.size > size:
            break
        absorbed.append(part)
        size += part.file.size
    return absorbed


def finish_retiring(store: BufferStore, signal: str, retain_seconds: float) -> None:
    """Move or delete segments that were declared retired before a kill."""
    for stream in load_streams(store, signal):
        consumed = [part for n, part in stream.segments.items() if n <= stream.retired_through]
        retain_or_delete(store, consumed, retain_seconds)


def drop(
    store: BufferStore,
    name: str,
    keep_since_unix_nano: int,
    retain_seconds: float = 0.0,
    known: PartIndexes | None = None,
    listed: StreamParts | None = None,
) -> bool:
    """Remove a stream that has ended and was wholly retired; False while it must stay.

    A note that it was dropped is durable before anything is removed, and stays until
    `remove_drop_note`. Idempotent; what a kill left behind is removed by the next call.

    Args:
        known: what was read of this store before, if anything.
        listed: the stream as it was listed; without it, it is listed now.
    """
    known = known or PartIndexes(store)
    stream = listed or load_stream(store, name)
    last = max(stream.retired, key=lambda part: part.number, default=None)
    if last is None or stream.waiting() or stream.missing or not is_closed(known, stream):
        return False
    # Segments are moved right behind the declaration: none is retained longer than that one.
    if time.time_ns() - last.file.modified_unix_nano < retain_seconds * NANOS:
        return False
    if _has_recent(known, stream.retired, keep_since_unix_nano):
        return False
    if not may_be_forgotten(store, stream):
        return False
    remove_retained(store, name)
    put_drop_note(store, name, last.number)
    failpoints.reach("buffer.drop_noted")
    # The last declaration goes last: until then, what is left of the stream counts as retired.
    store.delete([part.file.path for part in stream.segments.values()])
    store.delete([part.file.path for part in stream.retired if part is not last])
    store.delete([last.file.path])
    store.remove_stream(name)
    return True


def _has_recent(known: PartIndexes, parts: Iterable[Part], since_unix_nano: int) -> bool:
    young = _young(parts, since_unix_nano)
    known.prefetch(young)
    return any(known.has_since(part, since_unix_nano) for part in young)


def _recent_packed(known: PartIndexes, parts: Iterable[Part], since_unix_nano: int) -> bytes:
    indexes = known.load(_young(parts, since_unix_nano))
    return b"".join(index.packed_since(since_unix_nano) for index in indexes)


def _young(parts: Iterable[Part], since_unix_nano: int) -> list[Part]:
    # No entry of a file can be younger than the file's last change.
    return [part for part in parts if part.file.modified_unix_nano >= since_unix_nano]


def recent_keys(
    store: BufferStore, signal: str, since_unix_nano: int
) -> Iterator[tuple[int, bytes]]:
    """Yield the time and key of each request stored since then, in the order of the files' times.

    Of all streams: a receiver that starts takes over what its predecessor knew. Some may come more
    than once. Memory is bounded by what is read ahead.
    """

    def parts() -> list[Part]:
        return [
            part
            for stream in load_streams(store, signal)
            for part in (*stream.retired, *stream.segments.values())
        ]

    return _recent_while_retiring(store, parts, since_unix_nano)


def last_keys(store: BufferStore, name: str, wanted: Container[bytes]) -> set[bytes]:
    """Return which keys are in the last segment of a stream that was just ended, or before it.

    They also count if a consumer has retired that segment meanwhile.
    """

    def parts() -> list[Part]:
        stream = load_stream(store, name)
        # The last one that has requests, and the closing segment behind it.
        last = sorted(stream.segments)[-2:]
        return [*stream.retired, *(stream.segments[number] for number in last)]

    recent = _recent_while_retiring(store, parts, since_unix_nano=0)
    return {key for _, key in recent if key in wanted}


def _recent_while_retiring(
    store: BufferStore, parts: Callable[[], list[Part]], since_unix_nano: int
) -> Iterator[tuple[int, bytes]]:
    for _ in range(LISTINGS):
        with contextlib.suppress(NotFoundError):
            yield from _recent(store, parts(), since_unix_nano)
            return
        # A consumer retired a segment after it was listed: a declaration holds its hashes now.
    yield from _recent(store, parts(), since_unix_nano)


def _recent(
    store: BufferStore, parts: Iterable[Part], since_unix_nano: int
) -> Iterator[tuple[int, bytes]]:
    young = sorted(_young(parts, since_unix_nano), key=lambda part: part.file.modified_unix_nano)
    # An object store takes milliseconds for each; there may be a thousand of them.
    for _, reading in read_ahead(young, partial(_packed_heads, store), read_bytes):
        for packed in reading.result():
            for entry in parse_entries(packed):
                if entry.received_unix_nano >= since_unix_nano:
                    yield entry.received_unix_nano, entry.key


def _packed_heads(store: BufferStore, part: Part) -> list[bytes]:
    heads: list[bytes] = []
    try:
        with store.open_file(part.file.path) as read:
            # What was read before the damage counts.
            heads.extend(head.packed_entries for head in read_heads(read, part.file.size))
    except CorruptionError as error:
        # Reading the segment will report it; here it only means that a retry may not be noticed.
        logger.warning("hashes of %s cannot be read: %s", part.file.path, error)
    return heads
