"""What HTTP and gRPC have in common: a body comes in, and is durable when the answer goes out."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

from neve import failpoints
from neve.buffer.payload import Codec, Request, pack
from neve.errors import NeveError
from neve.limits import INLINE_BYTES, INLINE_JSON_BYTES
from neve.otlp import answer
from neve.otlp.encoding import check_size, codec_name, size_limit, unpack_small, unpack_steps
from neve.otlp.request import check
from neve.receive.acknowledgements import Acknowledgements
from neve.receive.budget import Budget
from neve.receive.counters import Counters
from neve.receive.senders import Senders
from neve.signals import Signal

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from neve.buffer.writer import Receipt
    from neve.observe.durations import DurationHistogram
    from neve.receive.budget import Share
    from neve.receive.senders import Sender
    from neve.receive.spec import ReceiveSpec


CODECS = MappingProxyType({"gzip": Codec.GZIP, "zstd": Codec.ZSTD})


class Sink(Protocol):
    """Where requests go: `neve.buffer.buffer.Buffer`."""

    def check_room(self, size: int, signal: str) -> None:
        """Refuse what `append` would refuse, at the cost of a few comparisons.

        Raises:
            UnavailableError: a request of `size` stored bytes cannot be taken now.
        """

    def append(self, signal: str, request: Request) -> Receipt:
        """Queue a request. Raises UnavailableError."""

    @property
    def trouble(self) -> NeveError | None:
        """Why requests are refused; None when all is well."""

    @property
    def is_alive(self) -> bool:
        """Whether requests can ever be stored again without a new process."""

    @property
    def used_bytes(self) -> int:
        """About how much is buffered."""

    @property
    def fsyncs(self) -> Mapping[str, DurationHistogram]:
        """How long it took to make groups of requests durable, by signal."""

    @property
    def forgotten(self) -> Mapping[str, int]:
        """How many requests the dedup window had no room for, by signal."""

    def close(self, timeout_seconds: float) -> bool:
        """Commit what was taken, and say whether that was done in time."""


@dataclass(frozen=True, slots=True)
class Export:
    """What the headers of a request say."""

    signal: Signal
    sender: Sender
    is_json: bool = False
    # gzip or zstd; None for no compression.
    codec: str | None = None


class RequestHandler:
    """Checks requests and appends them to the buffer. Of the event loop's thread."""

    def __init__(self, spec: ReceiveSpec, sink: Sink) -> None:
        self.spec = spec
        self.sink = sink
        self.senders = Senders(spec.tokens)
        self.budget = Budget(spec.max_in_flight_bytes)
        self.counters = Counters()
        self.closing = False
        self._acknowledgements = Acknowledgements(spec.ack_timeout_seconds)
        # One thread: no more than one large request is unpacked at any moment.
        self._large = ThreadPoolExecutor(1, "receive-large")

    def admit(
        self, signal: Signal, authorization: str | None, *, encoding: str, is_json: bool
    ) -> Export:
        """Decide by the headers alone whether a request may be sent.

        Raises:
            NeveError: it would be refused in any case.
        """
        sender = self.senders.identify(authorization)
        codec = codec_name(encoding)
        self.sink.check_room(0, signal.value)
        return Export(signal, sender, is_json, codec)

    async def take(self, export: Export, body: bytes, share: Share) -> Message:
        """Store a request, and return the answer to it.

        Durable on return, exactly once within the time that duplicates are remembered.

        Args:
            share: holds the bytes of the body already, and holds what is unpacked meanwhile.

        Raises:
            NeveError: nothing was acknowledged; its code says what the sender should do.
        """
        arrived = time.perf_counter()
        self.senders.charge(export.sender, len(body))
        # Before anything is unpacked: under overload, a refusal must cost little.
        self.sink.check_room(len(body), export.signal.value)
        storable = await self._check(export, body, share)
        # An empty request is a success (OTLP specification), and there is nothing of it to keep.
        # Metrics of a kind that is not known have no records that could be counted.
        has_unknown_metrics = export.signal is Signal.METRICS and storable.unknown_fields
        if storable.request.records or has_unknown_metrics:
            await self._store(export, storable.request)
            self.counters.acknowledge(time.perf_counter() - arrived)
        signal = export.signal
        self.counters.repair(signal.value, storable.invalid_texts, storable.unknown_fields)
        return answer.success(signal, reason=storable.warning)

    async def _check(self, export: Export, body: bytes, share: Share) -> _Storable:
        """Unpack and check a body: a small one here, a large one on the thread."""
        inline_bytes = INLINE_JSON_BYTES if export.is_json else INLINE_BYTES
        limit = size_limit(self.spec.max_request_bytes, json=export.is_json)
        if export.codec is None:
            check_size(len(body), limit)
            raw = body if len(body) <= inline_bytes else None
        else:
            raw = unpack_small(body, export.codec, min(inline_bytes, limit))
        if raw is not None:
            share.grow_to(len(body) + len(raw))
            return _check_request(export, body, raw, share)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._large, _check_large_request, export, body, limit, share
        )

    async def _store(self, export: Export, request: Request) -> None:
        failpoints.reach("receive.checked")
        receipt = self.sink.append(export.signal.value, request)
        await self._acknowledgements.wait_for(receipt.durable)
        failpoints.reach("receive.durable")
        signal, sender = export.signal.value, export.sender.name
        if receipt.duplicate:
            self.counters.drop_duplicate(signal, sender, request.records)
        else:
            self.counters.accept(signal, sender, request.records, request.raw_bytes)

    @property
    def trouble(self) -> str | None:
        """Why no request is taken now; None when all is well.

        The kind of error and its hint. Not its message, which names paths and addresses: senders
        may ask, too, and those are for the log.
        """
        if self.closing:
            return "shutting down"
        trouble = self.sink.trouble
        if trouble is None:
            return None
        return f"buffer: {trouble.code.value}" + (f" ({trouble.hint})" if trouble.hint else "")

    @property
    def defect(self) -> str | None:
        """Why nothing but a new process helps; None when this one goes on."""
        return None if self.sink.is_alive else "the buffer's writer is dead"

    def refuse(self, error: NeveError) -> None:
        """Count a request that gets an error for an answer."""
        self.counters.refuse(error.code.value)

    def close(self) -> None:
        """Let go of the thread for large bodies."""
        self._large.shutdown(wait=False)


