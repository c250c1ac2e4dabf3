"""When a consolidation is due, and the loop of a worker that waits for it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Protocol

from neve.buffer.reader import StreamStatus
from neve.consolidate.consolidator import Consolidator
from neve.consolidate.report import Report
from neve.consolidate.signal_worker import describe_failure
from neve.observe import sentry

logger = logging.getLogger(__name__)

NANOS = 1_000_000_000
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


def is_due(
    streams: Iterable[StreamStatus],
    trigger_bytes: int,
    trigger_seconds: float,
    now_unix_nano: int,
) -> bool:
    """Tell whether enough is sealed, or has waited long enough."""
    sealed = [stream for stream in streams if stream.segments]
    if sum(stream.bytes for stream in sealed) >= trigger_bytes:
        return True
    waited = (now_unix_nano - (stream.oldest_received_unix_nano or 0) for stream in sealed)
    return any(nanos >= trigger_seconds * NANOS for nanos in waited)


def watch(worker: Consolidator, stop: threading.Event, observer: Observer) -> None:
    """Consolidate whenever it is due, until `stop` is set; a batch in progress is finished.

    Nothing but `stop` ends it. A run that fails as a whole is tried again, later each time. A table
    that fails has a pause of its own, and the others go on. Segments wait, nothing is lost.
    """
    pause = FIRST_PAUSE_SECONDS
    while not stop.is_set():
        error = look(worker, stop, observer).error
        if error is None:
            pause = FIRST_PAUSE_SECONDS
        else:
            logger.warning("consolidation failed, next try in %.0f s: %s", pause, error)
            stop.wait(pause)
            pause = min(2 * pause, MOST_PAUSE_SECONDS)
        stop.wait(POLL_SECONDS)


def look(
    worker: Consolidator, stop: threading.Event, observer: Observer, *, at_once: bool = False
) -> Report:
    """Look into the buffer and consolidate what is due; the report tells what failed.

    Args:
        at_once: take what is sealed, due or not.
    """
    report = Report()
    try:
        worker.reader.close_abandoned()
        streams = worker.reader.streams()
        observer.looked(streams)
        spec = worker.spec
        if at_once or is_due(streams, spec.trigger_bytes, spec.trigger_seconds, time.time_ns()):
            worker.run_once(report, stop)
        else:
            worker.look_after_tables(report)
    except Exception as error:  # noqa: BLE001 - the next try may get past it, and data waits
        report.error = describe_failure(error)
        sentry.capture(error, "consolidate")
    # A table that failed in an earlier run is in trouble until it is well again.
    failing = [f"{table}: {error}" for table, error in worker.failing_tables.items()]
    observer.ended(report, report.trouble or next(iter(failing), None))
    return report
