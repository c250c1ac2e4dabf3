"""Append requests of one signal: one thread, one group commit at a time."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from neve.buffer.outcome import Outcome
from neve.buffer.restarts import RestartLimit
from neve.buffer.retire import last_keys
from neve.buffer.store import BufferStore, Log, LostStreamError
from neve.errors import NeveError, StorageError, UnavailableError
from neve.observe.durations import DurationHistogram

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from neve.buffer.payload import Request
    from neve.buffer.quota import Quota
    from neve.buffer.spec import BufferSpec
    from neve.buffer.window import DedupWindow

logger = logging.getLogger(__name__)

# What senders are told; paths and addresses are for the log.
REFUSAL = "the buffer cannot store requests now"
FIRST_RETRY_SECONDS = 0.1
LAST_RETRY_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Receipt:
    """A promise: `durable` is done once the request is safe, or fails with the reason."""

    durable: Outcome
    duplicate: bool


@dataclass(frozen=True, slots=True)
class _QueuedRequest:
    request: Request
    durable: Outcome

    @property
    def size(self) -> int:
        return len(self.request.payload)

    def refuse(self) -> None:
        """Tell the sender to try again later, unless it was told something before."""
        if not self.durable.done():
            self.durable.set_exception(UnavailableError(REFUSAL))


class StreamWriter:
    """The writer of one signal. `append` may be called from any thread.

    A request whose commit failed is refused and never acknowledged. Until it is known whether the
    stream holds it, its key stays in flight and nothing else is accepted, so that a retry cannot
    be stored beside it.

    After an unexpected error, which is a defect, the writer ends its stream as the next receiver
    would after a crash, reads back what that stream holds, and begins another one. If that happens
    too often, it stops for good: `is_alive` is then False, and the process should be restarted.
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
        self._queue: deque[_QueuedRequest] = deque()
        self._queued_bytes = 0
        self._in_flight: dict[bytes, Outcome] = {}
        self._trouble: NeveError | None = None
        self._closing = False
        # Of the thread alone:
        self._group: list[_QueuedRequest] = []
        self._log: Log | None = None
        self._seal_due = 0.0
        self._next_commit = 0.0
        self._restarts = RestartLimit()
        self._has_ended = False
        self._thread = threading.Thread(target=self._run, name=f"neve-buffer-{signal}", daemon=True)
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
            queued = _QueuedRequest(request, Outcome())
            if refusal := self.refusal(queued.size):
                raise refusal
            self._quota.claim(queued.size)
            if self._window.is_on:
                self._in_flight[key] = queued.durable
            self._queue.append(queued)
            self._queued_bytes += queued.size
            if len(self._queue) == 1:
                # The thread takes all that is queued; to wake it for each would cost more.
                self._changed.notify()
            return Receipt(queued.durable, duplicate=False)

    def refusal(self, size: int) -> UnavailableError | None:
        """Return why a request of this size would be refused now; None if it would not.

        May be called without the lock: what it reads may then be a moment old.
        """
        if self._closing:
            return UnavailableError("the receiver is shutting down")
        if self._trouble is not None or not self.is_alive:
            return UnavailableError(REFUSAL)
        if self._queue and self._queued_bytes + size > self._spec.max_pending_bytes:
            return UnavailableError("too many requests wait for the buffer's disk or store")
        return None

    @property
    def trouble(self) -> NeveError | None:
        """Why nothing can be stored now; None when all is well."""
        if self._trouble is None and not self.is_alive:
            return StorageError(f"the buffer's {self._signal} writer has stopped")
        return self._trouble

    @property
    def forgotten(self) -> int:
        """How many requests were forgotten within the dedup window, for want of room."""
        return self._window.forgotten

    @property
    def is_alive(self) -> bool:
        """Whether the writer can still store requests, or has ended because it was asked to."""
        return self._has_ended or self._thread.is_alive()

    def close(self, deadline: float) -> bool:
        """Commit what is queued, end the stream, and say whether both were done in time."""
        self.stop()
        self._thread.join(max(0.0, deadline - time.monotonic()))
        return not self._thread.is_alive() and self._has_ended and self._trouble is None

    def stop(self) -> None:
        """Take nothing new; the thread finishes what it has."""
        with self._changed:
            self._closing = True
            self._changed.notify()

    def _run(self) -> None:
        needs_recovery = False
        while True:
            try:
                if needs_recovery:
                    self._retry_until_done(self._recover)
                    needs_recovery = False
                self._write_until_closed()
            except Exception as error:
                logger.exception("the buffer's %s writer failed", self._signal)
                self._refuse_all(error)
                needs_recovery = True
                if not self._restarts.allow():
                    self._stop_for_good()
                    return
            else:
                self._has_ended = True
                return

    def _write_until_closed(self) -> None:
        while (group := self._next_group()) is not None:
            self._group = group
            if group:
                self._commit(group)
            self._seal_when_due()
        if self._log is not None:
            self._retry_until_done(self._log.close)

    def _next_group(self) -> list[_QueuedRequest] | None:
        """Wait for requests; return none when it is time to seal, None at the end."""
        with self._changed:
            while not self._closing and (wait := self._seconds_to_wait()) != 0:
                self._changed.wait(wait)
            if self._closing and not self._queue:
                return None
            if self._queue:
                self._next_commit = time.monotonic() + self._interval
            return self._pop_group()

    def _seconds_to_wait(self) -> float | None:
        """Return how long there is nothing to do; None without a limit."""
        if self._queue:
            due = self._next_commit
        elif self._log is not None and self._log.open_bytes:
            due = self._seal_due
        else:
            return None
        return max(0.0, due - time.monotonic())

    def _pop_group(self) -> list[_QueuedRequest]:
        group: list[_QueuedRequest] = []
        size = 0
        while self._queue and (not group or size < self._spec.seal_bytes):
            queued = self._queue.popleft()
            size += queued.size
            group.append(queued)
        self._queued_bytes -= size
        return group

    def _commit(self, group: list[_QueuedRequest]) -> None:
        try:
            self._append_to_log(group)
        except LostStreamError as error:
            logger.warning("%s; beginning another stream", error)
            self._abandon()
            self._commit_again(group)
        except NeveError as error:
            self._refuse_group(group, error)

    def _commit_again(self, group: list[_QueuedRequest]) -> None:
        # It is certain that the lost stream does not hold the group.
        try:
            self._append_to_log(group)
        except NeveError as error:
            self._refuse_group(group, error)

    def _append_to_log(self, group: list[_QueuedRequest]) -> None:
        log = self._log
        if log is None:
            log = self._log = self._store.begin(self._signal)
        if not log.open_bytes:
            self._seal_due = time.monotonic() + self._spec.seal_seconds
        log.commit([queued.request for queued in group])
        self.fsyncs.observe(log.fsync_seconds)
        self._remember_as_stored(group)
        for queued in group:
            if not queued.durable.done():
                queued.durable.set_result()
        self._group = []

    def _remember_as_stored(self, group: Sequence[_QueuedRequest]) -> None:
        with self._changed:
            for queued in group:
                self._forget_in_flight(queued)
                self._window.add(queued.request.key, queued.request.received_unix_nano)
        self._quota.commit(sum(queued.size for queued in group))

    def _forget_as_refused(self, group: Sequence[_QueuedRequest]) -> None:
        with self._changed:
            for queued in group:
                self._forget_in_flight(queued)
        self._quota.release(sum(queued.size for queued in group))

    def _forget_in_flight(self, queued: _QueuedRequest) -> None:
        # Under the lock. A retry may already be in flight under the same key: that one stays.
        if self._in_flight.get(queued.request.key) is queued.durable:
            del self._in_flight[queued.request.key]

    def _refuse_group(self, group: list[_QueuedRequest], error: NeveError) -> None:
        """Refuse a group at once, then find out whether it is stored before taking more."""
        logger.warning("refused %s requests: %s", len(group), error)
        with self._changed:
            self._trouble = error
        for queued in group:
            queued.refuse()

        def settle() -> None:
            # Its keys stay in flight until now, so that a retry is refused, not stored.
            if self._log is not None and self._log.settle():
                self._remember_as_stored(group)
            else:
                self._forget_as_refused(group)
            self._group = []

        if self._log is None or isinstance(error, LostStreamError):
            self._abandon()
            self._forget_as_refused(group)
            self._group = []
            self._retry_until_done(self._begin)
        else:
            self._retry_until_done(settle)
            # The stream was lost, or the receiver stops: no retry can be stored beside them.
            self._forget_as_refused(self._group)
        self._group = []

    def _begin(self) -> None:
        self._log = self._store.begin(self._signal)

    def _seal_when_due(self) -> None:
        log = self._log
        if log is None or not log.open_bytes:
            return
        if log.open_bytes >= self._spec.seal_bytes or time.monotonic() >= self._seal_due:
            self._retry_until_done(log.seal)

    def _retry_until_done(self, action: Callable[[], None]) -> None:
        """Repeat an action until it succeeds; nothing is accepted meanwhile."""
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
            logger.warning("%s; the next request begins another stream", error)
            self._abandon()
        except NeveError as error:
            logger.warning("the buffer's %s stream is in trouble: %s", self._signal, error)
            self._refuse_queue(error)
            return False
        return True

    def _refuse_queue(self, error: NeveError) -> None:
        with self._changed:
            self._trouble = error
            refused = [*self._queue]
            self._queue.clear()
            self._queued_bytes = 0
        self._forget_as_refused(refused)
        for queued in refused:
            queued.refuse()

    def _abandon(self) -> None:
        if self._log is not None:
            self._log.abandon()
        self._log = None

    def _refuse_all(self, error: Exception) -> None:
        """Refuse what is queued, and the group whose fate is unknown: its keys stay in flight."""
        text = f"the buffer's {self._signal} writer failed: {type(error).__name__}: {error}"
        self._refuse_queue(StorageError(text, retryable=True))
        for queued in self._group:
            queued.refuse()

    def _recover(self) -> None:
        """End the stream, and find out which requests of the last group it holds. Idempotent."""
        stored: set[bytes] = set()
        if self._log is not None:
            self._log.abandon()
            self._store.end_stream(self._log.stream)
            if wanted := {queued.request.key for queued in self._group}:
                stored = last_keys(self._store, self._log.stream, wanted)
        group, self._group, self._log = self._group, [], None
        self._remember_as_stored([queued for queued in group if queued.request.key in stored])
        self._forget_as_refused([queued for queued in group if queued.request.key not in stored])

    def _stop_for_good(self) -> None:
        logger.critical(
            "the buffer's %s writer failed too often and stays stopped: restart the process",
            self._signal,
        )
        # Keys of the last group stay in flight, so that no retry of them is acknowledged.
        self._abandon()


def _done() -> Outcome:
    durable = Outcome()
    durable.set_result()
    return durable
