"""OTLP requests that are checked, and what their decoder says beside their rows."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from neve.otlp.encoding import check_size
from neve.otlp.request import CheckedRequest, check
from neve.telemetry.decode import decode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from neve.signals import Signal
    from neve.telemetry.decode import Decoded
    from neve.telemetry.rows import DeadLetter

# Of the reasons why records were rejected, a sender is told so many.
REASONS_TOLD = 3


@dataclass(frozen=True)
class IncomingRequest:
    """A request that was checked, and can become rows."""

    checked: CheckedRequest
    sender: str
    received_unix_nano: int


@dataclass
class Rejections:
    """The records of one request that no table can hold."""

    records: int = 0
    reasons: list[str] = field(default_factory=list)

    def add(self, letter: DeadLetter, request: IncomingRequest) -> None:
        # Without a path, it is the whole request; a metric of unknown kind counts as one record.
        self.records += 1 if letter.path else max(1, request.checked.records)
        if len(self.reasons) < REASONS_TOLD:
            self.reasons.append(f"{letter.path}: {letter.reason}" if letter.path else letter.reason)

    def warning(self, request: IncomingRequest) -> str:
        """Return what the sender is told; empty: nothing."""
        told = [request.checked.warning] if request.checked.warning else []
        return "; ".join(told + self.reasons)


def check_request(
    signal: Signal, body: bytes, *, json: bool, sender: str, max_bytes: int
) -> IncomingRequest:
    """Check an uncompressed request.

    Raises:
        MalformedError, TooLargeError: it is refused as a whole.
    """
    check_size(len(body), max_bytes)
    # Texts that are not UTF-8 may triple a request, which is decoded in this process.
    checked = check(signal, body, json=json, most_repaired_bytes=max_bytes)
    return IncomingRequest(checked, sender, time.time_ns())


def decode_requests(signal: Signal, requests: Sequence[IncomingRequest]) -> Iterator[Decoded]:
    """Decode requests, part by part; memory stays bounded if each part is let go of."""
    return decode(
        signal,
        pa.array([request.checked.payload for request in requests], pa.binary()),
        pa.array([request.received_unix_nano for request in requests], pa.int64()),
        pa.array([request.sender or None for request in requests], pa.string()),
    )
