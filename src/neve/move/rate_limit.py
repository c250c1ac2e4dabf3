"""A limit on bytes per second that all copies of a move share."""

from __future__ import annotations

import threading
import time


class RateLimit:
    """Hands out bytes at a steady rate; a part is paid for by those that come after it."""

    def __init__(self, bytes_per_second: int | None) -> None:
        self._rate = bytes_per_second
        self._free_at = 0.0
        self._lock = threading.Lock()

    def take(self, size: int, stop: threading.Event) -> None:
        """Wait until `size` bytes may be sent, or until `stop` is set."""
        if self._rate is None:
            return
        with self._lock:
            now = time.monotonic()
            start = max(now, self._free_at)
            self._free_at = start + size / self._rate
        stop.wait(start - now)
