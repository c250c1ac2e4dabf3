"""A reverse proxy in front of a real server, for what the server itself does not do.

What happens to a request is decided by gates, each a function of the request and of `forward`,
which sends it on: a gate may answer by itself, send on something else, send twice, wait, or throw
the answer away (`DroppedConnection`).
"""

from __future__ import annotations

import http.client
import json
import ssl
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import BinaryIO
from urllib.parse import parse_qs, urlsplit

# What belongs to one connection, and compression, which gates could not read. Not the host:
# signatures cover it.
_HOP_HEADERS = {"accept-encoding", "connection", "content-length", "transfer-encoding"}


@dataclass(frozen=True)
class Request:
    method: str
    target: str  # path and query exactly as they were sent: signatures cover these bytes
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, list[str]]:
        return parse_qs(urlsplit(self.target).query, keep_blank_values=True)


@dataclass(frozen=True)
class Response:
    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class DroppedConnection(Exception):  # noqa: N818 - it is what is wanted, no error
    """Raised by a gate to close the connection without an answer."""


Forward = Callable[[Request], Response]
Gate = Callable[[Request, Forward], Response]


def json_response(status: int, document: object) -> Response:
    return Response(status, {"Content-Type": "application/json"}, json.dumps(document).encode())


def error_response(status: int, kind: str, message: str) -> Response:
    """Answer with an error as the Iceberg REST protocol words it."""
    return json_response(status, {"error": {"message": message, "type": kind, "code": status}})


@dataclass(frozen=True)
class Proxy:
    uri: str


@contextmanager
def running_proxy(
    upstream_port: int, gates: Sequence[Gate] = (), tls: ssl.SSLContext | None = None
) -> Iterator[Proxy]:
    """Run a proxy on a free loopback port; the first gate is the outermost."""
    answer: Forward = partial(_send, upstream_port)
    for gate in reversed(gates):
        answer = _behind(gate, answer)
    server = _Server(("127.0.0.1", 0), _handler(answer))
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="proxy")
    thread.start()
    try:
        yield Proxy(f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _behind(gate: Gate, forward: Forward) -> Forward:
    return lambda request: gate(request, forward)


class _Server(ThreadingHTTPServer):
    daemon_threads = True  # clients keep connections open; nobody waits for them to let go

    def handle_error(self, request: object, client_address: object) -> None:
        """Keep quiet about clients that hang up; a gate that fails is told."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def _send(port: int, request: Request) -> Response:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {
        name: value for name, value in request.headers.items() if name.lower() not in _HOP_HEADERS
    }
    try:
        connection.request(request.method, request.target, request.body or None, headers)
        answer = connection.getresponse()
        kept = {
            name: value
            for name, value in answer.getheaders()
            if name.lower() not in _HOP_HEADERS | {"date", "server"}
        }
        # Of the body that a GET would have.
        if request.method == "HEAD" and (length := answer.getheader("Content-Length")):
            kept["Content-Length"] = length
        return Response(answer.status, kept, answer.read())
    finally:
        connection.close()


def _read_body(headers: http.client.HTTPMessage, stream: BinaryIO) -> bytes:
    if headers.get("Transfer-Encoding", "").lower() != "chunked":
        return stream.read(int(headers.get("Content-Length", 0)))
    # As some clients of object stores upload; it is sent on in one piece.
    body = bytearray()
    while size := int(stream.readline().partition(b";")[0], 16):
        body += stream.read(size)
        stream.readline()
    while stream.readline().strip():
        pass
    return bytes(body)


def _handler(answer: Forward) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1  # head and body in one packet

        def handle_request(self) -> None:
            body = _read_body(self.headers, self.rfile)
            try:
                response = answer(Request(self.command, self.path, self.headers, body))
            except DroppedConnection:
                self.close_connection = True
                return
            self.send_response(response.status)
            for name, value in response.headers.items():
                self.send_header(name, value)
            if "Content-Length" not in response.headers:
                self.send_header("Content-Length", str(len(response.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(response.body)

        def handle_expect_100(self) -> bool:
            may_go_on = super().handle_expect_100()
            self.wfile.flush()  # the client waits for it, a second long
            return may_go_on

        do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = handle_request  # noqa: N815

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            """Say nothing: pytest shows the client's side."""

    return Handler
