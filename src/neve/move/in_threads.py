"""Do the same for many things at once, results in their order and few of them waiting."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

READS_AT_ONCE = 8


def in_threads(
    work: Callable[[Item], Result], items: Sequence[Item], parallel: int
) -> Iterator[Result]:
    """Yield the results in the order of the items."""
    if parallel < 2 or len(items) < 2:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(parallel, "neve-move") as threads:
        ahead: deque[Future[Result]] = deque()
        try:
            for item in items:
                ahead.append(threads.submit(work, item))
                # Results wait for those before them; only so many may.
                if len(ahead) > 4 * parallel:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            threads.shutdown(cancel_futures=True)
