"""How far a move is: bytes that are copied, of how many, and the time that is left."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_UNITS = ("B", "kB", "MB", "GB", "TB")


class Progress:
    """Counts the bytes of all tables of a move, and says so from time to time.

    Called by many threads. Bytes that an earlier run has copied are in no total, so that the rate
    is that of this run.

    Args:
        say: gets a line of text.
        interval_seconds: between two lines.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        interval_seconds: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.say = say
        self._interval = interval_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._began: float | None = None
        self._said = clock()
        self._total = 0
        self._copied = 0

    def expect(self, size: int) -> None:
        """Add to the bytes that are to be copied."""
        with self._lock:
            self._total += size

    def add(self, size: int) -> None:
        """Count bytes that were copied."""
        with self._lock:
            now = self._clock()
            if self._began is None:
                self._began = now
            self._copied += size
            if now - self._said < self._interval:
                return
            self._said = now
            line = self._line(now - self._began)
        self.say(line)

    def _line(self, seconds: float) -> str:
        line = f"copied {_size(self._copied)} of {_size(max(self._total, self._copied))}"
        if seconds <= 0:
            return line
        rate = self._copied / seconds
        left = max(self._total - self._copied, 0) / rate
        return f"{line}, {_size(rate)}/s, {_duration(left)} left"


def _size(size: float) -> str:
    for unit in _UNITS[:-1]:
        if size < 999.5:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} {_UNITS[-1]}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
