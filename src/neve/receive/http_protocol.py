"""uvicorn's HTTP protocol, made fit for a port that anyone may reach.

uvicorn leaves to a proxy in front of it how long a request may take to arrive, and how large its
header may be; a receiver may have no proxy. And where a client offers an upgrade, as Java's does
(`Upgrade: h2c`), its parser drops the body: the request would look empty, and succeed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    import asyncio

    from neve.receive.connections import Connections

MAX_HEADER_BYTES = 64 * 1024
END_OF_HEADER = b"\r\n\r\n"
# A server may ignore the offer to change protocols (RFC 9110, section 7.8).
_UPGRADE = re.compile(rb"\r\nupgrade[ \t]*:[^\r\n]*", re.IGNORECASE)


class BoundedProtocol(HttpToolsProtocol):
    """Ends connections whose request comes too slowly, or with an endless header."""

    request_timeout_seconds: float
    open_connections: Connections

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._timer: asyncio.TimerHandle | None = None
        # What came of a header that is not complete; None while the parser is inside a request.
        self._header: bytes | None = b""
        self._unparsed_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        self.open_connections.closed()
        self._arrived()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unparsed_bytes += len(data)
        if self._header is not None:
            self._expect()
            data = self._header + data
            end = data.find(END_OF_HEADER)
            self._header = data if end == -1 else None
            if end != -1:
                data = without_upgrade(data, end)
        if self._header is None:
            super().data_received(data)
        if self._unparsed_bytes > MAX_HEADER_BYTES:
            self.transport.abort()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        # Also of a request that came together with the one before it.
        self._header = None
        self._expect()

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            # Of such a request the parser drops the body: it must not be answered.
            self.transport.abort()
            return
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unparsed_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._arrived()
        self._header = b""
        self._unparsed_bytes = 0
        if not self.transport.is_closing():
            super().on_message_complete()

    def _expect(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.request_timeout_seconds, self._too_late)

    def _arrived(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_late(self) -> None:
        self._timer = None
        self.transport.abort()


def bounded(request_timeout_seconds: float, connections: Connections) -> type[BoundedProtocol]:
    """Return the protocol with its bounds, for connections that were admitted.

    uvicorn takes a class.
    """
    bounds = {"request_timeout_seconds": request_timeout_seconds, "open_connections": connections}
    return type("Bounded", (BoundedProtocol,), bounds)


def without_upgrade(data: bytes, end: int) -> bytes:
    """Take the offer to change protocols out of a header that ends at `end`."""
    header = _UPGRADE.sub(b"", data[:end])
    return data if len(header) == end else header + data[end:]
