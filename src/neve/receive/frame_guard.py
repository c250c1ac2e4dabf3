"""Looks at HTTP/2 frames before h2 does: their sizes, and how many of them carry nothing.

h2 waits for the whole of a frame before it looks at its size, counts no frames, and after a GOAWAY
from the client it refuses to send the answers of calls in progress.
"""

from __future__ import annotations

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

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_BYTES = 9
END_STREAM = 0x1


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


class FrameGuard:
    """The frames of one connection, from its first byte."""

    def __init__(self, now: float) -> None:
        self._preface = PREFACE
        self._head = b""
        # Of the frame that is being received: bytes to come, and whether h2 gets to see them.
        self._left = 0
        self._hidden = False
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

    def check(self, data: bytes, now: float) -> bytes:
        """Return what h2 may see of the bytes that arrived. Raises RefusedPeerError."""
        start = 0
        if self._preface:
            start = min(len(self._preface), len(data))
            if self._preface[:start] != data[:start]:
                raise NotHttp2Error
            self._preface = self._preface[start:]
        passed = [data[:start]]
        position = start
        while position < len(data):
            if not self._left:
                needed = HEAD_BYTES - len(self._head)
                self._head += data[position : position + needed]
                position += needed
                if len(self._head) < HEAD_BYTES:
                    break
                head, self._head = self._head, b""
                self._left = int.from_bytes(head[:3], "big")
                self._hidden = head[3] == GoAwayFrame.type
                self._check_frame(head[3], head[4], self._left, now)
                if not self._hidden:
                    passed.append(head)
            payload = data[position : position + self._left]
            position += len(payload)
            self._left -= len(payload)
            if not self._hidden:
                passed.append(payload)
        return b"".join(passed)

    def _check_frame(self, kind: int, flags: int, size: int, now: float) -> None:
        if size > FRAME_BYTES:
            raise RefusedPeerError(
                "frame_too_large", ErrorCodes.FRAME_SIZE_ERROR, f"a frame of {size} bytes"
            )
        if self._expects_settings and kind != SettingsFrame.type:
            raise RefusedPeerError(
                "protocol_error", ErrorCodes.PROTOCOL_ERROR, "the first frame must be SETTINGS"
            )
        self._expects_settings = False
        if kind == DataFrame.type:
            if size < FRAGMENT_BYTES and not flags & END_STREAM:
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

    def _count(self, frames: int, now: float) -> None:
        drained = (now - self._overhead_at) * FRAMES_PER_SECOND
        self._overhead = max(0.0, self._overhead - drained) + frames
        self._overhead_at = now
        if self._overhead > FRAME_BURST:
            raise RefusedPeerError(
                "flood", ErrorCodes.ENHANCE_YOUR_CALM, "too many frames without telemetry"
            )
