"""A mirror that is kept by nobody: turns that end as a list says."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Report:
    """What a turn did; nothing, unless it is said."""

    table: str
    outcome: str = "idle"
    batches: int = 0
    rows_scanned: int = 0
    rows_deduplicated: int = 0
    rows_upserted: int = 0
    rows_deleted: int = 0
    late_dropped: int = 0
    set_aside: int = 0
    conflicts: int = 0
    merge_seconds: list[float] = field(default_factory=list)
    duration_seconds: float = 0.0
    lag_seconds: float = 0.0
    lag_snapshots: int = 0
    index_bytes: int = 0
    index_entries: int = 0
    index_hits: int = 0
    index_misses: int = 0
    index_cache_hits: int = 0
    index_rebuilds: int = 0
    index_files_indexed: int = 0
    vectors_written: int = 0


class ListedMerger:
    """Ends each turn as the list says, a report's fields or an exception, then with nothing."""

    def __init__(self, name: str, *turns: dict | Exception) -> None:
        self.name = name
        self.turns = list(turns)
        self.taken = 0
        self.during: Callable[[threading.Event], None] = lambda stop: None

    def merge(self, stop: threading.Event) -> Report:
        self.taken += 1
        self.during(stop)
        turn = self.turns.pop(0) if self.turns else {}
        if isinstance(turn, Exception):
            raise turn
        return Report(self.name, **turn)
