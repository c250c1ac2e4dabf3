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
ENTRY_BYTES = _ENTRY.size
HEADER_BYTES = _HEADER.size + _CRC.size
EMPTY_SEGMENT_BYTES = PREAMBLE_BYTES + HEADER_BYTES
# The first read of a segment: some 400 entries of the first frame, which is the only one in an
# object store.
FIRST_READ_BYTES = 32 * 1024
# The read of a head behind a large payload: some 50 entries.
NEXT_READ_BYTES = 4 * 1024
# Small frames are read many at a time, in reads that grow up to this size.
LARGEST_READ_BYTES = 1024 * 1024
# A read that served this many headers and lists of entries held small frames.
DENSE_PARTS = 8


class Entry(NamedTuple):
    """What is known of a request without its payload. A tuple, as there are many of them."""

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
    packed_entries: bytes
    payload_bytes: int
    payload_crc: int

    @property
    def entries(self) -> tuple[Entry, ...]:
        return parse_entries(self.packed_entries)

    @property
    def count(self) -> int:
        """How many requests it has."""
        return len(self.packed_entries) // ENTRY_BYTES

    @property
    def payload_offset(self) -> int:
        return self.offset + HEADER_BYTES + len(self.packed_entries)

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
        raise CorruptionError("a buffer segment does not begin with its preamble")
    return salt


def frame_parts(requests: Sequence[Request], salt: bytes) -> list[bytes]:
    """Return a frame as parts to be written one after the other, payloads uncopied."""
    # A dict keeps the order in which names were first seen.
    names = {request.sender_name: None for request in requests if request.sender_name}
    indexes = {"": 0} | {name: index for index, name in enumerate(names, start=1)}
    entries = b"".join(
        _pack(request, indexes[request.sender_name], len(request.payload)) for request in requests
    )
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
    return packed_heads_only(pack_entries(entries), closing=closing)


def packed_heads_only(packed: bytes, *, closing: bool) -> bytes:
    """Return what `heads_only` does for entries that are packed already."""
    head = _head(packed, NO_SALT, 0, 0, flags=CLOSING if closing else 0)
    return preamble(NO_SALT) + head


def pack_entries(entries: Sequence[Entry]) -> bytes:
    """Return requests' identities as a segment without payloads stores them."""
    return b"".join(_pack(entry, 0, 0) for entry in entries)


def _pack(request: Request | Entry, sender_name_index: int, stored_bytes: int) -> bytes:
    return _ENTRY.pack(
        request.received_unix_nano,
        request.sender,
        request.content_hash,
        request.codec,
        sender_name_index,
        request.records,
        request.raw_bytes,
        stored_bytes,
    )


def _head(index: bytes, salt: bytes, payload_bytes: int, payload_crc: int, *, flags: int) -> bytes:
    count = len(index) // _ENTRY.size
    header = _HEADER.pack(salt, flags, count, payload_bytes, payload_crc)
    return header + _CRC.pack(zlib.crc32(index, zlib.crc32(header))) + index


ReadRange = Callable[[int, int], bytes]
"""Returns the bytes from a start, as many as a length says; fewer at the end of the file."""


class _ReadAhead:
    """Reads small frames many at a time, and skips large payloads."""

    def __init__(self, read: ReadRange) -> None:
        self._read = read
        self._start = 0
        self._data = read(0, FIRST_READ_BYTES)
        self._served = 0

    def __call__(self, offset: int, length: int) -> bytes:
        start = offset - self._start
        if start + length > len(self._data):
            is_dense = self._served >= DENSE_PARTS
            size = min(2 * len(self._data), LARGEST_READ_BYTES) if is_dense else NEXT_READ_BYTES
            self._data = self._read(offset, max(size, length))
            self._start, start, self._served = offset, 0, 0
        self._served += 1
        return self._data[start : start + length]


def read_heads(read: ReadRange, size: int) -> Iterator[Head]:
    """Yield the frames' heads of a segment of `size` bytes; payloads are not looked at.

    Raises:
        CorruptionError: at the first frame that is not whole; what came before it was.
    """
    return _heads(_ReadAhead(read), size)


def _heads(read: ReadRange, size: int) -> Iterator[Head]:
    salt = _salt(read(0, PREAMBLE_BYTES))
    offset = PREAMBLE_BYTES
    while offset < size:
        head = _parse_head(read, salt, offset, size)
        yield head
        offset = head.end


def _parse_head(read: ReadRange, salt: bytes, offset: int, size: int) -> Head:
    header = read(offset, HEADER_BYTES)
    if len(header) < HEADER_BYTES or not header.startswith(salt):
        raise CorruptionError(f"no buffer frame at byte {offset}")
    _, flags, count, payload_bytes, payload_crc = _HEADER.unpack_from(header)
    entries_bytes = count * _ENTRY.size
    if offset + HEADER_BYTES + entries_bytes + payload_bytes > size:
        raise CorruptionError(f"the buffer frame at byte {offset} is cut off")
    index = read(offset + HEADER_BYTES, entries_bytes)
    (head_crc,) = _CRC.unpack_from(header, _HEADER.size)
    if zlib.crc32(index, zlib.crc32(header[: _HEADER.size])) != head_crc:
        raise CorruptionError(f"the head of the buffer frame at byte {offset} is damaged")
    return Head(offset, bool(flags & CLOSING), index, payload_bytes, payload_crc)


def parse_entries(packed: bytes) -> tuple[Entry, ...]:
    """Return entries that are stored one behind the other."""
    return tuple(map(Entry._make, _ENTRY.iter_unpack(packed)))


def is_closing(segment: bytes) -> bool:
    """Say whether a segment ends its stream."""
    return any(head.closing for head in _heads(_slices(segment), len(segment)))


def _slices(segment: bytes | memoryview) -> ReadRange:
    return lambda start, length: bytes(segment[start : start + length])


def read_frames(segment: bytes | memoryview) -> Iterator[tuple[Head, memoryview]]:
    """Yield the frames of a whole segment in memory, with their payloads checked.

    Raises:
        CorruptionError: at the first frame that is not whole; what came before it was.
    """
    view = memoryview(segment)
    for head in _heads(_slices(view), len(view)):
        payloads = view[head.payload_offset : head.end]
        if zlib.crc32(payloads) != head.payload_crc:
            raise CorruptionError(f"payloads of the buffer frame at byte {head.offset} are damaged")
        yield head, payloads


def read_sender_names(head: Head, payloads: memoryview) -> tuple[str | None, ...]:
    """Return the sender's name of each entry; None where there is none.

    Raises:
        CorruptionError: an entry refers to a name that the frame does not have.
    """
    entries = head.entries
    if not any(entry.sender_name_index for entry in entries):
        return (None,) * len(entries)
    names: list[str | None] = [None]
    offset = sum(entry.stored_bytes for entry in entries)
    try:
        while offset < len(payloads):
            (length,) = _NAME_LENGTH.unpack_from(payloads, offset)
            offset += _NAME_LENGTH.size
            names.append(str(payloads[offset : offset + length], "utf-8"))
            offset += length
        return tuple(names[entry.sender_name_index] for entry in entries)
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
