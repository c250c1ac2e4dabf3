"""How many bytes of requests may be in memory at once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from neve.errors import Code, UnavailableError

if TYPE_CHECKING:
    from types import TracebackType


class BusyError(UnavailableError):
    """The requests in progress fill the memory that is set apart for them."""

    default_code = Code.BUSY


class Budget:
    """Bytes of requests in progress, as received and as unpacked. Thread-safe."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self.used_bytes = 0

    def share(self) -> Share:
        """Open a request's share, which is given back when it is closed."""
        return Share(self)

    def take(self, size: int) -> None:
        """Count bytes in. Raises BusyError when there is no room for them."""
        with self._lock:
            # A request that is alone always fits: its own limit bounds it.
            if self.used_bytes and self.used_bytes + size > self._max_bytes:
                raise BusyError("too many requests are in progress")
            self.used_bytes += size

    def give_back(self, size: int) -> None:
        """Count bytes out."""
        with self._lock:
            self.used_bytes -= size


class Share:
    """What one request holds of a budget. Of one thread at a time."""

    __slots__ = ("_budget", "held_bytes")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.held_bytes = 0

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
        """Give everything back. Idempotent."""
        self.shrink_to(0)

    def __enter__(self) -> Share:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
