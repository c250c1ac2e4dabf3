"""One connection of OTLP/gRPC: HTTP/2 by h2, unary Export calls, everything bounded and counted.

A message is kept as its bytes arrive and are counted, and goes to the request handler when it is
complete. `tick`, called about once a second, ends what takes too long.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING, cast

from h2.errors import ErrorCodes
from h2.events import (
    PingAckReceived,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import ProtocolError

from neve.errors import NeveError, UnavailableError
from neve.limits import (
    CALLS_PER_CONNECTION,
    CLOSE_SECONDS,
    CONNECTION_GRACE_SECONDS,
    GOAWAY_SECONDS,
)
from neve.otlp import answer
from neve.receive.budget import TooSlowError
from neve.receive.connection_clock import ConnectionClock, Due
from neve.receive.grpc_calls import Call, requested_signal
from neve.receive.grpc_status import (
    OK_TRAILERS,
    RESPONSE_HEADERS,
    CallRefusedError,
    NotGrpcError,
    error_headers,
    http_headers,
)
from neve.receive.http2 import HIGHEST_STREAM, HTTP1_ANSWER, SETTINGS, Http2, goaway
from neve.receive.http2_frames import (
    Data,
    FrameReader,
    NotHttp2Error,
    ProtocolViolationError,
    RefusedPeerError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from h2.events import Event

    from neve.receive.connections import Connections
    from neve.receive.grpc_calls import Calls
    from neve.receive.grpc_status import Headers
    from neve.receive.request_handler import RequestHandler

logger = logging.getLogger(__name__)

# What our PINGs carry, and their answers with them.
PROTOCOL = "grpc"
LAST_CALLS_PING = b"lastcall"
ALIVE_PING = b"alive?  "


class GrpcConnection(asyncio.Protocol):
    """Answers the calls of one client."""

    def __init__(
        self,
        handler: RequestHandler,
        calls: Calls,
        connections: Connections,
        open_connections: set[GrpcConnection],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Of a connection that `connections` has admitted; it is counted out at its end."""
        self._handler = handler
        self._all_calls = calls
        self._connections = connections
        self._open_connections = open_connections
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._h2 = Http2()
        now = clock()
        self._frames = FrameReader(now)
        self._times = ConnectionClock(now)
        # Calls to be answered, by stream.
        self._calls: dict[int, Call] = {}
        # Of complete messages; they go on when the client resets its call.
        self._tasks: set[asyncio.Task[None]] = set()
        # Streams that the client has not ended. Those among them that are answered are reset.
        self._unfinished: set[int] = set()
        # Bytes of answers that the client's window has no room for, and since when.
        self._waiting: dict[int, tuple[bytes, float]] = {}
        self._has_greeted = False
        self._takes_calls = True
        self._flush_is_due = False
        # The steps of a connection's end: the client was asked to leave, and must have left; the
        # transport is being closed.
        self._goaway_at: float | None = None
        self._leave_by: float | None = None
        self._closing_at: float | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._open_connections.add(self)
        self._handler.counters.connect(PROTOCOL)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._closing_at = self._closing_at or self._clock()
        self._open_connections.discard(self)
        self._connections.closed()
        self._handler.counters.disconnect(PROTOCOL)
        for call in list(self._calls.values()):
            self._forget(call)
        self._waiting.clear()

    def pause_writing(self) -> None:
        """The client does not read: take nothing from it that would have to be answered."""
        self._times.blocked_at = self._clock()
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._times.blocked_at = None
        self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        if self._closing_at is not None:
            return
        now = self._clock()
        self._times.received(now)
        try:
            self._process(data, now)
        except NotHttp2Error as error:
            self._refuse_connection(error.reason, str(error))
            if data[:1].isalpha():
                self._transport.write(HTTP1_ANSWER)
        except RefusedPeerError as error:
            self._refuse_connection(error.reason, str(error))
            self._send_goaway(self._h2.highest_inbound_stream_id, error.code, str(error))
        except ProtocolError as error:
            # h2 has a GOAWAY ready.
            self._refuse_connection("protocol_error", str(error))
        except Exception:
            logger.exception("a gRPC connection failed")
            self._refuse_connection("internal_error", "internal error")
            self._send_goaway(0, ErrorCodes.INTERNAL_ERROR, "internal error")
        self._flush()
        if self._closing_at is not None:
            self._transport.close()

    def _process(self, data: bytes, now: float) -> None:
        for part in self._frames.read(data, now):
            if self._frames.started and not self._has_greeted:
                # Not before the client has spoken: to HTTP/1.1 we say something else.
                self._has_greeted = True
                self._transport.write(SETTINGS)
            if isinstance(part, Data):
                self._receive(part)
            else:
                for event in self._h2.receive_data(part):
                    self._handle(event)

    def _handle(self, event: Event) -> None:
        if isinstance(event, RequestReceived):
            self._begin(event)
        elif isinstance(event, StreamEnded):
            self._complete(event.stream_id)
        elif isinstance(event, StreamReset):
            self._end_of_sending(event.stream_id)
            self._waiting.pop(event.stream_id, None)
            if call := self._calls.get(event.stream_id):
                self._forget(call)
        elif isinstance(event, (WindowUpdated, RemoteSettingsChanged)):
            self._h2.bound_header_table()
            for stream_id in list(self._waiting):
                self._send_waiting(stream_id)
        elif isinstance(event, PingAckReceived) and event.ping_data == LAST_CALLS_PING:
            self._take_no_more_calls()

    def _begin(self, event: RequestReceived) -> None:
        stream_id = event.stream_id
        now = self._times.call_at = self._times.received_at
        in_progress = len(self._unfinished) + len(self._tasks) + len(self._waiting)
        if not self._takes_calls or in_progress >= CALLS_PER_CONNECTION:
            # Clients send it again, elsewhere perhaps: nothing of it was looked at.
            self._count_refusal("too_many_calls" if self._takes_calls else "closing")
            self._reset(stream_id, ErrorCodes.REFUSED_STREAM)
            return
        self._unfinished.add(stream_id)
        headers = dict(cast("Headers", event.headers))
        with self._refusing(stream_id):
            signal = requested_signal(headers)
            export = self._handler.admit(
                signal,
                _text(headers.get(b"authorization")),
                encoding=_text(headers.get(b"grpc-encoding")) or "",
                is_json=False,
            )
            self._all_calls.check_room()
            call = Call(self, stream_id, export, self._handler.budget, now)
            self._calls[stream_id] = call
            self._all_calls.begin(call)

    def _receive(self, data: Data) -> None:
        stream_id = data.stream_id
        if not stream_id % 2 or stream_id > self._h2.highest_inbound_stream_id:
            raise ProtocolViolationError("DATA of a call that has not begun")
        # Kept and counted, or dropped: in both cases the client may send as much again.
        self._h2.credit(stream_id, data.wire_bytes, is_open=stream_id in self._unfinished)
        call = self._calls.get(stream_id)
        if call is not None and not call.has_arrived:
            limit = self._handler.spec.max_request_bytes
            with self._refusing(stream_id):
                call.add(data.payload, limit, self._times.received_at)

    def _complete(self, stream_id: int) -> None:
        self._end_of_sending(stream_id)
        call = self._calls.get(stream_id)
        if call is not None:
            self._all_calls.arrived(call)
            task = self._loop.create_task(self._store(call))
            self._tasks.add(task)
            task.add_done_callback(self._stored)

    def _end_of_sending(self, stream_id: int) -> None:
        self._unfinished.discard(stream_id)
        self._h2.forget_credit(stream_id)

    async def _store(self, call: Call) -> None:
        try:
            with self._refusing(call.stream_id):
                export, body = call.finish()
                message = await self._handler.take(export, body, call.share)
                self._answer(call, answer.encode(message, json=False))
        finally:
            self._all_calls.end(call)

    def _stored(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._flush_soon()

    def _answer(self, call: Call, message: bytes) -> None:
        if self._calls.pop(call.stream_id, None) is None:
            return  # the client has reset it
        self._frames.credit_call()
        self._send_headers(call.stream_id, RESPONSE_HEADERS, end=False)
        framed = b"\0" + len(message).to_bytes(4, "big") + message
        self._waiting[call.stream_id] = (framed, self._clock())
        self._send_waiting(call.stream_id)

    def _send_waiting(self, stream_id: int) -> None:
        """Send as much of an answer as the client's window has room for."""
        rest, since = self._waiting.pop(stream_id)
        with contextlib.suppress(ProtocolError):  # the client has reset it
            while rest:
                size = self._h2.room_to_send(stream_id)
                if size <= 0:
                    self._waiting[stream_id] = (rest, since)
                    return
                self._h2.send_data(stream_id, rest[:size])
                rest = rest[size:]
            self._h2.send_headers(stream_id, OK_TRAILERS, end_stream=True)

    @contextlib.contextmanager
    def _refusing(self, stream_id: int) -> Iterator[None]:
        """Answer a call with the error that its handling raises."""
        try:
            yield
        except NotGrpcError as error:
            self._count_refusal(error.reason)
            self._send_headers(stream_id, http_headers(error.status))
        except NeveError as error:
            self._refuse(stream_id, error)
        except Exception:
            # A defect of ours must not become UNKNOWN, on which clients drop their data.
            logger.exception("a gRPC call failed")
            self._refuse(stream_id, UnavailableError("internal error"))

    def _refuse(self, stream_id: int, error: NeveError) -> None:
        call = self._calls.pop(stream_id, None)
        if call is not None:
            self._all_calls.end(call)
        if isinstance(error, CallRefusedError):
            self._count_refusal(error.reason)
        else:
            self._handler.refuse(error)
        self._frames.credit_call()
        self._send_headers(stream_id, error_headers(error, self._handler.spec.retry_after_seconds))

    def _send_headers(self, stream_id: int, headers: Headers, *, end: bool = True) -> None:
        with contextlib.suppress(ProtocolError):  # the client has reset it
            self._h2.send_headers(stream_id, headers, end_stream=end)

    def _reset(self, stream_id: int, code: ErrorCodes) -> None:
        with contextlib.suppress(ProtocolError):  # the client has reset it
            self._h2.reset_stream(stream_id, code)

    def _forget(self, call: Call) -> None:
        """The client has given a call up: its bytes go, unless they are being stored."""
        self._calls.pop(call.stream_id, None)
        if not call.has_arrived:
            self._all_calls.end(call)

    def evict(self, call: Call) -> None:
        """End a call whose message makes no progress, since there is no room for others."""
        self._refuse(call.stream_id, TooSlowError("the message arrives too slowly"))
        self._flush_soon()

    def _count_refusal(self, reason: str) -> None:
        self._handler.counters.refused_requests[reason] += 1

    def _flush_soon(self) -> None:
        # One write for all answers of this turn of the event loop.
        if not self._flush_is_due:
            self._flush_is_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_is_due = False
        if self._transport.is_closing() or not self._has_greeted:
            return
        # Clients that are still sending messages of calls that are answered are told to stop.
        for stream_id in self._unfinished - self._calls.keys():
            self._end_of_sending(stream_id)
            self._reset(stream_id, ErrorCodes.NO_ERROR)
        if data := self._h2.data_to_send():
            self._transport.write(data)
        if not (self._takes_calls or self._is_busy):
            self._close()

    @property
    def _is_busy(self) -> bool:
        return bool(self._calls or self._tasks or self._waiting)

    def tick(self, now: float) -> None:
        """End what takes too long, and see whether the client is still there."""
        if self._closing_at is not None:
            if now - self._closing_at > CLOSE_SECONDS:
                self._transport.abort()
            return
        self._end_late_calls(now)
        due = self._times.due(now, started=self._frames.started, busy=self._is_busy)
        if due is Due.CLOSE:
            self._refuse_connection("unresponsive", "the client does not answer")
            self._transport.abort()
        elif due is Due.PING:
            self._h2.ping(ALIVE_PING)
        elif due is Due.LEAVE and self._leave_by is None:
            self.leave(CONNECTION_GRACE_SECONDS)
        if self._goaway_at is not None and now - self._goaway_at > GOAWAY_SECONDS:
            self._take_no_more_calls()
        if self._leave_by is not None and now > self._leave_by:
            self._close()
        self._flush()

    def _end_late_calls(self, now: float) -> None:
        limit = self._handler.spec.request_timeout_seconds
        message = f"the message took longer than {limit:g} s to arrive"
        for stream_id in self._unfinished & self._calls.keys():
            if now - self._calls[stream_id].began > limit:
                self._refuse(stream_id, TooSlowError(message))
        for stream_id, (_, since) in list(self._waiting.items()):
            if now - since > limit:
                del self._waiting[stream_id]
                self._reset(stream_id, ErrorCodes.CANCEL)

    def leave(self, grace_seconds: float) -> None:
        """Ask the client to connect anew, and let its calls finish within the time given."""
        now = self._clock()
        self._leave_by = min(self._leave_by or now + grace_seconds, now + grace_seconds)
        if not self._frames.started:
            self._close()
        elif self._goaway_at is None and self._closing_at is None:
            # In two steps (RFC 9113, section 6.8): calls that are on their way are still taken.
            self._goaway_at = now
            self._send_goaway(HIGHEST_STREAM)
            self._h2.ping(LAST_CALLS_PING)
            self._flush()

    def _take_no_more_calls(self) -> None:
        if self._takes_calls:
            self._takes_calls = False
            self._send_goaway(self._h2.highest_inbound_stream_id)

    def _send_goaway(
        self, last_stream: int, code: ErrorCodes = ErrorCodes.NO_ERROR, message: str = ""
    ) -> None:
        self._transport.write(self._h2.data_to_send() + goaway(last_stream, code, message))

    def _refuse_connection(self, reason: str, message: str) -> None:
        logger.debug("closing a gRPC connection: %s", message)
        self._count_refusal(reason)
        self._closing_at = self._clock()

    def _close(self) -> None:
        self._closing_at = self._closing_at or self._clock()
        self._transport.close()

    def abort(self) -> None:
        """Close at once; messages that are being stored are stored, and not answered."""
        self._transport.abort()


def _text(header: bytes | None) -> str | None:
    return None if header is None else header.decode("latin-1")
