"""Reads the frames of an HTTP/2 connection before h2 does.

Messages never pass through h2: it would hold a frame until its last byte has come, copy it several
times, and count nothing. Here their bytes go on as they arrive. h2 gets all other frames, but for
GOAWAY, after which it would not send the answers of calls in progress.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from h2.errors import ErrorCodes
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    GoAwayFrame,
    HeadersFrame,
    RstStreamFrame,
    SettingsFrame,
)

from neve.limits import (
    FRAGMENT_BYTES,
    FRAME_BURST,
    FRAME_BYTES,
    FRAMES_PER_CALL,
    FRAMES_PER_SECOND,
    HEADER_LIST_BYTES,
    RESET_FRAMES,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_BYTES = 9
END_STREAM = 0x1
PADDED = 0x8
STREAM_BITS = 0x7FFF_FFFF


class RefusedPeerError(Exception):
    """The peer must go: why, in a word for the counters, and as HTTP/2 says it."""

    def __init__(self, reason: str, code: ErrorCodes, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.code = code


class NotHttp2Error(RefusedPeerError):
    """The connection does not begin as HTTP/2."""

    def __init__(self) -> None:
        super().__init__("not_http2", ErrorCodes.PROTOCOL_ERROR, "not HTTP/2")


class ProtocolViolationError(RefusedPeerError):
    """The peer breaks the rules of HTTP/2."""

    def __init__(self, message: str) -> None:
        super().__init__("protocol_error", ErrorCodes.PROTOCOL_ERROR, message)


class Data(NamedTuple):
    """Bytes of a message."""

    stream_id: int
    payload: memoryview
    # With padding: what counts for flow control.
    wire_bytes: int


class FrameReader:
    """The frames of one connection, from its first byte."""

    def __init__(self, now: float) -> None:
        self._preface = PREFACE
        self._head = b""
        # The frame that is being received: what is to come of it, and of that its padding.
        self._kind = 0
        self._stream_id = 0
        self._ends_stream = False
        self._left = 0
        self._padding: int | None = 0
        self._header_block_bytes = 0
        self._expects_settings = True
        self._overhead = 0.0
        self._overhead_at = now

    @property
    def started(self) -> bool:
        """Whether HTTP/2's first bytes have arrived."""
        return not self._preface

    def credit_call(self) -> None:
        """An answered call excuses some frames besides it."""
        self._overhead = max(0.0, self._overhead - FRAMES_PER_CALL)

    def read(self, data: bytes, now: float) -> Iterator[Data | bytes]:
        """Yield what arrived, in order: bytes of messages, and bytes for h2.

        Raises:
            RefusedPeerError: the peer sends what it must not, or too much of it.
        """
        position = 0
        if self._preface:
            position = min(len(self._preface), len(data))
            if self._preface[:position] != data[:position]:
                raise NotHttp2Error
            self._preface = self._preface[position:]
            yield data[:position]
        view = memoryview(data)
        while position < len(data):
            head = b""
            if not self._left:
                needed = HEAD_BYTES - len(self._head)
                self._head += data[position : position + needed]
                position += needed
                if len(self._head) < HEAD_BYTES:
                    return
                head, self._head = self._head, b""
                self._begin_frame(head, now)
            piece = view[position : position + self._left]
            position += len(piece)
            self._left -= len(piece)
            if self._kind == DataFrame.type:
                yield self._data(piece)
                if self._ends_stream and not self._left:
                    # h2 learns that the message is complete from an empty frame.
                    yield b"\0\0\0\0\1" + self._stream_id.to_bytes(4, "big")
            elif self._kind != GoAwayFrame.type:
                yield head + piece

    def _begin_frame(self, head: bytes, now: float) -> None:
        size, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
        if self._expects_settings and kind != SettingsFrame.type:
            raise ProtocolViolationError("the first frame must be SETTINGS")
        self._expects_settings = False
        # What is no message is held until it is complete.
        if size > (FRAME_BYTES if kind == DataFrame.type else HEADER_LIST_BYTES):
            raise RefusedPeerError(
                "frame_too_large", ErrorCodes.FRAME_SIZE_ERROR, f"a frame of {size} bytes"
            )
        self._kind, self._left = kind, size
        self._stream_id = int.from_bytes(head[5:], "big") & STREAM_BITS
        if kind == DataFrame.type:
            self._ends_stream = bool(flags & END_STREAM)
            self._padding = None if flags & PADDED else 0
            if size < FRAGMENT_BYTES and not self._ends_stream:
                self._count(1, now)
        elif kind == HeadersFrame.type:
            self._header_block_bytes = size
        else:
            self._count(RESET_FRAMES if kind == RstStreamFrame.type else 1, now)
        if kind == ContinuationFrame.type:
            self._header_block_bytes += size
            if self._header_block_bytes > HEADER_LIST_BYTES:
                raise RefusedPeerError(
                    "headers_too_large", ErrorCodes.ENHANCE_YOUR_CALM, "too many headers"
                )

    def _data(self, piece: memoryview) -> Data:
        payload = piece
        if self._padding is None and piece:
            self._padding, payload = piece[0], piece[1:]
            if self._padding > self._left + len(payload):
                raise ProtocolViolationError("more padding than there is of the frame")
        if self._padding:
            # The last bytes of the frame, of which `_left` are to come.
            payload = payload[: max(0, len(payload) + self._left - self._padding)]
        return Data(self._stream_id, payload, len(piece))

    def _count(self, frames: int, now: float) -> None:
        drained = (now - self._overhead_at) * FRAMES_PER_SECOND
        self._overhead = max(0.0, self._overhead - drained) + frames
        self._overhead_at = now
        if self._overhead > FRAME_BURST:
            raise RefusedPeerError(
                "flood", ErrorCodes.ENHANCE_YOUR_CALM, "too many frames without telemetry"
            )
