"""Signals. SIGTERM and Ctrl-C: the first asks, the second, or time, ends it. SIGHUP: read again."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from neve.service.log import say_stopping

logger = logging.getLogger(__name__)

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
# What a shell reports for a process that a signal ended.
EXIT_BY_SIGNAL = 128
# Within these, what is in progress has to end once it was asked to. Less than the 120 s that
# docs/running.md tells systemd to wait.
STOP_SECONDS = 100.0


@contextmanager
def stopping_on_signals(stop_seconds: float = STOP_SECONDS) -> Iterator[threading.Event]:
    """Yield an event that the first signal sets; the second ends the process at once.

    So does time, if the block has not ended `stop_seconds` after the first signal. At once means
    without finishing anything, which is safe: whatever was cut is done again. The first signal is
    answered with a line in the log.
    """
    stop, ended = threading.Event(), threading.Event()

    def end_late(number: int) -> None:
        say_stopping()
        if not ended.wait(stop_seconds):
            logger.error("not ended %g s after the signal: giving up", stop_seconds)
            os._exit(EXIT_BY_SIGNAL + number)

    def handle(number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            os._exit(EXIT_BY_SIGNAL + number)
        stop.set()
        threading.Thread(target=end_late, args=(number,), name="neve-stop", daemon=True).start()

    before = {number: signal.signal(number, handle) for number in STOP_SIGNALS}
    try:
        yield stop
    finally:
        ended.set()
        for number, handler in before.items():
            signal.signal(number, handler)


def answer_signals() -> Callable[[int], None]:
    """Return what says that a receiver stops at the first signal, and ends at once at the second.

    At once is safe: what was acknowledged is durable.
    """
    signals: list[int] = []

    def answer(number: int) -> None:
        if signals:
            os._exit(EXIT_BY_SIGNAL + number)
        signals.append(number)
        say_stopping()

    return answer


@contextmanager
def reloading_on_hangup(reload: Callable[[], None]) -> Iterator[None]:
    """Call `reload` on SIGHUP, which would otherwise end the process."""
    before = signal.signal(signal.SIGHUP, lambda _number, _frame: reload())
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)
