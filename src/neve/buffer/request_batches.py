"""The requests of a segment, read into Arrow batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from neve.buffer.frame import Entry, read_frames, read_sender_names
from neve.buffer.payload import HASH_BYTES, SENDER_BYTES, unpack
from neve.errors import CorruptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from neve.buffer.frame import Head
    from neve.buffer.listing import Segment

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


class _StoredRequest(NamedTuple):
    """A request as it was read; a tuple, as there are many of them."""

    position: int
    entry: Entry
    sender_name: str | None
    payload: bytes


def read_batches(segment: Segment, data: bytes) -> Iterator[pa.RecordBatch]:
    """Yield a segment's requests, as `REQUESTS`. Raises CorruptionError, behind what is whole."""
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
    columns: dict[str, list[Any] | pa.Array] = {
        "stream": [segment.stream] * len(requests),
        "segment": [segment.number] * len(requests),
        "position": [request.position for request in requests],
        "signal": [signal] * len(requests),
        "received_unix_nano": [request.entry.received_unix_nano for request in requests],
        "sender": [request.entry.sender for request in requests],
        "sender_name": [request.sender_name for request in requests],
        "content_hash": [request.entry.content_hash for request in requests],
        "records": [request.entry.records for request in requests],
        "payload": _joined([request.payload for request in requests]),
    }
    return pa.RecordBatch.from_pydict(columns, schema=REQUESTS)


def _joined(payloads: list[bytes]) -> pa.Array:
    """Return payloads as an array; Arrow itself copies each twice."""
    ends = np.cumsum([0, *map(len, payloads)], dtype=np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(payloads))]
    return pa.Array.from_buffers(pa.binary(), len(payloads), buffers)
