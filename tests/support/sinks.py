"""A buffer that is a list, to try the receiver without one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.buffer.outcome import Outcome
from neve.buffer.payload import Request, unpack
from neve.buffer.writer import Receipt
from neve.errors import UnavailableError

if TYPE_CHECKING:
    from neve.errors import NeveError
    from neve.observe.durations import DurationHistogram


class ListSink:
    """Keeps requests in memory; fails, or answers later, when told to."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, Request]] = []
        self.error: Exception | None = None
        self.answers_at_once = True
        self.duplicate = False
        self.is_alive = True
        self.trouble: NeveError | None = None
        self.used_bytes = 0
        self.fsyncs: dict[str, DurationHistogram] = {}
        self.forgotten: dict[str, int] = {}

    def check_room(self, size: int, signal: str) -> None:
        if isinstance(self.error, UnavailableError):
            raise self.error

    def append(self, signal: str, request: Request) -> Receipt:
        if self.error is not None:
            raise self.error
        self.requests.append((signal, request))
        durable = Outcome()
        if self.answers_at_once:
            durable.set_result()
        return Receipt(durable, duplicate=self.duplicate)

    @property
    def payloads(self) -> list[bytes]:
        return [unpack(r.payload, r.codec, r.raw_bytes) for _, r in self.requests]
