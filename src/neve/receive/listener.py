"""Accept connections, as many as may be open; TLS handshakes count."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING

from neve.limits import HANDSHAKE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from neve.receive.connections import Connections
    from neve.receive.tls import ServerContext

logger = logging.getLogger(__name__)

# So that a burst of connections does not keep the event loop from everything else.
ACCEPTS_AT_ONCE = 100
RETRY_SECONDS = 1.0


class Listener:
    """Accepts on a listening socket and gives each connection a protocol.

    `asyncio`'s own server tells a protocol of a connection after the TLS handshake: those that
    never send one would not be counted.
    """

    def __init__(
        self,
        listening: socket.socket,
        protocol_factory: Callable[[], asyncio.Protocol],
        connections: Connections,
        tls: ServerContext | None = None,
    ) -> None:
        """The protocol calls `connections.closed` when its connection is lost."""
        self._listening = listening
        self._protocol_factory = protocol_factory
        self._connections = connections
        self._tls = tls
        self._handshakes: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        listening.settimeout(0)
        self._loop.add_reader(listening, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            try:
                connection, _address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # Out of descriptors or memory, in the whole system perhaps.
                logger.warning("cannot accept connections: %s", error)
                self._loop.remove_reader(self._listening)
                self._loop.call_later(RETRY_SECONDS, self._resume)
                return
            if self._connections.admit():
                task = self._loop.create_task(self._connect(connection))
                self._handshakes.add(task)
                task.add_done_callback(self._handshakes.discard)
            else:
                connection.close()

    def _resume(self) -> None:
        if self._listening.fileno() != -1:
            self._loop.add_reader(self._listening, self._accept)

    async def _connect(self, connection: socket.socket) -> None:
        try:
            connection.settimeout(0)
            # asyncio does it only for sockets that were made with IPPROTO_TCP. Without it an answer
            # that follows a WINDOW_UPDATE waits 40 ms for the client's acknowledgement.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.connect_accepted_socket(
                self._protocol_factory,
                connection,
                ssl=self._tls.newest if self._tls else None,
                ssl_handshake_timeout=HANDSHAKE_SECONDS if self._tls else None,
            )
        except OSError as error:
            # ssl.SSLError is one, too.
            logger.debug("TLS handshake failed: %s", error)
            connection.close()
            self._connections.handshake_failed()
        except Exception:
            # A defect. Counted as open for ever, such connections would keep all others out.
            logger.exception("a connection could not be opened")
            connection.close()
            self._connections.closed()

    def close(self) -> None:
        """Accept no more connections, and end TLS handshakes; the others stay."""
        if self._listening.fileno() != -1:
            self._loop.remove_reader(self._listening)
            self._listening.close()
        for task in self._handshakes:
            task.cancel()
