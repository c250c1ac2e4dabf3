"""OTLP requests that are checked, and what their decoder says beside their rows."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from neve.errors import UnbalancedError
from neve.otlp.encoding import check_size
from neve.otlp.request import CheckedRequest, check
from neve.otlp.wire_scan import count_messages
from neve.signals import Signal
from neve.telemetry.decode import decode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from neve.telemetry.decode import Decoded
    from neve.telemetry.rows import DeadLetter

# Of the reasons why records were rejected, a sender is told so many.
REASONS_TOLD = 3
# Of the path of a data point.
_POINT_STEPS = 5


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
    # Those of them that are no records on the wire: metrics of a kind that this version does not
    # know, and requests that cannot be read. Each counts as one.
    unreadable: int = 0
    by_table: Counter[str] = field(default_factory=Counter)
    reasons: list[str] = field(default_factory=list)

    def add(self, signal: Signal, letter: DeadLetter, request: IncomingRequest) -> None:
        records = 1 if letter.path else max(1, request.checked.records)
        table = _table_of(signal, letter.path)
        if table is None:
            self.unreadable += records if letter.path else records - request.checked.records
        else:
            self.by_table[table] += records
        self.records += records
        if len(self.reasons) < REASONS_TOLD:
            self.reasons.append(f"{letter.path}: {letter.reason}" if letter.path else letter.reason)

    def warning(self, request: IncomingRequest) -> str:
        """Return what the sender is told; empty: nothing."""
        told = [request.checked.warning] if request.checked.warning else []
        return "; ".join(told + self.reasons)


def _table_of(signal: Signal, path: str) -> str | None:
    """Return the table that a rejected record is lacking in; None where nobody knows."""
    if signal is not Signal.METRICS:
        return signal.value if path else None
    # Such as `resource_metrics[0].scope_metrics[0].metrics[0].sum.data_points[0]`.
    steps = path.split(".")
    return f"metrics_{steps[3]}" if len(steps) == _POINT_STEPS else None


def require_balance(
    signal: Signal, request: IncomingRequest, rows: int, rejections: Rejections
) -> None:
    """Check the books of one request, before any of its rows is committed.

    Records read = rows made + records rejected, where metrics of an unknown kind and unreadable
    requests count as one on both sides. Records are counted on the wire, which costs nothing here;
    if that differs, as protobuf reads them: of a metric with two kinds the last one.

    Raises:
        UnbalancedError: the numbers differ, by a defect.
    """
    made = rows + rejections.records - rejections.unreadable
    if made == request.checked.records:
        return
    records = sum(count_messages(signal, bytes(request.checked.payload)).records)
    if made != records:
        raise UnbalancedError(
            f"a request of {signal.value} has {records} records, of which {rows} became rows and "
            f"{rejections.records} were rejected: nothing of it is committed",
            hint="this is a defect of Neve; the sender keeps its data",
        )


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
