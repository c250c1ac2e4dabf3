"""How often a writer may fail before it stays stopped."""

from __future__ import annotations

import time
from collections import deque

# A defect that is met again and again must become visible: the process is then restarted by
# whatever watches it. One that is met once a day costs a second of refusals.
MAX_RESTARTS = 5
WITHIN_SECONDS = 60.0


class RestartLimit:
    """Allows `MAX_RESTARTS` restarts within `WITHIN_SECONDS`. Not thread-safe."""

    def __init__(self) -> None:
        self._times: deque[float] = deque()

    def allow(self) -> bool:
        """Count a failure, and say whether another start is allowed."""
        now = time.monotonic()
        while self._times and self._times[0] < now - WITHIN_SECONDS:
            self._times.popleft()
        self._times.append(now)
        return len(self._times) <= MAX_RESTARTS
