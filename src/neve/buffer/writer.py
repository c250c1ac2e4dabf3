"""Append requests of one signal: one thread, one group commit at a time."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING

from neve.buffer.store import BufferStore, Log, LostStreamError
from neve.errors import NeveError, StorageError, UnavailableError
from neve.observe.durations import DurationHistogram

if TYPE_CHECKING:
    from collections.abc import Callable

    from neve.buffer.payload import Request
    from neve.buffer.quota import Quota
    from neve.buffer.spec import BufferSpec
    from neve.buffer.window import DedupWindow

logger = logging.getLogger(__name__)

# What senders are told; paths and addresses are for the log.
REFUSAL = "the buffer cannot store requests now"
WAKE_SECONDS = 0.5
FIRST_RETRY_SECONDS = 0.1
LAST_RETRY_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Receipt:
    """A promise: `durable` is done once the request is safe, or fails with the reason."""

    durable: Future[None]
    duplicate: bool


@dataclass(frozen=True, slots=True)
class _Waiting:
    request: Request
    durable: Future[None]


class StreamWriter:
    """The writer of one signal. `append` may be called from any thread.

    A request whose commit failed is refused and never acknowledged; until its fate is settled
    nothing else is accepted, so that a retry cannot be stored beside it.
    """

    def __init__(
        self,
        signal: str,
        store: BufferStore,
        spec: BufferSpec,
        window: DedupWindow,
        quota: Quota,
        *,
        commit_interval_seconds: float,
    ) -> None:
        self._signal = signal
        self._store = store
        self._spec = spec
        self._window = window
        self._quota = quota
        self._interval = commit_interval_seconds
        # Observed by the thread alone.
        self.fsyncs = DurationHistogram()
        self._changed = threading.Condition()
        # Under the condition's lock:
        self._queue: deque[_Waiting] = deque()
        self._queued_bytes = 0
        self._in_flight: dict[bytes, Future[None]] = {}
        self._trouble: NeveError | None = None
        self._closing = False
        # Of the thread alone:
        self._group: list[_Waiting] = []
        self._log: Log | None = None
        self._seal_due = 0.0
        self._next_commit = 0.0
        self._thread = threading.Thread(target=self._run, name=f"buffer-{signal}", daemon=True)
        self._thread.start()

    def append(self, request: Request) -> Receipt:
        """Queue a request for the next group commit.

        Raises:
            UnavailableError: it cannot be taken now; nothing of it is kept.
        """
        key = request.key
        with self._changed:
            if self._window.is_on:
                first = self._in_flight.get(key)
                if first is not None:
                    return Receipt(first, duplicate=True)
                if self._window.has(key, request.received_unix_nano):
                    return Receipt(_done(), duplicate=True)
            self._check_able(len(request.payload))
            durable: Future[None] = Future()
            # One who stops waiting must not cancel it for the others.
            durable.set_running_or_notify_cancel()
            if self._window.is_on:
                self._in_flight[key] = durable
            self._queue.append(_Waiting(request, durable))
            self._queued_bytes += len(request.payload)
            self._changed.notify()
            return Receipt(durable, duplicate=False)

    def _check_able(self, size: int) -> None:
        if self._closing:
            raise UnavailableError("the receiver is shutting down")
        if self._trouble is not None:
            raise UnavailableError(REFUSAL)
        if self._queue and self._queued_bytes + size > self._spec.max_pending_bytes:
            raise UnavailableError("too many requests wait for the buffer's disk or store")
        self._quota.claim(size)

    @property
    def trouble(self) -> NeveError | None:
        """Why nothing can be stored now; None when all is well."""
        return self._trouble

    def close(self, deadline: float) -> bool:
        """Commit what is queued, end the stream, and say whether both were done in time."""
        self.stop()
        self._thread.join(max(0.0, deadline - time.monotonic()))
        return not self._thread.is_alive() and self._trouble is None

    def stop(self) -> None:
        """Take nothing new; the thread finishes what it has."""
        with self._changed:
            self._closing = True
            self._changed.notify()

    def _run(self) -> None:
        try:
            while (group := self._take()) is not None:
                self._group = group
                if group:
                    self._commit(group)
                self._seal_when_due()
                self._quota.refresh_when_due()
            if self._log is not None:
                self._insist(self._log.close)
        except Exception as error:
            # A defect of ours: without this thread requests would wait for ever.
            logger.exception("the buffer's %s writer stopped", self._signal)
            self._give_up(StorageError(f"the buffer's {self._signal} writer stopped: {error}"))

    def _take(self) -> list[_Waiting] | None:
        """Wait for requests; return none when it is time to look around, None at the end."""
        with self._changed:
            now = time.monotonic()
            wake = now + WAKE_SECONDS
            while not self._closing and now < (self._next_commit if self._queue else wake):
                self._changed.wait((self._next_commit if self._queue else wake) - now)
                now = time.monotonic()
            if self._closing and not self._queue:
                return None
            self._next_commit = now + self._interval if self._queue else self._next_commit
            return self._pop_group()

    def _pop_group(self) -> list[_Waiting]:
        group: list[_Waiting] = []
        size = 0
        while self._queue and (not group or size < self._spec.seal_bytes):
            waiting = self._queue.popleft()
            size += len(waiting.request.payload)
            group.append(waiting)
        self._queued_bytes -= size
        return group

    def _commit(self, group: list[_Waiting]) -> None:
        try:
            self._commit_once(group)
        except LostStreamError as error:
            logger.warning("%s; beginning another stream", error.message)
            self._abandon()
            self._commit_again(group)
        except NeveError as error:
            self._fail(group, error)

    def _commit_again(self, group: list[_Waiting]) -> None:
        # It is certain that the lost stream does not hold the group.
        try:
            self._commit_once(group)
        except NeveError as error:
            self._fail(group, error)

    def _commit_once(self, group: list[_Waiting]) -> None:
        log = self._log
        if log is None:
            log = self._log = self._store.begin(self._signal)
        if not log.open_bytes:
            self._seal_due = time.monotonic() + self._spec.seal_seconds
        log.commit([waiting.request for waiting in group])
        self.fsyncs.observe(log.fsync_seconds)
        self._finish(group, stored=True)

    def _finish(self, group: list[_Waiting], *, stored: bool) -> None:
        with self._changed:
            for waiting in group:
                self._land(waiting)
                if stored:
                    self._window.add(waiting.request.key, waiting.request.received_unix_nano)
        if stored:
            for waiting in group:
                if not waiting.durable.done():
                    waiting.durable.set_result(None)

    def _land(self, waiting: _Waiting) -> None:
        # Under the lock. A retry may already be in flight under the same key: that one stays.
        if self._in_flight.get(waiting.request.key) is waiting.durable:
            del self._in_flight[waiting.request.key]

    def _fail(self, group: list[_Waiting], error: NeveError) -> None:
        """Refuse a group at once, then settle what became of it before anything else is taken."""
        logger.warning("refused %s requests: %s", len(group), error.message)
        with self._changed:
            self._trouble = error
        for waiting in group:
            waiting.durable.set_exception(UnavailableError(REFUSAL))

        def settle() -> None:
            log = self._log
            # Its keys stay in flight until now, so that a retry is refused, not stored.
            self._finish(group, stored=log is not None and log.settle())

        if self._log is None or isinstance(error, LostStreamError):
            self._abandon()
            self._finish(group, stored=False)
            self._insist(self._begin)
        else:
            self._insist(settle)
            self._finish(group, stored=False)

    def _begin(self) -> None:
        self._log = self._store.begin(self._signal)

    def _seal_when_due(self) -> None:
        log = self._log
        if log is None or not log.open_bytes:
            return
        if log.open_bytes >= self._spec.seal_bytes or time.monotonic() >= self._seal_due:
            self._insist(log.seal)

    def _insist(self, action: Callable[[], None]) -> None:
        """Repeat an action until it succeeds; in trouble meanwhile, so nothing is accepted."""
        delay = FIRST_RETRY_SECONDS
        while not self._succeeds(action):
            with self._changed:
                if self._closing:
                    # The next receiver finds the stream as a crash would have left it.
                    self._abandon()
                    return
                self._changed.wait(delay)
            delay = min(2 * delay, LAST_RETRY_SECONDS)
        with self._changed:
            if self._trouble is not None:
                logger.info("the buffer's %s stream works again", self._signal)
            self._trouble = None

    def _succeeds(self, action: Callable[[], None]) -> bool:
        try:
            action()
        except LostStreamError as error:
            logger.warning("%s; the next request begins another stream", error.message)
            self._abandon()
        except NeveError as error:
            logger.warning("the buffer's %s stream is in trouble: %s", self._signal, error.message)
            self._refuse_queue(error)
            return False
        return True

    def _refuse_queue(self, error: NeveError) -> None:
        with self._changed:
            self._trouble = error
            refused = [*self._queue]
            self._queue.clear()
            self._queued_bytes = 0
            for waiting in refused:
                self._land(waiting)
        for waiting in refused:
            waiting.durable.set_exception(UnavailableError(REFUSAL))

    def _abandon(self) -> None:
        if self._log is not None:
            self._log.abandon()
        self._log = None

    def _give_up(self, error: NeveError) -> None:
        self._refuse_queue(error)
        for waiting in self._group:
            if not waiting.durable.done():
                waiting.durable.set_exception(UnavailableError(REFUSAL))


def _done() -> Future[None]:
    durable: Future[None] = Future()
    durable.set_result(None)
    return durable
