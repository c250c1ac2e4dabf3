"""How many bytes of requests may be in memory at once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from neve.errors import Code, UnavailableError
from neve.limits import PROGRESS_BYTES, STALL_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable


class BusyError(UnavailableError):
    """The requests in progress fill the memory that is set apart for them."""

    default_code = Code.BUSY


class TooSlowError(UnavailableError):
    """A request that did not arrive in time, or stalled while others needed its room."""

    default_code = Code.TOO_SLOW


class Budget:
    """Bytes of requests in progress, as received and as unpacked. Thread-safe where it says so."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self.used_bytes = 0
        # Requests that are still being sent. Of the event loop's thread only.
        self._arriving: set[Share] = set()

    def share(self, evict: Callable[[], None], now: float) -> Share:
        """Open the share of a request that begins to arrive.

        Args:
            evict: ends the request, if it stalls while there is no room for others.
        """
        share = Share(self, evict, now)
        self._arriving.add(share)
        return share

    def take(self, size: int) -> None:
        """Count bytes in. Raises BusyError when there is no room for them. Thread-safe."""
        with self._lock:
            # A request that is alone always fits: its own limit bounds it.
            if self.used_bytes and self.used_bytes + size > self._max_bytes:
                raise BusyError("too many requests are in progress")
            self.used_bytes += size

    def give_back(self, size: int) -> None:
        """Count bytes out. Thread-safe."""
        with self._lock:
            self.used_bytes -= size

    def arrived(self, share: Share) -> None:
        """Stop watching a share: its request has arrived, or is given up."""
        self._arriving.discard(share)

    def evict_stalled(self, beside: Share, now: float) -> bool:
        """End the request that has stalled longest; False when none has."""
        stalled = [
            share
            for share in self._arriving
            if share is not beside and share.held_bytes and now - share.progress_at >= STALL_SECONDS
        ]
        if not stalled:
            return False
        longest = min(stalled, key=lambda share: share.progress_at)
        self._arriving.discard(longest)
        longest.evict()
        longest.close()
        return True


class Share:
    """What one request holds of a budget. Of one thread at a time."""

    __slots__ = ("_budget", "_progress_bytes", "evict", "held_bytes", "progress_at")

    def __init__(self, budget: Budget, evict: Callable[[], None], now: float) -> None:
        self._budget = budget
        self.evict = evict
        self.held_bytes = 0
        # When it last grew by as much as is asked of it.
        self.progress_at = now
        self._progress_bytes = 0

    def receive(self, size: int, now: float) -> None:
        """Hold the bytes received so far, if need be in place of requests that have stalled.

        Raises:
            BusyError: there is no room; the share is as before.
        """
        while True:
            try:
                self.grow_to(size)
                break
            except BusyError:
                if not self._budget.evict_stalled(self, now):
                    raise
        if size - self._progress_bytes >= PROGRESS_BYTES:
            self._progress_bytes, self.progress_at = size, now

    def arrived(self) -> None:
        """The request is complete: it makes room for no other any more."""
        self._budget.arrived(self)

    def grow_to(self, size: int) -> None:
        """Hold at least so many bytes. Raises BusyError; the share is then as before."""
        if size > self.held_bytes:
            self._budget.take(size - self.held_bytes)
            self.held_bytes = size

    def shrink_to(self, size: int) -> None:
        """Hold at most so many bytes."""
        if size < self.held_bytes:
            self._budget.give_back(self.held_bytes - size)
            self.held_bytes = size

    def close(self) -> None:
        """Give everything back. Idempotent; of the event loop's thread."""
        self.arrived()
        self.shrink_to(0)
