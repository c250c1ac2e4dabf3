"""HTTP over a transport in memory: bytes in, bytes out, no socket."""

from __future__ import annotations

import asyncio
import http.client
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

from google.protobuf import json_format
from google.rpc.status_pb2 import Status

from neve.receive.connections import Connections
from neve.receive.http_server import HttpServer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from neve.receive.request_handler import RequestHandler

JSON = "application/json"


class MemoryTransport(asyncio.Transport):
    """Keeps what is written, and remembers what it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_reading_now = True
        self.is_closed = False
        self.is_aborted = False

    def write(self, data: bytes) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = self.is_aborted = True

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        pass

    def pause_reading(self) -> None:
        self.is_reading_now = False

    def resume_reading(self) -> None:
        self.is_reading_now = True


class Connection:
    """A client's end of a connection to a handler; inside a running event loop."""

    def __init__(self, handler: RequestHandler) -> None:
        self.handler = handler
        self.server = HttpServer(handler, Connections(handler.counters, 10))
        self.transport = MemoryTransport()
        self.protocol = self.server.connection()
        self.protocol.connection_made(self.transport)
        self.peak_bytes = 0

    async def send(self, *chunks: bytes) -> None:
        """Send bytes, and wait until everything that can be answered is."""
        for chunk in chunks:
            if not self.transport.is_closed:
                self.protocol.data_received(chunk)
            self.peak_bytes = max(self.peak_bytes, self.handler.budget.used_bytes)
        while self.server.answers_in_progress:
            await asyncio.sleep(0.001)

    async def end(self) -> None:
        self.protocol.connection_lost(None)
        await self.server.stop(0.0)


@dataclass(frozen=True)
class Answer:
    """An answer, and what the request held at most of the budget before it was given."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    peak_bytes: int
    rest: bytes = b""

    @property
    def failure(self) -> Status:
        """The google.rpc.Status of the answer, in the form its content type says."""
        if self.headers["content-type"] == JSON:
            return json_format.Parse(self.body, Status())
        return Status.FromString(self.body)


def parse_answer(written: bytes, method: str = "POST", peak_bytes: int = 0) -> Answer | None:
    """Return the first of the answers written; None when there is none."""
    if not written:
        return None
    stream = _Stream(written)
    response = http.client.HTTPResponse(stream, method=method)
    response.begin()
    headers = {name.lower(): value for name, value in response.getheaders()}
    body = response.read()
    return Answer(response.status, headers, body, peak_bytes, stream.file.read())


class _Stream:
    """As much of a socket as http.client needs."""

    def __init__(self, data: bytes) -> None:
        self.file = _Open(data)

    def makefile(self, mode: str) -> io.BytesIO:
        return self.file


class _Open(io.BytesIO):
    def close(self) -> None:
        """Stay open: what follows the answer is looked at, too."""


def request_bytes(
    method: str, path: str, headers: Mapping[str, str], chunks: Sequence[bytes]
) -> list[bytes]:
    """Return a request as it is sent, in chunks unless its length is announced."""
    sent = {"host": "test", **headers}
    is_chunked = len(chunks) > 1 and "content-length" not in sent
    if is_chunked:
        sent["transfer-encoding"] = "chunked"
    elif "content-length" not in sent:
        sent["content-length"] = str(len(b"".join(chunks)))
    lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
    head = f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1")
    if is_chunked:
        chunks = [*(b"%x\r\n%b\r\n" % (len(c), c) for c in chunks if c), b"0\r\n\r\n"]
    return [head, *(chunk for chunk in chunks if chunk)]


def exchange(
    handler: RequestHandler,
    method: str,
    path: str,
    headers: Mapping[str, str],
    chunks: Sequence[bytes],
) -> Answer | None:
    """Send one request on a connection of its own; None when it is not answered."""

    async def run() -> Answer | None:
        connection = Connection(handler)
        await connection.send(*request_bytes(method, path, headers, chunks))
        await connection.end()
        return parse_answer(connection.transport.written, method, connection.peak_bytes)

    try:
        return asyncio.run(run())
    finally:
        handler.close()
