"""Many requests, one commit: for processes that live long and get many small requests.

At least once, as `Writer`. A request is answered when its own rows are kept, and not before.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from neve.direct.results import RequestResult
from neve.direct.writer import Writer, signal_of
from neve.errors import UnavailableError
from neve.limits import KIB
from neve.observe.commits import CommitObserver, ignore_commits

if TYPE_CHECKING:
    from typing_extensions import Self

    from neve.config import Settings
    from neve.direct.request_rows import IncomingRequest
    from neve.direct.spec import DirectSpec
    from neve.signals import Signal

logger = logging.getLogger(__name__)

# What a waiting request takes beside its bytes, about.
_OVERHEAD_BYTES = KIB
# A batch is gathered while another is written: so many batches are held before requests are
# refused.
_BATCHES_HELD = 2


@dataclass(frozen=True)
class _Waiting:
    """A request that waits for its batch."""

    request: IncomingRequest
    arrived: float
    result: Future[RequestResult] = field(default_factory=Future)

    @property
    def bytes(self) -> int:
        return len(self.request.checked.payload)

    @property
    def held_bytes(self) -> int:
        return self.bytes + _OVERHEAD_BYTES

    @property
    def rows(self) -> int:
        return self.request.checked.records


class BatchingWriter:
    """Gathers requests and writes many by one commit. May be called by several threads.

    A batch is written when it has `direct.max_rows` or `direct.max_bytes`, or its first request
    waited for `direct.max_seconds`.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._lock = threading.Lock()
        self._queues: dict[Signal, _Queue] = {}
        self._is_closed = False

    @classmethod
    def open(cls, settings: Settings, *, observer: CommitObserver = ignore_commits) -> Self:
        """Connect as `Writer.open` does."""
        return cls(Writer.open(settings, observer=observer))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(
        self, signal: Signal | str, body: bytes, *, json: bool = False, sender: str = ""
    ) -> Future[RequestResult]:
        """Take a request into the next batch of its signal.

        Args:
            body: without compression.
            sender: the name of who sent it, for the column `sender`.

        Returns:
            The result, once the request is written; see its `is_kept`. A NeveError, if it cannot
            be stored as it is, or as the tables are.

        Raises:
            MalformedError, TooLargeError: nothing of the request is stored.
            UnavailableError: too many requests wait, or the writer is closed.
        """
        chosen = signal_of(signal)
        request = self._writer.check(chosen, body, json=json, sender=sender)
        return self._queue(chosen).put(_Waiting(request, time.monotonic()))

    def write_request(
        self, signal: Signal | str, body: bytes, *, json: bool = False, sender: str = ""
    ) -> RequestResult:
        """Submit a request and wait for its result."""
        return self.submit(signal, body, json=json, sender=sender).result()

    def close(self) -> None:
        """Write what waits, then let go of connections. Idempotent."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        for queue in self._queues.values():
            queue.close()
        self._writer.close()

    def _queue(self, signal: Signal) -> _Queue:
        with self._lock:
            if self._is_closed:
                raise _closed()
            if signal not in self._queues:
                self._queues[signal] = _Queue(self._writer, signal)
            return self._queues[signal]


class _Queue:
    """The requests of one signal, and the thread that writes them."""

    def __init__(self, writer: Writer, signal: Signal) -> None:
        self._writer = writer
        self._signal = signal
        self._changed = threading.Condition()
        self._waiting: deque[_Waiting] = deque()
        self._waiting_rows = 0
        self._waiting_bytes = 0
        # Of those that wait, and of those that are being written.
        self._held_bytes = 0
        self._is_closed = False
        # A daemon: a process that forgets to close must be able to end.
        name = f"neve-direct-{signal.value}"
        self._thread = threading.Thread(target=self._write_batches, name=name, daemon=True)
        self._thread.start()

    @property
    def _spec(self) -> DirectSpec:
        return self._writer.spec

    def put(self, waiting: _Waiting) -> Future[RequestResult]:
        with self._changed:
            if self._is_closed:
                raise _closed()
            most = _BATCHES_HELD * self._spec.max_bytes
            if self._held_bytes and self._held_bytes + waiting.held_bytes > most:
                raise UnavailableError(
                    f"{self._held_bytes} bytes of {self._signal.value} wait to be written already",
                    hint="send less, or raise direct.max_bytes",
                    retry_after_seconds=self._spec.max_seconds,
                )
            self._waiting.append(waiting)
            self._held_bytes += waiting.held_bytes
            self._waiting_rows += waiting.rows
            self._waiting_bytes += waiting.bytes
            self._changed.notify()
        return waiting.result

    def close(self) -> None:
        """Write what waits; no more is taken."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    def _write_batches(self) -> None:
        while batch := self._next_batch():
            # From now on it cannot be cancelled.
            chosen = [each for each in batch if each.result.set_running_or_notify_cancel()]
            if chosen:
                self._write(chosen)
            with self._changed:
                self._held_bytes -= sum(each.held_bytes for each in batch)

    def _next_batch(self) -> list[_Waiting]:
        """Wait for a batch and take it; an empty one: the queue is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closed)
            if self._waiting:
                due = self._waiting[0].arrived + self._spec.max_seconds
                self._changed.wait_for(
                    lambda: self._is_full or self._is_closed, max(0.0, due - time.monotonic())
                )
            batch: list[_Waiting] = []
            rows = size = 0
            while self._waiting:
                first = self._waiting[0]
                rows, size = rows + first.rows, size + first.bytes
                if batch and (rows > self._spec.max_rows or size > self._spec.max_bytes):
                    break
                batch.append(self._waiting.popleft())
            self._waiting_rows -= sum(each.rows for each in batch)
            self._waiting_bytes -= sum(each.bytes for each in batch)
        return batch

    @property
    def _is_full(self) -> bool:
        spec = self._spec
        return self._waiting_rows >= spec.max_rows or self._waiting_bytes >= spec.max_bytes

    def _write(self, batch: list[_Waiting]) -> None:
        logger.debug("%s: writing %d requests together", self._signal.value, len(batch))
        requests = [each.request for each in batch]
        try:
            outcomes = self._writer.write_requests(self._signal, requests)
        except Exception as error:  # noqa: BLE001 - each caller gets it, and the thread goes on
            outcomes = (error,) * len(batch)
        for each, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, RequestResult):
                each.result.set_result(outcome)
            else:
                each.result.set_exception(outcome)


def _closed() -> UnavailableError:
    return UnavailableError("the writer is closed")
