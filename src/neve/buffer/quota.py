"""How full the buffer is, across streams and processes."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from neve.errors import NeveError, UnavailableError
from neve.signals import Signal

if TYPE_CHECKING:
    from neve.buffer.store import BufferStore

logger = logging.getLogger(__name__)

# Left free on a disk, so that segments can be declared as retired when the buffer has filled it.
RESERVE_BYTES = 32 * 1024 * 1024
# With many files a measurement takes long. The pause between two is this many times as long.
PAUSE_FACTOR = 50
JOIN_SECONDS = 1.0


class Quota:
    """The bytes in the buffer: the last measurement, and what was added since.

    Another process retires segments, so only a measurement shows that there is room again. A
    thread of its own measures: listing a store may take long, and no writer may wait for it.

    Only streams are counted. Dead letters have a limit of their own.
    """

    def __init__(self, max_bytes: int, store: BufferStore, every_seconds: float) -> None:
        self._max_bytes = max_bytes
        self._store = store
        self._every_seconds = every_seconds
        self._lock = threading.Lock()
        # Claimed, and neither committed nor refused yet.
        self._pending_bytes = 0
        # Committed since the last measurement began.
        self._committed_bytes = 0
        # The smallest request that was refused for lack of room; 0 once there is room for it.
        self._refused_bytes = 0
        self._measured_bytes, self._free_bytes = self._measure()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="neve-buffer-quota", daemon=True)

    def start(self) -> None:
        """Measure again and again, until `stop`."""
        self._thread.start()

    def stop(self) -> None:
        """Measure no more. A listing that hangs is not waited for."""
        self._stopped.set()
        self._thread.join(JOIN_SECONDS)

    @property
    def used_bytes(self) -> int:
        """About how much is buffered."""
        return self._measured_bytes + self._pending_bytes + self._committed_bytes

    @property
    def full(self) -> NeveError | None:
        """Why there is no room: for any request, or for one that was refused; None with room."""
        with self._lock:
            return self._shortage(max(1, self._refused_bytes))

    def check(self, size: int) -> None:
        """Raise UnavailableError if there is no room for this many bytes."""
        # Without the lock, as it is asked for every request: numbers that are a moment old will do.
        if self._shortage(size) is not None:
            with self._lock:
                self._check(size)

    def claim(self, size: int) -> None:
        """Count bytes that are about to be appended. Raises UnavailableError without room.

        Either `commit` or `release` must follow.
        """
        with self._lock:
            self._check(size)
            self._pending_bytes += size

    def commit(self, size: int) -> None:
        """Count claimed bytes as stored."""
        with self._lock:
            self._pending_bytes = max(0, self._pending_bytes - size)
            self._committed_bytes += size

    def release(self, size: int) -> None:
        """Give claimed bytes back: they were refused."""
        with self._lock:
            self._pending_bytes = max(0, self._pending_bytes - size)

    def _check(self, size: int) -> None:
        shortage = self._shortage(size)
        if shortage is None:
            return
        # A request larger than the whole buffer says nothing of how full it is.
        if size <= self._max_bytes:
            self._refused_bytes = min(size, self._refused_bytes or size)
        raise shortage

    def _shortage(self, size: int) -> UnavailableError | None:
        added = self._pending_bytes + self._committed_bytes
        used = self._measured_bytes + added
        if used + size > self._max_bytes:
            return UnavailableError(
                f"the buffer holds {used} of at most {self._max_bytes} bytes",
                hint="consolidate what is buffered, or raise buffer.max_bytes",
            )
        free = self._free_bytes
        if free is not None and added + size > free - RESERVE_BYTES:
            return UnavailableError(
                f"the buffer's disk has only {free} bytes left",
                hint="consolidate what is buffered, or free space",
            )
        return None

    def _run(self) -> None:
        pause = self._every_seconds
        while not self._stopped.wait(pause):
            started = time.monotonic()
            try:
                self.refresh()
            except NeveError as error:
                logger.warning("the buffer's size is unknown: %s", error)
            except Exception:
                # A defect. Without this thread a full buffer would stay full for ever.
                logger.exception("the buffer's size could not be measured")
            took = time.monotonic() - started
            pause = max(self._every_seconds, PAUSE_FACTOR * took)

    def refresh(self) -> None:
        """Measure now. Raises StorageError; the last measurement then stays."""
        with self._lock:
            committed_before = self._committed_bytes
        measured, free = self._measure()
        with self._lock:
            self._measured_bytes, self._free_bytes = measured, free
            # What was committed meanwhile may be in the listing or not: it counts until the next.
            self._committed_bytes -= committed_before
            if self._shortage(max(1, self._refused_bytes)) is None:
                self._refused_bytes = 0

    def _measure(self) -> tuple[int, int | None]:
        files = (file for signal in Signal for file in self._store.files(signal.value))
        return sum(file.size for file in files), self._store.free_bytes()
