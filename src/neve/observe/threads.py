"""A thread that ends by an exception ends its service, which would live on without that part."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from neve.errors import InternalError
from neve.observe import sentry

logger = logging.getLogger(__name__)

PART = "thread"
# So the names of Neve's own threads begin. Those of agents and libraries are no part of a service.
PREFIX = "neve-"


@contextmanager
def ending_with_threads(end: Callable[[], None]) -> Iterator[None]:
    """Call `end` when a thread of Neve ends by an exception while the block runs.

    Args:
        end: asks the block to end, from any thread.

    Raises:
        InternalError: behind the block; a thread ended.
    """
    failures: list[InternalError] = []

    def fail(ended: threading.ExceptHookArgs) -> None:
        name = ended.thread.name if ended.thread else ""
        if not name.startswith(PREFIX):
            before(ended)
            return
        error = ended.exc_value or ended.exc_type()
        logger.error("the thread %s ended unexpectedly", name, exc_info=error)
        sentry.capture(error, PART)
        failures.append(unexpected_end(f"the thread {name}", error))
        end()

    before, threading.excepthook = threading.excepthook, fail
    try:
        yield
    finally:
        threading.excepthook = before
    if failures:
        raise failures[0]


def unexpected_end(what: str, error: BaseException) -> InternalError:
    """Return what a service ends with when a part of it has ended by a defect."""
    return InternalError(
        f"{what} ended unexpectedly, and the service with it: {type(error).__name__}",
        hint="the log says where; what was acknowledged is safe",
    )
