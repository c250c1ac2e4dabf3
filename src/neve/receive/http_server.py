"""The HTTP port: its connections, and the clock that ends what takes too long."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from neve.receive.connections import keep_ticking
from neve.receive.http_connection import HttpConnection
from neve.receive.http_routes import Routes
from neve.receive.listener import Listener

if TYPE_CHECKING:
    import socket
    from collections.abc import Coroutine

    from neve.receive.connections import Connections
    from neve.receive.request_handler import RequestHandler
    from neve.receive.tls import ServerContext

PROTOCOL = "http"
# How late a deadline may be noticed.
TICK_SECONDS = 1.0


class HttpServer:
    """The connections of one port."""

    def __init__(self, handler: RequestHandler, connections: Connections) -> None:
        self.handler = handler
        self.spec = handler.spec
        self.routes = Routes(handler)
        self.loop = asyncio.get_running_loop()
        self.now = time.monotonic
        self.closing = False
        self._limit = connections
        self._connections: set[HttpConnection] = set()
        # The event loop holds tasks weakly.
        self._answers: set[asyncio.Task[None]] = set()
        self._listener: Listener | None = None
        # Never done before `stop`.
        self.clock = self.loop.create_task(keep_ticking(self._connections, TICK_SECONDS))

    def listen(self, listening: socket.socket, tls: ServerContext | None) -> None:
        """Accept connections on a socket until `stop`."""
        self._listener = Listener(listening, self.connection, self._limit, tls)

    def connection(self) -> HttpConnection:
        """Return the protocol of a new connection."""
        return HttpConnection(self)

    def start(self, answering: Coroutine[Any, Any, None]) -> None:
        """Let a connection answer beside the others."""
        task = self.loop.create_task(answering)
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    def opened(self, connection: HttpConnection) -> None:
        self._connections.add(connection)
        self.handler.counters.connect(PROTOCOL)

    def lost(self, connection: HttpConnection) -> None:
        self._connections.discard(connection)
        self.handler.counters.disconnect(PROTOCOL)
        self._limit.closed()

    @property
    def answers_in_progress(self) -> int:
        """How many connections are being answered."""
        return len(self._answers)

    async def stop(self, drain_seconds: float) -> None:
        """Answer the requests that have arrived, close the rest, and cut what is left."""
        self.closing = True
        if self._listener is not None:
            self._listener.close()
        deadline = self.now() + drain_seconds
        for connection in list(self._connections):
            connection.close_when_idle()
        while self._connections and self.now() < deadline:
            await asyncio.sleep(0.01)
        self.clock.cancel()
        for connection in list(self._connections):
            connection.abort()
