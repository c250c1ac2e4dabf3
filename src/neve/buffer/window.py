"""Which requests were stored within the last minutes."""

from __future__ import annotations

from collections import deque

NANOS = 1_000_000_000


class DedupWindow:
    """Keys of the requests stored within the last `seconds`. Not thread-safe."""

    def __init__(self, seconds: float) -> None:
        self._nanos = int(seconds * NANOS)
        self._received: dict[bytes, int] = {}
        self._order: deque[tuple[int, bytes]] = deque()

    def __len__(self) -> int:
        return len(self._received)

    @property
    def is_on(self) -> bool:
        return self._nanos > 0

    def add(self, key: bytes, received_unix_nano: int) -> None:
        """Remember a stored request, and forget those that are older than the window.

        Add in the order of `received_unix_nano`, or nearly: expiry looks at the oldest added first.
        """
        if not self.is_on:
            return
        self._received[key] = received_unix_nano
        self._order.append((received_unix_nano, key))
        while self._order and self._order[0][0] < received_unix_nano - self._nanos:
            received, old = self._order.popleft()
            # A key that was stored again later has another entry.
            if self._received.get(old) == received:
                del self._received[old]

    def has(self, key: bytes, now_unix_nano: int) -> bool:
        """Say whether this request was stored no longer than the window ago."""
        received = self._received.get(key)
        return received is not None and now_unix_nano - received <= self._nanos
