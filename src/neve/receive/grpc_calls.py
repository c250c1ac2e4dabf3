"""gRPC calls in progress: what their headers ask for, and the message as it arrives."""

from __future__ import annotations

import time
from contextlib import ExitStack
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from neve.errors import Code, MalformedError, TooLargeError
from neve.limits import MAX_CALLS, PROGRESS_BYTES, STALL_SECONDS
from neve.otlp.encoding import CODECS
from neve.receive.grpc_status import CallRefusedError, NotGrpcError
from neve.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from neve.receive.budget import Budget

SIGNALS = MappingProxyType({signal.grpc_method.encode(): signal for signal in Signal})
CONTENT_TYPES = (b"application/grpc", b"application/grpc+proto")
IDENTITY = "identity"
# Of every message: one byte that says whether it is compressed, four for its length.
PREFIX_BYTES = 5
POST = b"POST"
METHOD_NOT_ALLOWED = 405
UNSUPPORTED_MEDIA_TYPE = 415


def requested_signal(headers: Mapping[bytes, bytes]) -> Signal:
    """Return the signal that a call sends.

    Raises:
        NotGrpcError: it is no gRPC call.
        CallRefusedError: there is no such method.
    """
    if headers.get(b":method") != POST:
        raise NotGrpcError("http_method", METHOD_NOT_ALLOWED)
    media_type = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if media_type not in CONTENT_TYPES:
        raise NotGrpcError("content_type", UNSUPPORTED_MEDIA_TYPE)
    path = headers.get(b":path", b"")
    if path not in SIGNALS:
        raise CallRefusedError("unknown_method", f"there is no method {path.decode('latin-1')}")
    return SIGNALS[path]


def requested_encoding(headers: Mapping[bytes, bytes]) -> str:
    """Return how the call's message is compressed. Raises CallRefusedError."""
    encoding = headers.get(b"grpc-encoding", b"").decode("latin-1").strip().lower()
    if encoding and encoding != IDENTITY and encoding not in CODECS:
        raise CallRefusedError("encoding", f"grpc-encoding {encoding!r} is not supported")
    return encoding or IDENTITY


class CallOwner(Protocol):
    """The connection of a call."""

    def evict(self, call: Call) -> None:
        """End a call whose message makes no progress."""


class Call:
    """One call, from its headers to its answer; holds its bytes' share of the budget."""

    def __init__(
        self,
        owner: CallOwner,
        stream_id: int,
        signal: Signal,
        sender: bytes,
        encoding: str,
        budget: Budget,
        now: float,
    ) -> None:
        self.owner = owner
        self.stream_id = stream_id
        self.signal = signal
        self.sender = sender
        self.began = now
        self.has_arrived = False
        self.progress_at = now
        self._progress_bytes = 0
        self._encoding = encoding
        self._prefix = b""
        self._message = bytearray()
        self._size: int | None = None
        self._release = ExitStack()
        self._share = self._release.enter_context(budget.share())

    @property
    def held_bytes(self) -> int:
        """How much of the budget it holds."""
        return self._share.held_bytes

    def add(self, data: memoryview, limit: int, now: float) -> None:
        """Keep bytes that arrived.

        Raises:
            UnavailableError: there is no room for them.
            TooLargeError, MalformedError: the call cannot succeed.
        """
        prefix, size, rest = self._prefix, self._size, data
        if size is None:
            needed = PREFIX_BYTES - len(prefix)
            prefix, rest = prefix + bytes(data[:needed]), data[needed:]
            if len(prefix) == PREFIX_BYTES:
                size = self._announced_size(prefix, limit)
        if size is not None and len(self._message) + len(rest) > size:
            raise MalformedError("a call has exactly one message")
        received = len(prefix) + len(self._message) + len(rest)
        self._share.grow_to(received)
        self._prefix, self._size = prefix, size
        self._message += rest
        if received - self._progress_bytes >= PROGRESS_BYTES:
            self._progress_bytes, self.progress_at = received, now

    def _announced_size(self, prefix: bytes, limit: int) -> int:
        if prefix[0] not in (0, 1):
            raise MalformedError("a message begins with 0 or 1")
        if prefix[0] == 1 and self._encoding == IDENTITY:
            raise MalformedError("a compressed message without grpc-encoding")
        size = int.from_bytes(prefix[1:], "big")
        if size > limit:
            raise TooLargeError(
                f"the message is larger than {limit} bytes",
                hint="send smaller batches, or raise receive.max_request_bytes",
            )
        return size

    def finish(self) -> tuple[bytes, str]:
        """Return the message, and how it is compressed. Raises MalformedError."""
        if self._size is None or len(self._message) < self._size:
            raise MalformedError("the call ended before its message was complete")
        message = bytes(self._message)
        self._message = bytearray()
        return message, self._encoding if self._prefix[0] else ""

    def release(self) -> None:
        """Give the budget back."""
        self._message = bytearray()
        self._release.close()


class Calls:
    """All gRPC calls of a receiver. For the event loop's thread only."""

    def __init__(
        self, max_calls: int = MAX_CALLS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._max_calls = max_calls
        self._clock = clock
        # Those that were reset while their message was being stored, too.
        self._in_progress: set[Call] = set()
        self._arriving: set[Call] = set()
        # The one that needs room at this moment.
        self._receiving: Call | None = None

    def __len__(self) -> int:
        return len(self._in_progress)

    def check_room(self) -> None:
        """Raise CallRefusedError when no further call may begin."""
        if len(self._in_progress) >= self._max_calls:
            raise CallRefusedError(
                "too_many_calls", "too many calls are in progress", code=Code.UNAVAILABLE
            )

    def begin(self, call: Call) -> None:
        """Count a call whose message is about to arrive."""
        self._in_progress.add(call)
        self._arriving.add(call)

    def arrived(self, call: Call) -> None:
        """Its message is complete: it makes room for no other any more."""
        call.has_arrived = True
        self._arriving.discard(call)

    def end(self, call: Call) -> None:
        """The call is answered or given up: give back what it held."""
        self._in_progress.discard(call)
        self._arriving.discard(call)
        call.release()

    def receive(self, call: Call, data: memoryview, limit: int, now: float) -> None:
        """Keep bytes of a message, if need be in place of messages that make no progress.

        Raises:
            NeveError: the call is to be refused.
        """
        self._receiving = call
        try:
            call.add(data, limit, now)
        finally:
            self._receiving = None

    def make_room(self) -> bool:
        """End the call that has made no progress for the longest time; return whether there is one.

        For the budget: whoever holds memory without sending does not starve others.
        """
        since = self._clock() - STALL_SECONDS
        stalled = [
            call
            for call in self._arriving
            if call is not self._receiving and call.held_bytes and call.progress_at <= since
        ]
        if not stalled:
            return False
        most_stalled = min(stalled, key=lambda call: call.progress_at)
        most_stalled.owner.evict(most_stalled)
        return True
