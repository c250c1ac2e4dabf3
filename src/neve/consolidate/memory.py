"""What a worker remembers of a signal from run to run. Nothing of it is needed to be right."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from neve.buffer.reader import StreamStatus
    from neve.consolidate.duplicates import Place

# After a failure of one table: it is tried again later each time, and nothing of it is lost.
FIRST_PAUSE_SECONDS = 1.0
MOST_PAUSE_SECONDS = 60.0
# Of which nothing waits, a signal has a turn so often: to remove notes, and what others left.
REST_SECONDS = 600.0


@dataclass(frozen=True)
class Pause:
    """A table that failed, and when it is tried again."""

    error: str
    seconds: float
    until: float


@dataclass
class SignalMemory:
    """The tables of one signal: which of them failed, and which segments hold no rows for them."""

    clock: Callable[[], float] = time.monotonic
    pauses: dict[str, Pause] = field(default_factory=dict)
    # For each table and stream: up to this segment there were no rows behind the table's mark.
    empty_through: dict[str, dict[str, int]] = field(default_factory=dict)
    # For each table: requests in those segments that are copies of stored ones. No commit names
    # them, as there were no rows to commit.
    copies: dict[str, set[Place]] = field(default_factory=dict)
    # Tables whose rejected rows were looked at: since then, this worker has left nothing behind.
    finished_rejected: set[str] = field(default_factory=set)
    # Whether a table holds batches: people decide on them at any time.
    has_held: bool = False
    _finished: frozenset[tuple[str, int, int, bool]] | None = None
    _finished_at: float = 0.0

    def is_paused(self, table: str) -> bool:
        pause = self.pauses.get(table)
        return pause is not None and self.clock() < pause.until

    def pause(self, table: str, error: str) -> None:
        """Let a table that failed wait, twice as long as the last time."""
        self.finished_rejected.discard(table)
        before = self.pauses.get(table)
        seconds = min(2 * before.seconds, MOST_PAUSE_SECONDS) if before else FIRST_PAUSE_SECONDS
        self.pauses[table] = Pause(error, seconds, self.clock() + seconds)

    def resume(self, table: str) -> None:
        self.pauses.pop(table, None)

    def add_empty(self, table: str, last: Mapping[str, int], copies: Iterable[Place] = ()) -> None:
        """Remember that the segments up to these, read now, hold no rows for a table."""
        self.empty_through.setdefault(table, {}).update(last)
        self.copies.setdefault(table, set()).update(copies)

    def keep_only(self, streams: Iterable[str]) -> None:
        """Forget streams that are not there any more."""
        present = set(streams)
        for table, through in self.empty_through.items():
            self.empty_through[table] = {s: n for s, n in through.items() if s in present}

    def finish(self, streams: Sequence[StreamStatus]) -> None:
        """Remember what was left in the buffer by a run that did all it could."""
        self._finished, self._finished_at = _sealed(streams), self.clock()
        retired = {stream.stream: stream.retired_through for stream in streams}
        for table, copies in self.copies.items():
            self.copies[table] = {
                (stream, segment, position)
                for stream, segment, position in copies
                if segment > retired.get(stream, segment)
            }

    def has_work(self, streams: Sequence[StreamStatus], tables: Sequence[str]) -> bool:
        """Tell whether a run could do anything: tables that failed keep segments in the buffer."""
        if self._is_at_rest(streams, tables):
            return False
        if not self.pauses or self._finished != _sealed(streams):
            return True
        return any(table in self.pauses and not self.is_paused(table) for table in tables)

    def _is_at_rest(self, streams: Sequence[StreamStatus], tables: Sequence[str]) -> bool:
        """Tell whether nothing waits, and this worker left nothing behind a while ago."""
        if any(stream.segments for stream in streams) or self.pauses or self.has_held:
            return False
        is_clean = self._finished is not None and self.finished_rejected.issuperset(tables)
        return is_clean and self.clock() - self._finished_at < REST_SECONDS


def _sealed(streams: Sequence[StreamStatus]) -> frozenset[tuple[str, int, int, bool]]:
    return frozenset(
        (stream.stream, stream.retired_through, stream.segments, stream.closed)
        for stream in streams
    )
