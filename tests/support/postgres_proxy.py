"""A proxy in front of PostgreSQL that loses commits, or only the answers to them."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum

_COMMIT = b"Q\x00\x00\x00\x0bCOMMIT\x00"  # a simple query, as the protocol frames it
_CHUNK_BYTES = 65_536


class Loss(Enum):
    """When a connection is cut."""

    BEFORE = "before it was applied"
    AFTER = "after it was applied"


@dataclass
class LossyPostgres:
    """Counts commits, and cuts the connections of some of them."""

    port: int
    plan: dict[int, Loss] = field(default_factory=dict)
    commits: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def expect(self, plan: dict[int, Loss] | None = None) -> None:
        """Begin anew: the next commit has number 1."""
        self.plan, self.commits = plan or {}, 0

    def count(self) -> Loss | None:
        with self._lock:
            self.commits += 1
            return self.plan.get(self.commits)


@contextmanager
def running_lossy_postgres(port: int) -> Iterator[LossyPostgres]:
    """Forward to the PostgreSQL on a port of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        lossy = LossyPostgres(server.getsockname()[1])

        def accept() -> None:
            with suppress(OSError):  # it is closed to end this
                while True:
                    client, _ = server.accept()
                    upstream = socket.create_connection(("127.0.0.1", port))
                    pump = threading.Thread(
                        target=_forward, args=(client, upstream, lossy), daemon=True
                    )
                    pump.start()

        acceptor = threading.Thread(target=accept, daemon=True)
        acceptor.start()
        try:
            yield lossy
        finally:
            server.shutdown(socket.SHUT_RDWR)
            acceptor.join()


def _forward(client: socket.socket, upstream: socket.socket, lossy: LossyPostgres) -> None:
    with client, upstream, suppress(OSError):
        while True:
            for ready in select.select([client, upstream], [], [])[0]:
                data = ready.recv(_CHUNK_BYTES)
                if not data:
                    return
                loss = lossy.count() if ready is client and _COMMIT in data else None
                if loss is Loss.BEFORE:
                    return
                (upstream if ready is client else client).sendall(data)
                if loss is Loss.AFTER:
                    upstream.recv(_CHUNK_BYTES)
                    return
