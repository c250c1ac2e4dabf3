"""How many connections may be open, so that the buffer always has descriptors left; their clock."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import time
from typing import TYPE_CHECKING, Protocol

from neve.limits import MAX_CONNECTIONS, MAX_TLS_CONNECTIONS, RESERVED_DESCRIPTORS

if TYPE_CHECKING:
    from collections.abc import Collection

    from neve.receive.counters import Counters

logger = logging.getLogger(__name__)

TOO_MANY_CONNECTIONS = "too_many_connections"
TLS_HANDSHAKE = "tls_handshake"
# macOS calls its hard limit infinite, and then refuses most numbers.
_DESCRIPTOR_LIMITS = (1 << 20, 1 << 16, 10_240)


class Ticking(Protocol):
    """A connection that ends by itself what takes too long."""

    def tick(self, now: float) -> None: ...

    def abort(self) -> None: ...


async def keep_ticking(connections: Collection[Ticking], seconds: float) -> None:
    """Tell connections the time, each so often, until this is cancelled."""
    while True:
        await asyncio.sleep(seconds)
        now = time.monotonic()
        for connection in list(connections):
            try:
                connection.tick(now)
            except Exception:
                # A defect, which costs no other connection its turn.
                logger.exception("a connection is cut, since it cannot tell the time")
                connection.abort()


class Connections:
    """Counts open connections, over HTTP and gRPC together. For the event loop's thread only."""

    def __init__(self, counters: Counters, max_open: int) -> None:
        self._counters = counters
        self.max_open = max_open
        self.open = 0

    def admit(self) -> bool:
        """Count a connection in, or say that there are too many; `closed` counts it out."""
        if self.open >= self.max_open:
            self._counters.refused_requests[TOO_MANY_CONNECTIONS] += 1
            return False
        self.open += 1
        return True

    def closed(self) -> None:
        """Count a connection out."""
        self.open -= 1

    def handshake_failed(self) -> None:
        """Count a connection out that was not let in by TLS."""
        self._counters.refused_requests[TLS_HANDSHAKE] += 1
        self.closed()


def connection_limit(descriptors: int, *, tls: bool) -> int:
    """Return how many connections leave enough memory and descriptors for everything else."""
    # With very few descriptors, half of them.
    reserved = min(RESERVED_DESCRIPTORS, descriptors // 2)
    return min(MAX_TLS_CONNECTIONS if tls else MAX_CONNECTIONS, descriptors - reserved)


def descriptor_limit() -> int:
    """Return how many descriptors this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _DESCRIPTOR_LIMITS[0] if soft == resource.RLIM_INFINITY else soft


def raise_descriptor_limit() -> None:
    """Let this process open as many descriptors as the system allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return
    allowed = _DESCRIPTOR_LIMITS if hard == resource.RLIM_INFINITY else (hard,)
    for limit in allowed:
        if limit <= soft:
            return
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            return
