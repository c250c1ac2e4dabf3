"""What became of a request: told by a writer's thread, awaited by others."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Outcome:
    """Done once the request is durable, or failed with the reason. Set once.

    As `concurrent.futures.Future`, whose lock and condition cost a tenth of a small request. Relies
    on the interpreter's lock: appending to a list and taking from it are atomic.
    """

    __slots__ = ("_callbacks", "_error", "_is_done")

    def __init__(self) -> None:
        self._is_done = False
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Outcome], None]] = []

    def done(self) -> bool:
        """Say whether it is known."""
        return self._is_done

    def exception(self) -> BaseException | None:
        """Return why the request is not stored; None when it is, or while it is not known."""
        return self._error

    def result(self, timeout_seconds: float) -> None:
        """Wait until the request is durable.

        Raises:
            TimeoutError: it is not known in time.
            UnavailableError: it is not stored.
        """
        known = threading.Event()
        self.add_done_callback(lambda _: known.set())
        if not known.wait(timeout_seconds):
            raise TimeoutError
        if self._error is not None:
            raise self._error

    def add_done_callback(self, callback: Callable[[Outcome], None]) -> None:
        """Call something once it is known: at once, or on the thread that tells it."""
        self._callbacks.append(callback)
        if self._is_done:
            self._call_back()

    def set_result(self) -> None:
        """The request is durable."""
        self._is_done = True
        self._call_back()

    def set_exception(self, error: BaseException) -> None:
        """The request is not stored."""
        self._error = error
        self._is_done = True
        self._call_back()

    def _call_back(self) -> None:
        while self._callbacks:
            try:
                callback = self._callbacks.pop()
            except IndexError:
                return  # another thread was faster
            callback(self)
