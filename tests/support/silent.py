"""Servers that accept connections and answer slowly or never, from the start or some moment on."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field

_CHUNK_BYTES = 65_536
# Then it hangs up, and lets nobody in: who has no time-out fails its test, and does not stop it.
MOST_SECONDS = 60.0


@dataclass
class SilentServer:
    """Forwards to a server of this machine, if it has one, until it is told to be silent."""

    port: int
    silent: threading.Event = field(default_factory=threading.Event)
    # A request with these bytes is passed on, and is the last thing that is.
    silent_after: bytes | None = None
    # Of each connection, in both directions together.
    bytes_per_second: float | None = None
    # How many connections were accepted.
    connections: int = 0

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def running_silent_server(upstream_port: int | None = None) -> Iterator[SilentServer]:
    """Accept connections on a free port; without an upstream server, never say a word."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        server = SilentServer(listener.getsockname()[1])
        if upstream_port is None:
            server.silent.set()
        ended = threading.Event()
        sockets = [listener]

        def hang_up() -> None:
            for connection in sockets:
                with suppress(OSError):  # its client has closed it
                    connection.shutdown(socket.SHUT_RDWR)

        def accept() -> None:
            with suppress(OSError):  # it is closed to end this
                while True:
                    client, _ = listener.accept()
                    stack.callback(client.close)
                    sockets.append(client)
                    server.connections += 1
                    if upstream_port is not None:
                        upstream = socket.create_connection(("127.0.0.1", upstream_port))
                        stack.callback(upstream.close)
                        arguments = (client, upstream, server, ended)
                        threading.Thread(target=_forward, args=arguments, daemon=True).start()

        acceptor = threading.Thread(target=accept, daemon=True)
        acceptor.start()
        limit = threading.Timer(MOST_SECONDS, hang_up)
        limit.start()
        try:
            yield server
        finally:
            ended.set()
            limit.cancel()
            hang_up()
            acceptor.join()


def _forward(
    client: socket.socket,
    upstream: socket.socket,
    server: SilentServer,
    ended: threading.Event,
) -> None:
    """Pass bytes on in both directions; while silent, read them and keep them."""
    with suppress(OSError, ValueError):  # both are closed at the end
        while not ended.is_set():
            for ready in select.select([client, upstream], [], [], 0.05)[0]:
                data = ready.recv(_CHUNK_BYTES)
                if not data:
                    return
                if server.silent.is_set():
                    continue
                if server.bytes_per_second is not None:
                    ended.wait(len(data) / server.bytes_per_second)
                (upstream if ready is client else client).sendall(data)
                if ready is client and server.silent_after and server.silent_after in data:
                    server.silent.set()
