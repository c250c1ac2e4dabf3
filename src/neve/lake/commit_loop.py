"""The loop around every commit: try on fresh metadata, look after a lost answer, give up in time.

An attempt raises `ConflictError` when the catalog refused it, `UnknownOutcomeError` when the answer
was lost, and any other `NeveError` when nothing was applied (`commit_errors.py`). After the first
two the table is read again, and only what the table shows decides: a request that a proxy or a
client sent twice is refused the second time, and applied all the same. Nothing is ever cleaned up
after an unknown outcome.
"""

from __future__ import annotations

import logging
import math
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

# After these the table is read again: an attempt, or its twin, may have been applied.
_LOOKED_AFTER = (ConflictError, UnknownOutcomeError)


@dataclass(frozen=True)
class RetryPolicy:
    """How often and how long to try; the pause doubles and is jittered, so that rivals part."""

    attempts: int = 12
    first_seconds: float = 0.05
    most_seconds: float = 5.0
    # Over all attempts and reads. One request in progress is bounded by the catalog's time-outs.
    deadline_seconds: float = 120.0
    # A read that fails with what may pass is repeated this often.
    read_attempts: int = 12
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic

    def pause_seconds(self, attempt: int) -> float:
        # Where only the deadline ends the attempts, a power of their number has no float.
        most = min(self.most_seconds, self.first_seconds * 2 ** min(attempt, 64))
        return random.uniform(most / 2, most)  # noqa: S311 - no secret

    def wait(
        self, attempt: int, stop: threading.Event | None = None, most_seconds: float = math.inf
    ) -> None:
        """Wait until the next attempt is due, or `stop` is set."""
        sleep: Callable[[float], object] = self.sleep if stop is None else stop.wait
        sleep(min(self.pause_seconds(attempt), most_seconds))


@dataclass
class CommitCounters:
    """What commits cost, for the metrics."""

    attempts: int = 0
    conflicts: int = 0
    unknown_outcomes: int = 0
    # Manifests that were written, in all attempts: counted by whoever writes them.
    manifests: int = 0
    # Of each commit that came to an end, with all its attempts.
    commit_seconds: list[float] = field(default_factory=list)


def commit_until_known(
    refresh: Callable[[], None],
    attempt: Callable[[], T],
    find_applied: Callable[[], T | None],
    *,
    policy: RetryPolicy,
    counters: CommitCounters,
    stop: threading.Event | None = None,
) -> T:
    """Repeat an attempt until it is applied, or refused for good.

    Args:
        refresh: reads the table anew; called before each attempt, and before `find_applied`.
        attempt: decides on the table as it is now, and commits once.
        find_applied: returns the result of an earlier attempt if the table shows that it was
            applied; called after a conflict and after a lost answer.
        stop: once it is set, no further attempt is made.

    Raises:
        ConflictError: other writers were first in every attempt; nothing was applied.
        UnknownOutcomeError: the last answer was lost, and the table does not show the commit yet.
        NeveError: what else `attempt` raises; at once, unless it is retryable.
    """
    started = time.monotonic()
    try:
        return _repeat(refresh, attempt, find_applied, policy, counters, stop)
    finally:
        counters.commit_seconds.append(time.monotonic() - started)


def read_until_available(
    read: Callable[[], T],
    policy: RetryPolicy,
    stop: threading.Event | None = None,
    *,
    deadline: float | None = None,
) -> T:
    """Repeat a read while it fails with what may pass; only the catalog knows what happened.

    Args:
        deadline: time of the policy's clock after which no read is repeated.
    """
    if deadline is None:
        deadline = policy.clock() + policy.deadline_seconds
    for number in range(policy.read_attempts - 1):
        try:
            return read()
        except NeveError as error:
            if not error.retryable or not _wait_for_next(policy, number, deadline, stop):
                raise
    return read()


def _repeat(
    refresh: Callable[[], None],
    attempt: Callable[[], T],
    find_applied: Callable[[], T | None],
    policy: RetryPolicy,
    counters: CommitCounters,
    stop: threading.Event | None,
) -> T:
    deadline = policy.clock() + policy.deadline_seconds

    def look() -> T | None:
        refresh()
        return find_applied()

    for number in range(policy.attempts):
        read_until_available(refresh, policy, stop, deadline=deadline)
        counters.attempts += 1
        try:
            return attempt()
        except NeveError as error:
            _count(error, counters)
            if not (error.retryable or isinstance(error, _LOOKED_AFTER)):
                raise
            last = error
        if isinstance(last, _LOOKED_AFTER):
            applied = _look_after(last, look, policy, stop, deadline)
            if applied is not None:
                return applied
        if number + 1 == policy.attempts or not _wait_for_next(policy, number, deadline, stop):
            break
    if number == 0 or type(last) not in _LOOKED_AFTER:
        raise last
    message = f"{last.message} (given up after {number + 1} attempts)"
    raise type(last)(message, hint=last.hint, code=last.code, retryable=last.retryable) from last


def _look_after(
    failure: NeveError,
    look: Callable[[], T | None],
    policy: RetryPolicy,
    stop: threading.Event | None,
    deadline: float,
) -> T | None:
    """Look whether a commit was applied; where the table cannot be read, `failure` stands."""
    try:
        return read_until_available(look, policy, stop, deadline=deadline)
    except NeveError as error:
        if error.retryable:
            raise failure from error
        raise


def _count(error: NeveError, counters: CommitCounters) -> None:
    if isinstance(error, ConflictError):
        counters.conflicts += 1
        logger.debug("%s", error)
    elif isinstance(error, UnknownOutcomeError):
        counters.unknown_outcomes += 1
        logger.warning("%s", error)


def _wait_for_next(
    policy: RetryPolicy, number: int, deadline: float, stop: threading.Event | None
) -> bool:
    """Wait until the next attempt is due; False when there is to be none."""
    left = deadline - policy.clock()
    if left <= 0 or (stop is not None and stop.is_set()):
        return False
    # No pause ends behind the deadline: whoever waits for the answer may be gone by then.
    policy.wait(number, stop, left)
    return stop is None or not stop.is_set()
