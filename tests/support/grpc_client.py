"""A gRPC connection without a socket: h2's client on one side, ours on the other."""

from __future__ import annotations

import asyncio
import base64
import functools
import struct
import time
from dataclasses import dataclass, field
from urllib.parse import unquote

from google.rpc.status_pb2 import Status
from h2 import events
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from hyperframe.frame import GoAwayFrame

from neve.receive.connections import Connections
from neve.receive.grpc_calls import Calls
from neve.receive.grpc_connection import GrpcConnection
from neve.receive.request_handler import RequestHandler
from neve.receive.spec import ReceiveSpec
from neve.signals import Signal
from tests.support.sinks import ListSink

LOGS = Signal.LOGS.grpc_method


def framed(message: bytes, *, compressed: bool = False) -> bytes:
    """Return a message as gRPC sends it."""
    return bytes([compressed]) + len(message).to_bytes(4, "big") + message


class Clock:
    """A clock that stands until it is told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class MemoryTransport(asyncio.Transport):
    """What a connection wrote, and whether it closed."""

    def __init__(self, protocol: GrpcConnection) -> None:
        super().__init__()
        self._protocol = protocol
        self.written = bytearray()
        self.is_reading_paused = False
        self.was_aborted = False
        self._is_closing = False
        # A transport whose peer does not read is not closed by close().
        self.peer_reads = True

    def write(self, data: bytes) -> None:
        if not self._is_closing:
            self.written += data

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            if self.peer_reads:
                asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        if not self.was_aborted:
            self.was_aborted = True
            is_lost = self._is_closing and self.peer_reads
            self._is_closing = True
            if not is_lost:
                asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    def pause_reading(self) -> None:
        self.is_reading_paused = True

    def resume_reading(self) -> None:
        self.is_reading_paused = False


@dataclass
class Answer:
    """What came back on one stream."""

    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    trailers: dict[str, str] = field(default_factory=dict)
    ended: bool = False
    reset: int | None = None

    @property
    def status(self) -> int:
        """The grpc-status, in headers alone or in trailers."""
        return int((self.trailers or self.headers)["grpc-status"])

    @property
    def message(self) -> str:
        return unquote(self.headers["grpc-message"])

    @property
    def details(self) -> Status:
        packed = self.headers["grpc-status-details-bin"]
        return Status.FromString(base64.b64decode(packed + "=" * (-len(packed) % 4)))


class Receiving:
    """What all connections of a receiver share."""

    def __init__(self, *, max_calls: int = 1000, **spec: object) -> None:
        self.sink = ListSink()
        self.handler = RequestHandler(ReceiveSpec(**spec), self.sink)
        self.connections = Connections(self.handler.counters, max_open=10_000)
        self.open_connections: set[GrpcConnection] = set()
        self.clock = Clock()
        self.calls = Calls(max_calls)

    @property
    def refused(self) -> dict[str, int]:
        return dict(self.handler.counters.refused_requests)

    def tick(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.now += seconds
        for connection in list(self.open_connections):
            connection.tick(self.clock.now)


class GrpcClient:
    """One client's connection."""

    def __init__(self, receiving: Receiving, *, greet: bool = True) -> None:
        self.receiving = receiving
        assert receiving.connections.admit()
        self.connection = GrpcConnection(
            receiving.handler,
            receiving.calls,
            receiving.connections,
            receiving.open_connections,
            receiving.clock,
        )
        self.transport = MemoryTransport(self.connection)
        self.connection.connection_made(self.transport)
        self.h2 = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self.answers: dict[int, Answer] = {}
        self.events: list[events.Event] = []
        # The last stream and the code of each.
        self.goaways: list[tuple[int, ErrorCodes]] = []
        if greet:
            self.h2.initiate_connection()
            self.exchange()

    def exchange(self) -> None:
        """Send what h2 has to send, and read what came back."""
        if data := self.h2.data_to_send():
            self.connection.data_received(data)
        self.read()

    def read(self) -> None:
        data = self._without_goaways(bytes(self.transport.written))
        self.transport.written.clear()
        for event in self.h2.receive_data(data):
            self.events.append(event)
            self._note(event)

    def _without_goaways(self, data: bytes) -> bytes:
        # h2's client would refuse to go on after a GOAWAY, as real clients do.
        kept = bytearray()
        while data:
            end = 9 + int.from_bytes(data[:3], "big")
            if data[3] == GoAwayFrame.type:
                last_stream, code = struct.unpack(">II", data[9:17])
                self.goaways.append((last_stream, ErrorCodes(code)))
            else:
                kept += data[:end]
            data = data[end:]
        return bytes(kept)

    def _note(self, event: events.Event) -> None:
        answer = self.answers.setdefault(getattr(event, "stream_id", None) or 0, Answer())
        if isinstance(event, events.ResponseReceived):
            answer.headers = dict(event.headers)
        elif isinstance(event, events.DataReceived):
            answer.body += event.data
        elif isinstance(event, events.TrailersReceived):
            answer.trailers = dict(event.headers)
        elif isinstance(event, events.StreamEnded):
            answer.ended = True
        elif isinstance(event, events.StreamReset):
            answer.reset = int(event.error_code)

    def begin(self, path: str = LOGS, *, end: bool = False, **changed: str | None) -> int:
        """Send the headers of a call; `content_type=None` leaves one out."""
        headers = {
            ":method": "POST",
            ":scheme": "http",
            ":path": path,
            ":authority": "test",
            "te": "trailers",
            "content-type": "application/grpc",
        }
        for name, value in changed.items():
            headers[{"method": ":method"}.get(name, name.replace("_", "-"))] = value
        stream_id = self.h2.get_next_available_stream_id()
        present = [(name, value) for name, value in headers.items() if value is not None]
        self.h2.send_headers(stream_id, present, end_stream=end)
        return stream_id

    def send(self, stream_id: int, data: bytes, *, end: bool = False) -> None:
        """Send bytes of a message, as the windows allow."""
        while data:
            size = min(
                self.h2.local_flow_control_window(stream_id), self.h2.max_outbound_frame_size
            )
            assert size, "the receiver gives no credit"
            self.h2.send_data(stream_id, data[:size])
            data = data[size:]
            self.exchange()
        if end:
            self.h2.end_stream(stream_id)
            self.exchange()

    async def answer(self, stream_id: int) -> Answer:
        """Return the answer to a call once it is complete."""
        self.exchange()
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            self.read()
            answer = self.answers.get(stream_id)
            if answer and (answer.ended or answer.reset is not None):
                return answer
            await asyncio.sleep(0.001)
        raise AssertionError("no answer")

    async def call(self, data: bytes, path: str = LOGS, **headers: str | None) -> Answer:
        """Make a whole call in one piece."""
        stream_id = self.begin(path, **headers)
        self.h2.send_data(stream_id, data, end_stream=True)
        return await self.answer(stream_id)

    async def closed(self) -> bool:
        """Whether the connection is gone after the event loop's next turns."""
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return self.connection not in self.receiving.open_connections


OK, DEADLINE_EXCEEDED, INVALID, EXHAUSTED, UNIMPLEMENTED, UNAVAILABLE, UNAUTHENTICATED = (
    0,
    4,
    3,
    8,
    12,
    14,
    16,
)


def in_loop(test):
    @functools.wraps(test)
    def run(*args, **kwargs):
        asyncio.run(test(*args, **kwargs))

    return run