class _Storable(NamedTuple):
    """A request to be stored, and what is to be told of it."""

    request: Request
    invalid_texts: int
    unknown_fields: int
    warning: str


def _check_large_request(export: Export, body: bytes, limit: int, share: Share) -> _Storable:
    """Unpack and check a body of any size; what is unpacked is charged to the share."""
    if export.codec is None:
        return _check_request(export, body, body, share)
    steps: list[bytes] = []
    size = len(body)
    for step in unpack_steps(body, export.codec, limit):
        size += len(step)
        share.grow_to(size)
        steps.append(step)
    raw = b"".join(steps)
    steps.clear()
    return _check_request(export, body, raw, share)


def _check_request(export: Export, body: bytes, raw: bytes, share: Share) -> _Storable:
    """Check a body as far as it takes to know that it can be kept. Raises NeveError."""
    checked = check(export.signal, raw, json=export.is_json)
    if export.codec is None or checked.payload is not raw:
        payload, codec = pack(checked.payload)
    else:
        # The sender's own compression: doing it again would cost more than all the rest.
        payload, codec = body, CODECS[export.codec]
    request = Request(
        payload=payload,
        codec=codec,
        raw_bytes=len(checked.payload),
        records=checked.records,
        received_unix_nano=time.time_ns(),
        sender=export.sender.id,
        sender_name=export.sender.name,
        content_hash=hashlib.sha256(raw).digest(),
    )
    share.shrink_to(len(payload))
    return _Storable(request, checked.invalid_texts, checked.unknown_fields, checked.warning)
