"""What this process has open of shards.

Shards never change, so what was read stays true. Local files, and those of the disk cache, are
mapped, which takes no memory of the process.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

DEFAULT_CACHE_BYTES = 256 * 1024 * 1024


class BucketCache:
    """Values by key, within a limit of bytes; the least recently used is dropped first."""

    def __init__(self, limit_bytes: int = DEFAULT_CACHE_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self.bytes = 0
        self.hits = 0
        self.misses = 0
        self._values: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, load: Callable[[], tuple[Any, int]]) -> Any:
        """Return the value of a key; if it is not here, `load` returns it and its bytes."""
        with self._lock:
            if key in self._values:
                self.hits += 1
                self._values.move_to_end(key)
                return self._values[key][0]
            self.misses += 1
        value, size = load()
        with self._lock:
            self._drop(key)
            if size <= self.limit_bytes:
                self._values[key] = (value, size)
                self.bytes += size
            self._shrink()
        return value

    def grow(self, key: Hashable, more_bytes: int) -> None:
        """Say that a value, if it is here, has so many bytes more."""
        with self._lock:
            if key in self._values:
                value, size = self._values[key]
                self._values[key] = (value, size + more_bytes)
                self.bytes += more_bytes
                self._shrink()

    def drop(self, key: Hashable) -> None:
        """Forget a value."""
        with self._lock:
            self._drop(key)

    def _shrink(self) -> None:
        while self.bytes > self.limit_bytes:
            self._drop(next(iter(self._values)))

    def _drop(self, key: Hashable) -> None:
        if key in self._values:
            self.bytes -= self._values.pop(key)[1]


process_cache = BucketCache()
"""What the tasks of this process share; Spark keeps its Python workers between tasks."""
