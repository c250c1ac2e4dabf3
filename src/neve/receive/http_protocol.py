"""uvicorn's HTTP protocol, bounded for a port that anyone may reach.

uvicorn leaves two things to a proxy in front of it: how long a request may take to arrive, and how
large its header may be. A receiver may have no proxy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    import asyncio

MAX_HEADER_BYTES = 64 * 1024


class BoundedProtocol(HttpToolsProtocol):
    """Ends connections whose request does not arrive in time, or has an endless header."""

    request_timeout_seconds: float

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._timer: asyncio.TimerHandle | None = None
        self._header_bytes: int | None = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        self._arrived()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._header_bytes is not None:
            self._header_bytes += len(data)
        super().data_received(data)
        if self._header_bytes is not None and self._header_bytes > MAX_HEADER_BYTES:
            self.transport.abort()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._expect()

    def on_headers_complete(self) -> None:
        self._header_bytes = None
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._arrived()
        self._header_bytes = 0
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


def bounded(request_timeout_seconds: float) -> type[BoundedProtocol]:
    """Return the protocol with its bound; uvicorn takes a class."""
    return type("Bounded", (BoundedProtocol,), {"request_timeout_seconds": request_timeout_seconds})
