"""Wait on the event loop for what a writer's thread says."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING

from neve.errors import UnavailableError

if TYPE_CHECKING:
    from neve.buffer.outcome import Outcome

# How much later than its time a request that waits too long may be answered.
LOOK_SECONDS = 0.5


class Acknowledgements:
    """Requests that wait until they are durable.

    A group commit tells of many requests at once: the loop is woken once for all of them, and one
    timer watches them all. With a timer and a wake-up each, that was a tenth of a small request.
    """

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        # Told by writers and not yet passed on; filled by their threads.
        self._told: deque[tuple[asyncio.Future[None], Outcome]] = deque()
        self._is_woken = False
        # In the order of their deadlines, as all have the same time.
        self._waiting: deque[tuple[float, asyncio.Future[None]]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    async def wait_for(self, outcome: Outcome) -> None:
        """Wait until a request is durable.

        Raises:
            UnavailableError: it is not stored, or that is not known in time.
        """
        if outcome.done() and outcome.exception() is None:
            return
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiting.append((loop.time() + self._timeout_seconds, waiter))
        if self._timer is None:
            self._timer = loop.call_later(LOOK_SECONDS, self._look, loop)

        def tell(outcome: Outcome) -> None:
            self._told.append((waiter, outcome))
            if not self._is_woken:
                self._is_woken = True
                # A loop that is closed has nobody waiting.
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._pass_on)

        outcome.add_done_callback(tell)
        await waiter

    def _pass_on(self) -> None:
        # Before the queue is emptied: what is told from now on wakes the loop again.
        self._is_woken = False
        while self._told:
            waiter, outcome = self._told.popleft()
            if waiter.done():
                continue
            error = outcome.exception()
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        while self._waiting and (self._waiting[0][1].done() or self._waiting[0][0] <= now):
            _, waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_exception(UnavailableError("the buffer did not answer in time"))
        self._timer = loop.call_later(LOOK_SECONDS, self._look, loop) if self._waiting else None
