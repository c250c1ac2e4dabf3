"""What HTTP and gRPC have in common: a body comes in, and is durable when the answer goes out."""

from __future__ import annotations

import asyncio
import hashlib
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Protocol

from neve import failpoints
from neve.buffer.payload import Codec, Request, pack
from neve.errors import NeveError, UnavailableError
from neve.otlp import answer
from neve.otlp.encoding import IDENTITY, decompress
from neve.otlp.request import parse
from neve.receive.budget import Budget
from neve.receive.counters import UNNAMED_SENDER, Counters
from neve.receive.senders import Senders

if TYPE_CHECKING:
    from collections.abc import Mapping

    from google.protobuf.message import Message

    from neve.buffer.writer import Receipt
    from neve.receive.senders import Sender
    from neve.observe.durations import DurationHistogram
    from neve.receive.spec import ReceiveSpec
    from neve.signals import Signal

# Larger bodies are checked beside the event loop, one at a time: others are answered meanwhile, and
# no more than one of them is unpacked at any moment.
INLINE_BYTES = 128 * 1024


class Sink(Protocol):
    """Where requests go: `neve.buffer.buffer.Buffer`."""

    def append(self, signal: str, request: Request) -> Receipt:
        """Queue a request. Raises UnavailableError."""

    @property
    def trouble(self) -> NeveError | None:
        """Why requests are refused; None when all is well."""

    @property
    def used_bytes(self) -> int:
        """About how much is buffered."""

    @property
    def fsyncs(self) -> Mapping[str, DurationHistogram]:
        """What commits waited for the disk or the store, by signal."""

    def close(self, timeout_seconds: float) -> bool:
        """Commit what was taken, and say whether that was done in time."""


class RequestHandler:
    """Checks requests, and lets them into the buffer."""

    def __init__(self, spec: ReceiveSpec, sink: Sink) -> None:
        self.spec = spec
        self.sink = sink
        self.senders = Senders(spec.tokens)
        self.budget = Budget(spec.max_in_flight_bytes)
        self.counters = Counters()
        self.closing = False
        self._large = ThreadPoolExecutor(1, "receive-large")

    async def take(
        self, signal: Signal, body: bytes, *, encoding: str, json: bool, sender: Sender
    ) -> Message:
        """Store a request, and return the answer to it.

        Durable on return, exactly once within the time that duplicates are remembered.

        Raises:
            NeveError: nothing was acknowledged; its code says what the sender should do.
        """
        self.senders.charge(sender, len(body))
        arrived = time.perf_counter()
        check = partial(
            check_request, signal, body, encoding, self.spec.max_request_bytes, json=json
        )
        if len(body) > INLINE_BYTES:
            request = await asyncio.get_running_loop().run_in_executor(self._large, check, sender)
        else:
            request = check(sender)
        # An empty request is a success (OTLP specification), and there is nothing of it to keep.
        if request.records:
            await self._store(signal, request)
            self.counters.acknowledge(time.perf_counter() - arrived)
        return answer.success(signal)

    async def _store(self, signal: Signal, request: Request) -> None:
        failpoints.reach("receive.checked")
        receipt = self.sink.append(signal.value, request)
        durable = asyncio.wrap_future(receipt.durable)
        try:
            await asyncio.wait_for(durable, self.spec.ack_timeout_seconds)
        except asyncio.TimeoutError as error:
            raise UnavailableError("the buffer did not answer in time") from error
        failpoints.reach("receive.durable")
        if receipt.duplicate:
            self.counters.drop_duplicate(signal.value, UNNAMED_SENDER, request.records)
        else:
            self.counters.accept(signal.value, UNNAMED_SENDER, request.records, request.raw_bytes)

    @property
    def trouble(self) -> str | None:
        """Why no request is taken now; None when all is well.

        Without the error's message: it names paths and addresses, which are for the log.
        """
        if self.closing:
            return "shutting down"
        trouble = self.sink.trouble
        return f"buffer: {trouble.code.value}" if trouble else None

    def refuse(self, error: NeveError) -> None:
        """Count a request that gets an error for an answer."""
        self.counters.refuse(error.code.value)

    def close(self) -> None:
        """Let go of the thread for large bodies."""
        self._large.shutdown(wait=False)


def check_request(
    signal: Signal, body: bytes, encoding: str, limit: int, sender: Sender, *, json: bool
) -> Request:
    """Unpack and decode a body as far as it takes to know that it can be kept.

    Raises:
        NeveError: it is no such request, or too large.
    """
    raw = decompress(body, encoding, limit)
    parsed = parse(signal, raw, json=json)
    name = encoding.strip().lower()
    if json or name in IDENTITY:
        payload, codec = pack(parsed.payload)
    else:
        payload, codec = body, Codec[name.upper()]
    return Request(
        payload=payload,
        codec=codec,
        raw_bytes=len(parsed.payload),
        records=parsed.records,
        received_unix_nano=time.time_ns(),
        sender=sender.id,
        sender_name=sender.name,
        content_hash=hashlib.sha256(raw).digest(),
    )
