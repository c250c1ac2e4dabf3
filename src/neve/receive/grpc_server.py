"""The gRPC port: its connections, and the clock that ends what takes too long."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from neve.receive.connections import keep_ticking
from neve.receive.grpc_calls import Calls
from neve.receive.grpc_connection import GrpcConnection
from neve.receive.listener import Listener

if TYPE_CHECKING:
    import socket

    from neve.receive.connections import Connections
    from neve.receive.request_handler import RequestHandler
    from neve.receive.tls import ServerContext

# How late a deadline may be noticed.
TICK_SECONDS = 1.0
# Of the shortest deadline, where that is short.
TICK_SHARE = 0.2


class GrpcServer:
    """Serves OTLP/gRPC on a listening socket, from its construction to `stop`."""

    def __init__(
        self,
        handler: RequestHandler,
        connections: Connections,
        listening: socket.socket,
        tls: ServerContext | None,
    ) -> None:
        self._handler = handler
        self._connections = connections
        self.calls = Calls()
        self._open: set[GrpcConnection] = set()
        self._listener = Listener(listening, self._connection, connections, tls)
        seconds = min(TICK_SECONDS, TICK_SHARE * handler.spec.request_timeout_seconds)
        # Never done before `stop`.
        self.clock = asyncio.get_running_loop().create_task(keep_ticking(self._open, seconds))

    def _connection(self) -> GrpcConnection:
        return GrpcConnection(self._handler, self.calls, self._connections, self._open)

    async def stop(self, drain_seconds: float) -> None:
        """Take no more connections, let calls in progress finish, close all connections."""
        self._listener.close()
        deadline = time.monotonic() + drain_seconds
        for connection in list(self._open):
            connection.leave(drain_seconds)
        while self._open and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        for connection in list(self._open):
            connection.abort()
        self.clock.cancel()
        await asyncio.wait([self.clock])
