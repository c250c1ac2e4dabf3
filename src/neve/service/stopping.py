"""SIGTERM and Ctrl-C: the first asks, the second insists. SIGHUP: read secrets again."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

logger = logging.getLogger(__name__)

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
# What a shell reports for a process that a signal ended.
EXIT_BY_SIGNAL = 128


@contextmanager
def stopping_on_signals() -> Iterator[threading.Event]:
    """Yield an event that the first signal sets; the second ends the process at once.

    At once means without finishing anything, which is safe: whatever was cut is done again.
    """
    stop = threading.Event()

    def handle(number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            os._exit(EXIT_BY_SIGNAL + number)
        stop.set()

    before = {number: signal.signal(number, handle) for number in STOP_SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def on_hangup(action: Callable[[], None]) -> Iterator[None]:
    """Do something at each SIGHUP, which would end the process otherwise."""
    before = signal.signal(signal.SIGHUP, lambda _number, _frame: action())
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)
