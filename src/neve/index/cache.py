"""What this process has read of shards, the least recently used given up first.

Shards never change, so what was read stays true. A local file is mapped, which takes no memory of
the process; of others the bytes of whole buckets are held, within a limit.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

DEFAULT_CACHE_BYTES = 256 * 1024 * 1024


class BucketCache:
    """Values under keys, their bytes counted and limited; also how often one was there."""

    def __init__(self, limit_bytes: int = DEFAULT_CACHE_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self.bytes = 0
        self.hits = 0
        self.misses = 0
        self._held: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, load: Callable[[], tuple[Any, int]]) -> Any:
        """Return what is held under a key, else what `load` returns, which says its bytes."""
        with self._lock:
            if key in self._held:
                self.hits += 1
                self._held.move_to_end(key)
                return self._held[key][0]
            self.misses += 1
        value, size = load()
        self.put(key, value, size)
        return value

    def put(self, key: Hashable, value: Any, size: int) -> None:
        """Hold a value, or say that one has grown; what is larger than the limit is not held."""
        with self._lock:
            self._forget(key)
            if size > self.limit_bytes:
                return
            self._held[key] = (value, size)
            self.bytes += size
            while self.bytes > self.limit_bytes:
                self._forget(next(iter(self._held)))

    def clear(self) -> None:
        with self._lock:
            self._held.clear()
            self.bytes = 0

    def _forget(self, key: Hashable) -> None:
        if key in self._held:
            self.bytes -= self._held.pop(key)[1]


process_cache = BucketCache()
"""What the tasks of this process share; Spark keeps its Python workers between tasks."""
