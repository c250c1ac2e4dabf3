"""How long a catalog may take, and less where a caller has less time than that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

# A time-out of zero means for ever to some libraries, and an error to others.
_LEAST_SECONDS = 0.05

_remaining: ContextVar[Callable[[], float] | None] = ContextVar("neve-time-left", default=None)


@dataclass(frozen=True)
class Timeouts:
    """How long a server may take: to accept a connection, and to answer."""

    connect_seconds: float
    answer_seconds: float

    def now(self) -> Timeouts:
        """Return these, cut to the time that `bounded_by` leaves."""
        return Timeouts(seconds_left(self.connect_seconds), seconds_left(self.answer_seconds))


def seconds_left(most: float) -> float:
    """Return the time that `bounded_by` leaves, and at most so much; never zero."""
    remaining = _remaining.get()
    return most if remaining is None else min(most, max(remaining(), _LEAST_SECONDS))


def is_time_over() -> bool:
    """Tell whether `bounded_by` leaves no time to try again."""
    remaining = _remaining.get()
    return remaining is not None and remaining() <= 0


@contextmanager
def bounded_by(remaining_seconds: Callable[[], float]) -> Iterator[None]:
    """Let nothing that this thread asks of a catalog in the block outlast a given time.

    For callers that have a deadline, whatever they wait for: requests to REST catalogs, answers of
    PostgreSQL, locks of SQLite, and the repetition of requests to stores.
    """
    outer = _remaining.get()
    bound = remaining_seconds
    if outer is not None:
        bound = lambda: min(outer(), remaining_seconds())  # noqa: E731
    token = _remaining.set(bound)
    try:
        yield
    finally:
        _remaining.reset(token)
