"""When a gRPC connection is too quiet, idle or old."""

from __future__ import annotations

import random
from enum import Enum

from neve.limits import (
    CONNECTION_AGE_SECONDS,
    HANDSHAKE_SECONDS,
    IDLE_SECONDS,
    PING_SECONDS,
    PING_TIMEOUT_SECONDS,
)


class Due(Enum):
    """What a connection is to do now."""

    NOTHING = 0
    PING = 1
    # Ask the client to connect anew.
    LEAVE = 2
    # Close: the client does not answer, or never spoke.
    CLOSE = 3


class ConnectionClock:
    """The times of one connection. Pure: the present is always given."""

    def __init__(self, now: float) -> None:
        self.opened_at = self.received_at = self.call_at = now
        # Set while a PING is unanswered, and while the client does not read.
        self.pinged_at: float | None = None
        self.blocked_at: float | None = None
        jitter = random.SystemRandom().uniform(0.9, 1.1)
        self._leave_at = now + jitter * CONNECTION_AGE_SECONDS

    def received(self, now: float) -> None:
        """Something arrived: the client is alive."""
        self.received_at = now
        self.pinged_at = None

    def due(self, now: float, *, started: bool, busy: bool) -> Due:
        """Say what is due, given whether HTTP/2 began and whether there are calls."""
        if not started:
            return Due.CLOSE if now - self.opened_at > HANDSHAKE_SECONDS else Due.NOTHING
        unresponsive_since = self.pinged_at if self.blocked_at is None else self.blocked_at
        if unresponsive_since is not None and now - unresponsive_since > PING_TIMEOUT_SECONDS:
            return Due.CLOSE
        if now > self._leave_at or (not busy and now - self.call_at > IDLE_SECONDS):
            return Due.LEAVE
        if unresponsive_since is None and now - self.received_at > PING_SECONDS:
            self.pinged_at = now
            return Due.PING
        return Due.NOTHING
