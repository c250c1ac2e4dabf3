"""How full the buffer is, across streams and processes."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from neve.errors import NeveError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable


class Quota:
    """The bytes in the buffer: measured now and then, and what was added since.

    Another process retires segments, so only a measurement shows that there is room again.
    """

    def __init__(self, max_bytes: int, measure: Callable[[], int], every_seconds: float) -> None:
        self._max_bytes = max_bytes
        self._measure = measure
        self._every_seconds = every_seconds
        self._lock = threading.Lock()
        self._due = time.monotonic() + every_seconds
        self.used_bytes = measure()

    def claim(self, size: int) -> None:
        """Count bytes about to be appended. Raises UnavailableError when they have no room."""
        with self._lock:
            if self.used_bytes + size > self._max_bytes:
                raise UnavailableError(
                    f"the buffer holds {self.used_bytes} of at most {self._max_bytes} bytes",
                    hint="consolidate what is buffered, or raise buffer.max_bytes",
                )
            self.used_bytes += size

    def refresh_when_due(self) -> None:
        """Measure again, if that was long ago; when it cannot be measured, try again later."""
        now = time.monotonic()
        with self._lock:
            if now < self._due:
                return
            self._due = now + self._every_seconds
        try:
            used = self._measure()
        except NeveError:
            return
        with self._lock:
            self.used_bytes = used
