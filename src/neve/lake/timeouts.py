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
        remaining = _remaining.get()
        if remaining is None:
            return self
        left = max(remaining(), _LEAST_SECONDS)
        return Timeouts(min(self.connect_seconds, left), min(self.answer_seconds, left))


@contextmanager
def bounded_by(remaining_seconds: Callable[[], float]) -> Iterator[None]:
    """Let no request to a REST catalog that this thread sends in the block outlast a given time.

    For callers that are stopped at a fixed moment, whatever they wait for: AWS Lambda.
    """
    token = _remaining.set(remaining_seconds)
    try:
        yield
    finally:
        _remaining.reset(token)
