"""The loop around every commit: try on fresh metadata, look after a lost answer, give up in time.

An attempt raises `ConflictError` when the catalog refused it and nothing was applied, and
`UnknownOutcomeError` when the answer was lost: then the table is read again, and only what stands
there decides. Nothing is ever cleaned up after an unknown outcome.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from neve.errors import ConflictError, NeveError, UnknownOutcomeError

if TYPE_CHECKING:
    import threading

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True)
class RetryPolicy:
    """How often and how long to try; the pause doubles and is jittered, so that rivals part."""

    attempts: int = 12
    first_seconds: float = 0.05
    most_seconds: float = 5.0
    sleep: Callable[[float], None] = time.sleep

    def wait(self, attempt: int, stop: threading.Event | None = None) -> None:
        """Wait until the next attempt is due, or `stop` is set."""
        most = min(self.most_seconds, self.first_seconds * 2**attempt)
        sleep: Callable[[float], object] = self.sleep if stop is None else stop.wait
        sleep(random.uniform(most / 2, most))  # noqa: S311 - no secret


@dataclass
class CommitCounters:
    """What commits cost, for the metrics."""

    attempts: int = 0
    conflicts: int = 0
    unknown_outcomes: int = 0
    # Of each commit that came to an end, with all its attempts.
    commit_seconds: list[float] = field(default_factory=list)


def commit_until_known(
    refresh: Callable[[], None],
    attempt: Callable[[], T],
    find_applied: Callable[[], T | None],
    *,
    policy: RetryPolicy,
    counters: CommitCounters,
) -> T:
    """Repeat an attempt until it is applied, or refused for good.

    Args:
        refresh: reads the table anew; called before each attempt, and after a lost answer.
        attempt: decides on the table as it is now, and commits once.
        find_applied: returns the result of a lost attempt if the table shows that it was applied.

    Raises:
        ConflictError: other writers were first in every attempt; nothing was applied.
        UnknownOutcomeError: the last answer was lost, and the table does not show the commit yet.
        NeveError: what else `attempt` raises, at once.
    """
    started = time.monotonic()
    try:
        return _repeat(refresh, attempt, find_applied, policy, counters)
    finally:
        counters.commit_seconds.append(time.monotonic() - started)


def _repeat(
    refresh: Callable[[], None],
    attempt: Callable[[], T],
    find_applied: Callable[[], T | None],
    policy: RetryPolicy,
    counters: CommitCounters,
) -> T:
    for number in range(policy.attempts):
        read_until_available(refresh, policy)
        counters.attempts += 1
        try:
            return attempt()
        except ConflictError as error:
            counters.conflicts += 1
            logger.debug("%s", error)
            last: NeveError = error
        except UnknownOutcomeError as error:
            counters.unknown_outcomes += 1
            logger.warning("%s", error)
            read_until_available(refresh, policy)
            if (applied := find_applied()) is not None:
                return applied
            last = error
        policy.wait(number)
    raise last


def read_until_available(read: Callable[[], T], policy: RetryPolicy) -> T:
    """Repeat a read while it fails with what may pass; only the catalog knows what happened."""
    for number in range(policy.attempts - 1):
        try:
            return read()
        except NeveError as error:
            if not error.retryable:
                raise
            policy.wait(number)
    return read()
