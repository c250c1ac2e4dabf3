"""A bound on the bytes that a sender may send in a second."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.limits import SENDER_BURST_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable


class ByteRate:
    """A token bucket that may be overdrawn.

    A request is let in while there is anything left, and charged when its size is known. So a
    request of any size passes once, and the next ones wait until its bytes are paid for.
    Of the event loop's thread only.
    """

    def __init__(self, bytes_per_second: float, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._bytes_per_second = bytes_per_second
        self._left_bytes = self._burst_bytes
        self._filled_at = clock()

    @property
    def _burst_bytes(self) -> float:
        return self._bytes_per_second * SENDER_BURST_SECONDS

    def change(self, bytes_per_second: float) -> None:
        """Fill at another rate from now on; what was overdrawn stays so."""
        self._fill()
        self._bytes_per_second = bytes_per_second
        self._left_bytes = min(self._left_bytes, self._burst_bytes)

    def charge(self, size: int) -> None:
        """Take the bytes of a request that was received."""
        self._fill()
        self._left_bytes -= size

    def wait_seconds(self) -> float:
        """Return how long nothing more is let in; 0 when something is."""
        self._fill()
        return max(0.0, -self._left_bytes / self._bytes_per_second)

    def _fill(self) -> None:
        now = self._clock()
        filled_bytes = (now - self._filled_at) * self._bytes_per_second
        self._left_bytes = min(self._left_bytes + filled_bytes, self._burst_bytes)
        self._filled_at = now
