"""`/metrics`, `/healthz` and `/readyz` on a thread of their own."""

from __future__ import annotations

import json
import logging
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CONTENT_TYPE_LATEST

from neve.config.address import Address, parse_address
from neve.errors import ConfigError

logger = logging.getLogger(__name__)

JSON = "application/json"


@dataclass(frozen=True)
class Pages:
    """What is served; each is asked for each request, on its thread."""

    metrics: Callable[[], bytes]
    # Why the process cannot do its work now; None when it can.
    trouble: Callable[[], str | None]
    # Why only a new process can do it; None when this one can.
    defect: Callable[[], str | None] = lambda: None


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: Address, pages: Pages) -> None:
        self.pages = pages
        self.address_family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        super().__init__((address.host, address.port), _Handler)

    def server_bind(self) -> None:
        """Bind without the look-up of our own name, which may take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def handle_error(self, _request: object, _client_address: object) -> None:
        """Log what failed; the thread ends with its request, and the next has its own."""
        error = sys.exc_info()[1]
        if isinstance(error, OSError):
            logger.debug("a client did not wait for its answer: %s", error)
        else:
            logger.error("a request for metrics or health failed", exc_info=error)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 10  # seconds for a client to send its request

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._answer(HTTPStatus.OK, self.server.pages.metrics(), CONTENT_TYPE_LATEST)
        elif path == "/healthz":
            self._answer_health(self.server.pages.defect())
        elif path == "/readyz":
            self._answer_health(self.server.pages.trouble())
        else:
            self._answer(HTTPStatus.NOT_FOUND, b'{"status":"not found"}', JSON)

    def do_HEAD(self) -> None:
        self.do_GET()

    def _answer_health(self, trouble: str | None) -> None:
        if trouble is None:
            self._answer(HTTPStatus.OK, b'{"status":"ok"}', JSON)
        else:
            body = json.dumps({"status": "unavailable", "reason": trouble}).encode()
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, body, JSON)

    def _answer(self, status: HTTPStatus, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base class
        logger.debug(format, *args)


@contextmanager
def serving(http: str | None, pages: Pages) -> Iterator[Address | None]:
    """Serve pages while the block runs; yield the address, with the port that was taken.

    Raises:
        ConfigError: the address cannot be listened on.
    """
    if http is None:
        yield None
        return
    wanted = parse_address(http)
    try:
        server = _Server(wanted, pages)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {wanted}: {error}", hint="choose another address in observe.http"
        ) from error
    thread = threading.Thread(target=server.serve_forever, name="neve-observe", daemon=True)
    thread.start()
    try:
        yield Address(wanted.host, server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
