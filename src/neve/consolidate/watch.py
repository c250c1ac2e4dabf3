"""When a consolidation is due, and the loop of a worker that waits for it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable

from neve.buffer.reader import StreamStatus
from neve.consolidate.apply import Consolidator, Report
from neve.errors import NeveError

logger = logging.getLogger(__name__)

NANOS = 1_000_000_000
POLL_SECONDS = 0.5
# After a failure: a catalog that is down for an hour is asked now and then, and nothing is lost.
FIRST_PAUSE_SECONDS = 1.0
MOST_PAUSE_SECONDS = 60.0


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


def watch(worker: Consolidator, stop: threading.Event, on_report: Callable[[Report], None]) -> None:
    """Consolidate whenever it is due, until `stop` is set; a run in progress is finished.

    A run that fails is tried again, later each time: segments wait, nothing is lost.
    """
    pause = FIRST_PAUSE_SECONDS
    while not stop.is_set():
        try:
            worker.reader.close_abandoned()
            streams = worker.reader.streams()
            spec = worker.spec
            if is_due(streams, spec.trigger_bytes, spec.trigger_seconds, time.time_ns()):
                on_report(worker.run_once())
            pause = FIRST_PAUSE_SECONDS
        except NeveError as error:
            logger.warning("consolidation failed, next try in %.0f s: %s", pause, error)
            stop.wait(pause)
            pause = min(2 * pause, MOST_PAUSE_SECONDS)
        stop.wait(POLL_SECONDS)
