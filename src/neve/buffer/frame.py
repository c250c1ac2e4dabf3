"""The bytes of a segment: a preamble, then one frame for each group commit.

    segment  = "NEVEBUF1" salt(8) preamble_crc(4) frame*
    frame    = salt(8) flags(1) pad(3) count(4) payload_bytes(8) payload_crc(4) head_crc(4)
               entry*count  payload*count  sender_name*
    entry    = received_unix_nano(8) sender(16) content_hash(32) codec(1) sender_name_index(2)
               pad(1) records(4) raw_bytes(4) stored_bytes(4)
    sender_name = length(2) utf8(length)

Little-endian. `payload_bytes` and `payload_crc` cover the payloads and the sender names; `head_crc`
covers the header and the entries, so that hashes can be read without the payloads. Each distinct
name of a frame is kept once; an entry's index counts from 1, and 0 means that the sender has no
name. Frames of versions that knew no names have zeros there, and those versions find payloads by
`stored_bytes`, so they never read the names.

The salt is random for each segment. No sender can put a valid frame into a payload, so recovery can
distinguish a torn tail from damage in the middle.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from neve.errors import CorruptionError

if TYPE_CHECKING:
    from neve.buffer.payload import Request

MAGIC = b"NEVEBUF1"
SALT_BYTES = 8
_CRC = struct.Struct("<I")
PREAMBLE_BYTES = len(MAGIC) + SALT_BYTES + _CRC.size
NO_SALT = bytes(SALT_BYTES)
CLOSING = 1

_HEADER = struct.Struct("<8sB3xIQI")
_ENTRY = struct.Struct("<q16s32sBHxIII")
_NAME_LENGTH = struct.Struct("<H")
HEADER_BYTES = _HEADER.size + _CRC.size
EMPTY_SEGMENT_BYTES = PREAMBLE_BYTES + HEADER_BYTES
# What one read of a frame's head fetches: some 400 requests of the first one, which is the only
# one in an object store, and some 50 of those that follow.
FIRST_READ_BYTES = 32 * 1024
NEXT_READ_BYTES = 4 * 1024


class Entry(NamedTuple):
    """What is known of a request without its payload; a tuple, as there are many to be read."""

    received_unix_nano: int
    sender: bytes
    content_hash: bytes
    codec: int
    sender_name_index: int
    records: int
    raw_bytes: int
    stored_bytes: int

    @property
    def key(self) -> bytes:
        """What makes two requests of one signal the same request."""
        return self.sender + self.content_hash


@dataclass(frozen=True, slots=True)
class Head:
    """A frame without its payloads."""

    offset: int
    closing: bool
    entries: tuple[Entry, ...]
    payload_bytes: int
    payload_crc: int

    @property
    def payload_offset(self) -> int:
        return self.offset + HEADER_BYTES + len(self.entries) * _ENTRY.size

    @property
    def end(self) -> int:
        return self.payload_offset + self.payload_bytes


def preamble(salt: bytes) -> bytes:
    """Return what a segment begins with."""
    start = MAGIC + salt
    return start + _CRC.pack(zlib.crc32(start))


def _salt(start: bytes) -> bytes:
    salt = start[len(MAGIC) : len(MAGIC) + SALT_BYTES]
    if start[:PREAMBLE_BYTES] != preamble(salt):
        raise CorruptionError("a buffer segment does not begin like one")
    return salt


def frame_parts(requests: Sequence[Request], salt: bytes) -> list[bytes]:
    """Return a frame as parts to be written one after the other, payloads uncopied."""
    # A dict keeps the order in which names were first seen.
    names = {request.sender_name: None for request in requests if request.sender_name}
    indexes = {"": 0} | {name: index for index, name in enumerate(names, start=1)}
    entries = [
        _pack(request, indexes[request.sender_name], len(request.payload)) for request in requests
    ]
    payloads = [request.payload for request in requests]
    if names:
        payloads.append(_pack_names(names))
    payload_crc = 0
    for payload in payloads:
        payload_crc = zlib.crc32(payload, payload_crc)
    head = _head(entries, salt, sum(map(len, payloads)), payload_crc, flags=0)
    return [head, *payloads]


def _pack_names(names: Iterable[str]) -> bytes:
    encoded = [name.encode() for name in names]
    return b"".join(_NAME_LENGTH.pack(len(name)) + name for name in encoded)


def heads_only(entries: Sequence[Entry], *, closing: bool) -> bytes:
    """Return a whole segment that keeps requests' identities and no payloads."""
    packed = [_pack(entry, 0, 0) for entry in entries]
    head = _head(packed, NO_SALT, 0, 0, flags=CLOSING if closing else 0)
    return preamble(NO_SALT) + head


def _pack(of: Request | Entry, sender_name_index: int, stored_bytes: int) -> bytes:
    return _ENTRY.pack(
        of.received_unix_nano,
        of.sender,
        of.content_hash,
        of.codec,
        sender_name_index,
        of.records,
        of.raw_bytes,
        stored_bytes,
    )


