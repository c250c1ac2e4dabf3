"""Columns that are built once and serve every batch.

Each function of a column is a call to Java, and a batch would need hundreds of them. A column names
other columns and holds no data, so it serves every DataFrame that has these.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Built = TypeVar("Built")

_MOST = 64


class Remembered(Generic[Built]):
    """What was built last, by what it was built from; compared, since that has no hash."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._built: deque[tuple[object, object, Built]] = deque(maxlen=_MOST)

    def get(self, frame: DataFrame, key: object, build: Callable[[], Built]) -> Built:
        """Return what was built from an equal key for the Spark that a frame is of."""
        # A column is an object of one JVM.
        context = frame.sparkSession.sparkContext
        with self._lock:
            for known_context, known, built in self._built:
                if known_context is context and known == key:
                    return built
        new = build()
        with self._lock:
            self._built.append((context, key, new))
        return new
