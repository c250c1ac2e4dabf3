"""Several mirrors at a time, each on a thread of its own.

What they share is made for it: the lake opens catalogs and Spark once, PyIceberg's catalogs take a
database connection or a request for each call, and each turn has a Spark session of its own.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def side_by_side(
    items: Sequence[Item], at_once: int, work: Callable[[Item], Result]
) -> list[Result]:
    """Return what work makes of each item, in their order; so many are worked on at a time.

    Begun in their order. If one raises, no further one is begun, and the first exception is raised
    once those that were begun have ended; after Ctrl-C at once, since the threads end with the
    process.
    """
    if at_once <= 1 or len(items) <= 1:
        return [work(item) for item in items]
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in range(len(items)):
        waiting.put(number)
    results: dict[int, Result] = {}
    failures: list[BaseException] = []

    def run() -> None:
        while not failures:
            try:
                number = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                results[number] = work(items[number])
            except BaseException as error:  # noqa: BLE001 - raised by the thread that waits
                failures.append(error)

    threads = [
        # In a copy of this thread's context, so that spans belong to the one it is in.
        threading.Thread(target=copy_context().run, args=(run,), daemon=True, name=f"merge-{each}")
        for each in range(min(at_once, len(items)))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return [results[number] for number in range(len(items))]