def _head(
    entries: Sequence[bytes], salt: bytes, payload_bytes: int, payload_crc: int, *, flags: int
) -> bytes:
    header = _HEADER.pack(salt, flags, len(entries), payload_bytes, payload_crc)
    index = b"".join(entries)
    return header + _CRC.pack(zlib.crc32(index, zlib.crc32(header))) + index


Read = Callable[[int, int], bytes]


def read_heads(read: Read, size: int) -> Iterator[Head]:
    """Yield the frames' heads of a segment of `size` bytes; payloads are not looked at.

    `read(start, length)` may return less at the end.

    Raises:
        CorruptionError: at the first frame that is not whole; what came before it was.
    """
    start = read(0, FIRST_READ_BYTES)
    salt = _salt(start)
    offset = PREAMBLE_BYTES
    while offset < size:
        chunk = read(offset, NEXT_READ_BYTES) if offset > PREAMBLE_BYTES else start[offset:]
        head = _parse_head(chunk, salt, offset, size, read)
        yield head
        offset = head.end


def _parse_head(chunk: bytes, salt: bytes, offset: int, size: int, read: Read) -> Head:
    if len(chunk) < HEADER_BYTES or not chunk.startswith(salt):
        raise CorruptionError(f"no buffer frame at byte {offset}")
    _, flags, count, payload_bytes, payload_crc = _HEADER.unpack_from(chunk)
    head_bytes = HEADER_BYTES + count * _ENTRY.size
    if offset + head_bytes + payload_bytes > size:
        raise CorruptionError(f"the buffer frame at byte {offset} is cut off")
    if len(chunk) < head_bytes:
        chunk = read(offset, head_bytes)
    (head_crc,) = _CRC.unpack_from(chunk, _HEADER.size)
    index = chunk[HEADER_BYTES:head_bytes]
    if zlib.crc32(index, zlib.crc32(chunk[: _HEADER.size])) != head_crc:
        raise CorruptionError(f"the head of the buffer frame at byte {offset} is damaged")
    entries = tuple(map(Entry._make, _ENTRY.iter_unpack(index)))
    return Head(offset, bool(flags & CLOSING), entries, payload_bytes, payload_crc)


def is_closing(segment: bytes) -> bool:
    """Say whether a segment ends its stream."""
    return any(head.closing for head in read_heads(_slices(segment), len(segment)))


def _slices(segment: bytes | memoryview) -> Read:
    return lambda start, length: bytes(segment[start : start + length])


def read_frames(segment: bytes | memoryview) -> Iterator[tuple[Head, memoryview]]:
    """Yield the frames of a whole segment in memory, with their payloads checked.

    Raises:
        CorruptionError: at the first frame that is not whole; what came before it was.
    """
    view = memoryview(segment)
    for head in read_heads(_slices(view), len(view)):
        payloads = view[head.payload_offset : head.end]
        if zlib.crc32(payloads) != head.payload_crc:
            raise CorruptionError(f"payloads of the buffer frame at byte {head.offset} are damaged")
        yield head, payloads


def read_sender_names(head: Head, payloads: memoryview) -> tuple[str | None, ...]:
    """Return the sender's name of each entry; None where there is none.

    Raises:
        CorruptionError: an entry refers to a name that the frame does not have.
    """
    if not any(entry.sender_name_index for entry in head.entries):
        return (None,) * len(head.entries)
    names: list[str | None] = [None]
    offset = sum(entry.stored_bytes for entry in head.entries)
    try:
        while offset < len(payloads):
            (length,) = _NAME_LENGTH.unpack_from(payloads, offset)
            offset += _NAME_LENGTH.size
            names.append(str(payloads[offset : offset + length], "utf-8"))
            offset += length
        return tuple(names[entry.sender_name_index] for entry in head.entries)
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        text = f"the sender names of the buffer frame at byte {head.offset} are damaged"
        raise CorruptionError(text) from error


def whole_bytes(segment: bytes | memoryview) -> int:
    """Return where the last whole frame of an unsealed segment ends; 0 when there is none.

    Raises:
        CorruptionError: a broken frame has whole ones behind it, so it is not a torn tail; or the
            preamble is damaged, which was durable before the first frame was written.
    """
    if len(segment) < PREAMBLE_BYTES:
        return 0
    salt = _salt(bytes(segment[:PREAMBLE_BYTES]))
    end = 0
    try:
        for head, _ in read_frames(segment):
            end = head.end
    except CorruptionError as error:
        if _has_frame(bytes(segment), salt, after=end):
            raise CorruptionError(f"{error}, and whole frames follow") from error
    return end


def _has_frame(data: bytes, salt: bytes, *, after: int) -> bool:
    # The broken frame's own salt does not count.
    offset = data.find(salt, max(after, PREAMBLE_BYTES) + 1)
    while offset != -1 and not _is_frame(preamble(salt) + data[offset:]):
        offset = data.find(salt, offset + 1)
    return offset != -1


def _is_frame(segment: bytes) -> bool:
    try:
        next(read_frames(segment))
    except CorruptionError:
        return False
    return True
