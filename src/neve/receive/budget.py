"""How much may be under way at once."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from neve.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Budget:
    """Bytes of requests under way. Of the event loop's thread only."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.used_bytes = 0
        # Called when there is no room: gives some back, or says that it cannot.
        self.make_room: Callable[[], bool] = _no_room

    @contextmanager
    def share(self) -> Iterator[Share]:
        """Open a request's share, given back at the end."""
        share = Share(self)
        try:
            yield share
        finally:
            self.used_bytes -= share.held_bytes

    def take(self, size: int) -> None:
        """Count bytes in. Raises UnavailableError when there is no room for them."""
        while self.used_bytes and self.used_bytes + size > self._max_bytes:
            if not self.make_room():
                raise UnavailableError("too many requests are under way")
        self.used_bytes += size


class Share:
    """What one request holds of a budget."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.held_bytes = 0

    def grow_to(self, size: int) -> None:
        """Hold at least so many bytes. Raises UnavailableError."""
        if size > self.held_bytes:
            self._budget.take(size - self.held_bytes)
            self.held_bytes = size


def _no_room() -> bool:
    return False
