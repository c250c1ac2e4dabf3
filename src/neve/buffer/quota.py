"""How full the buffer is, across streams and processes."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from neve.errors import NeveError, UnavailableError

if TYPE_CHECKING:
    from neve.buffer.store import BufferStore

# Left free on a disk, so that segments can be declared as retired when the buffer has filled it.
RESERVE_BYTES = 32 * 1024 * 1024
MEASURE_SHARE = 50


class Quota:
    """The bytes in the buffer: measured now and then, and what was added since.

    Another process retires segments, so only a measurement shows that there is room again.
    """

    def __init__(self, max_bytes: int, store: BufferStore, every_seconds: float) -> None:
        self._max_bytes = max_bytes
        self._store = store
        self._every_seconds = every_seconds
        self._lock = threading.Lock()
        self._due = time.monotonic() + every_seconds
        self._added_bytes = 0
        self._measured_bytes, self._free_bytes = self._measure()

    @property
    def used_bytes(self) -> int:
        """About how much is buffered."""
        return self._measured_bytes + self._added_bytes

    def claim(self, size: int) -> None:
        """Count bytes about to be appended. Raises UnavailableError when they have no room."""
        with self._lock:
            if self.used_bytes + size > self._max_bytes:
                raise UnavailableError(
                    f"the buffer holds {self.used_bytes} of at most {self._max_bytes} bytes",
                    hint="consolidate what is buffered, or raise buffer.max_bytes",
                )
            free = self._free_bytes
            if free is not None and self._added_bytes + size > free - RESERVE_BYTES:
                raise UnavailableError(
                    f"the buffer's disk has only {free} bytes left",
                    hint="consolidate what is buffered, or free space",
                )
            self._added_bytes += size

    def check(self, size: int) -> None:
        if self.used_bytes + size > self._max_bytes:
            raise UnavailableError("the buffer is full")

    def refresh_when_due(self) -> None:
        """Measure again, if that was long ago; when it cannot be measured, try again later."""
        now = time.monotonic()
        with self._lock:
            if now < self._due:
                return
            self._due = now + self._every_seconds
        try:
            measured, free = self._measure()
        except NeveError:
            return
        took = time.monotonic() - now
        with self._lock:
            # With many files it takes long: never more than a small part of the time.
            self._due = now + max(self._every_seconds, MEASURE_SHARE * took)
            self._measured_bytes, self._free_bytes, self._added_bytes = measured, free, 0

    def _measure(self) -> tuple[int, int | None]:
        return sum(file.size for file in self._store.files("")), self._store.free_bytes()
