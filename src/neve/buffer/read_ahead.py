"""Several requests to a store at once: each takes milliseconds, however little it does."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from concurrent.futures import Future

READS_AT_ONCE = 16
# Of what was read and not yet asked for: enough to keep small reads coming, and little beside what
# a task has anyway. A larger one is read when it is asked for.
AHEAD_BYTES = 16 * 1024 * 1024

Item = TypeVar("Item")
Read = TypeVar("Read")


def read_ahead(
    items: Iterable[Item],
    read: Callable[[Item], Read],
    size_of: Callable[[Item], int],
    most_bytes: int = AHEAD_BYTES,
) -> Iterator[tuple[Item, Future[Read]]]:
    """Yield each item, in order, and what is read of it; its result may raise what `read` does.

    Args:
        size_of: how many bytes a read takes at most.
        most_bytes: what may be read ahead, beside the item that was yielded last.
    """
    waiting = deque(items)
    ahead: deque[tuple[Item, Future[Read]]] = deque()
    ahead_bytes = 0
    pool = ThreadPoolExecutor(READS_AT_ONCE)
    try:
        while waiting or ahead:
            if not ahead:
                ahead.append((waiting[0], pool.submit(read, waiting[0])))
                ahead_bytes += size_of(waiting.popleft())
            current = ahead.popleft()
            ahead_bytes -= size_of(current[0])
            while (
                waiting
                and len(ahead) < READS_AT_ONCE - 1
                and ahead_bytes + size_of(waiting[0]) <= most_bytes
            ):
                ahead.append((waiting[0], pool.submit(read, waiting[0])))
                ahead_bytes += size_of(waiting.popleft())
            yield current
            del current
    finally:
        pool.shutdown(cancel_futures=True)


def at_once(act: Callable[[Item], object], items: Collection[Item]) -> None:
    """Act on some items at the same time; raises what one of them raises, when all have ended."""
    with ThreadPoolExecutor(min(READS_AT_ONCE, len(items)) or 1) as pool:
        list(pool.map(act, items))
