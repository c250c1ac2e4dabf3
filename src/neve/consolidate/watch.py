"""When a consolidation is due, and the loop of a worker that waits for it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from neve.buffer.reader import StreamStatus
from neve.consolidate.consolidator import Consolidator
from neve.consolidate.report import Report
from neve.consolidate.signal_worker import describe_failure
from neve.observe import sentry

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.5
# After a failure: a catalog that is down for an hour is asked now and then, and nothing is lost.
FIRST_PAUSE_SECONDS = 1.0
MOST_PAUSE_SECONDS = 60.0


class Observer(Protocol):
    """Who is told what a worker sees and does."""

    def looked(self, streams: Sequence[StreamStatus]) -> None:
        """Hear what is in the buffer."""

    def ended(self, report: Report, trouble: str | None) -> None:
        """Hear how a look ended, with a run or without, and what failed if something did."""


class Trigger:
    """Tells when a consolidation is due: when enough is sealed, or has waited long enough.

    Waiting is measured by this process's own monotonic clock, since it first saw the lowest waiting
    segment of a stream. Receivers' clocks may be wrong, and say nothing here.
    """

    def __init__(
        self,
        trigger_bytes: int,
        trigger_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._trigger_bytes = trigger_bytes
        self._trigger_seconds = trigger_seconds
        self._clock = clock
        # By stream and by what was retired of it: the next segment is the lowest that waits.
        self._first_seen: dict[tuple[str, int], float] = {}

    def is_due(self, streams: Iterable[StreamStatus]) -> bool:
        """Tell whether to start now; to be asked at each look, so that waiting is noticed."""
        now = self._clock()
        waiting = [stream for stream in streams if stream.segments]
        self._first_seen = {
            key: self._first_seen.get(key, now)
            for key in ((stream.stream, stream.retired_through) for stream in waiting)
        }
        if sum(stream.bytes for stream in waiting) >= self._trigger_bytes:
            return True
        return any(now - seen >= self._trigger_seconds for seen in self._first_seen.values())


def watch(worker: Consolidator, stop: threading.Event, observer: Observer) -> None:
    """Consolidate whenever it is due, until `stop` is set; a batch in progress is finished.

    Nothing but `stop` ends it. A run that fails as a whole is tried again, later each time. A table
    that fails has a pause of its own, and the others go on. Segments wait, nothing is lost.
    """
    pause = FIRST_PAUSE_SECONDS
    trigger = Trigger(worker.spec.trigger_bytes, worker.spec.trigger_seconds)
    while not stop.is_set():
        error = look(worker, stop, observer, trigger).error
        if error is None:
            pause = FIRST_PAUSE_SECONDS
        else:
            logger.warning("consolidation failed, next try in %.0f s: %s", pause, error)
            stop.wait(pause)
            pause = min(2 * pause, MOST_PAUSE_SECONDS)
        stop.wait(POLL_SECONDS)
    worker.ledger.write()


def look(
    worker: Consolidator,
    stop: threading.Event,
    observer: Observer,
    trigger: Trigger | None = None,
) -> Report:
    """Look into the buffer and consolidate what is due; the report tells what failed.

    Args:
        trigger: tells what is due; without one, everything that is sealed.
    """
    report = Report()
    try:
        looks = worker.look_at_all(report)
        streams = [stream for _, of_signal in looks.values() for stream in of_signal]
        observer.looked(streams)
        worker.resume_idle(looks)
        if trigger is None or trigger.is_due(streams):
            worker.run_once(report, stop, looks=looks)
        else:
            worker.look_after_buffer(report)
    except Exception as error:  # noqa: BLE001 - the next try may get past it, and data waits
        report.error = describe_failure(error)
        sentry.capture(error, "consolidate")
    # A table that failed in an earlier run is in trouble until it is well again.
    failing = [f"{table}: {error}" for table, error in worker.failing_tables.items()]
    observer.ended(report, report.trouble or next(iter(failing), None))
    return report
