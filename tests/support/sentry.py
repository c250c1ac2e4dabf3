"""A stand-in for Sentry that keeps the envelopes it is sent, as they are on the wire."""

from __future__ import annotations

import gzip
import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY = "0123456789abcdef0123456789abcdef"


@dataclass
class Sentry:
    """Where to send, and what was sent."""

    port: int = 0
    envelopes: list[bytes] = field(default_factory=list)

    @property
    def dsn(self) -> str:
        return f"http://{KEY}@127.0.0.1:{self.port}/42"

    @property
    def events(self) -> list[dict[str, Any]]:
        # A line about the envelope, one about the item, and the item.
        return [json.loads(envelope.split(b"\n")[2]) for envelope in self.envelopes]

    @property
    def text(self) -> str:
        return b"\n".join(self.envelopes).decode()


@contextmanager
def running_sentry() -> Iterator[Sentry]:
    """Take envelopes on a free port until the block ends."""
    sentry = Sentry()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers["content-encoding"] == "gzip":
                body = gzip.decompress(body)
            assert self.path == "/api/42/envelope/"
            sentry.envelopes.append(body)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    sentry.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield sentry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
