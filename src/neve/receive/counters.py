"""What the receiver did, for whoever exposes it.

Plain numbers, since they change with every request; they are read when somebody asks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from neve.observe.durations import DurationHistogram

# The sender's name where tokens have no names.
UNNAMED_SENDER = ""

# The counters that have a signal and a sender, by the field of `Received` that holds them.
_RECEIVED = MappingProxyType(
    {
        "accepted_requests": "requests",
        "accepted_records": "records",
        "accepted_bytes": "bytes",
        "duplicate_requests": "duplicate_requests",
        "duplicate_records": "duplicate_records",
    }
)


@dataclass(slots=True)
class Received:
    """What one sender sent of one signal."""

    requests: int = 0
    records: int = 0
    # Decompressed.
    bytes: int = 0
    duplicate_requests: int = 0
    duplicate_records: int = 0


@dataclass(slots=True)
class Counters:
    """Counts since the start. Changed by the event loop's thread only."""

    # By signal and the sender's name.
    received: dict[tuple[str, str], Received] = field(default_factory=dict)
    # By reason: an error's code, or a word of the protocol's own.
    refused_requests: Counter[str] = field(default_factory=Counter)
    # Texts that were not UTF-8 and fields with content that this version does not know, by signal.
    invalid_texts: Counter[str] = field(default_factory=Counter)
    unknown_fields: Counter[str] = field(default_factory=Counter)
    # Open now, by protocol: http, grpc.
    connections: Counter[str] = field(default_factory=Counter)
    # From a request's last byte to the answer that it is kept.
    acknowledgements: DurationHistogram = field(default_factory=DurationHistogram)

    def accept(self, signal: str, sender: str, records: int, size: int) -> None:
        """Count a request that was stored; `size` is that of the decompressed body."""
        received = self._of(signal, sender)
        received.requests += 1
        received.records += records
        received.bytes += size

    def drop_duplicate(self, signal: str, sender: str, records: int) -> None:
        """Count a request that was stored before."""
        received = self._of(signal, sender)
        received.duplicate_requests += 1
        received.duplicate_records += records

    def acknowledge(self, seconds: float) -> None:
        """Count the time from a request's last byte to its answer."""
        self.acknowledgements.observe(seconds)

    def refuse(self, reason: str) -> None:
        """Count a request that got an error for an answer, whichever layer gave it."""
        self.refused_requests[reason] += 1

    def repair(self, signal: str, invalid_texts: int, unknown_fields: int) -> None:
        """Count what a stored request had that could not be stored as it was."""
        if invalid_texts:
            self.invalid_texts[signal] += invalid_texts
        if unknown_fields:
            self.unknown_fields[signal] += unknown_fields

    def connect(self, protocol: str) -> None:
        """Count a connection that was opened."""
        self.connections[protocol] += 1

    def disconnect(self, protocol: str) -> None:
        """Count a connection that was closed."""
        self.connections[protocol] -= 1

    def totals(self) -> dict[str, Mapping[tuple[str, ...], int]]:
        """Return what only ever grows, by name and label values. Callable from any thread."""
        received = list(self.received.items())
        totals: dict[str, Mapping[tuple[str, ...], int]] = {
            name: {labels: getattr(counts, attribute) for labels, counts in received}
            for name, attribute in _RECEIVED.items()
        }
        for name in ("refused_requests", "invalid_texts", "unknown_fields"):
            totals[name] = {(label,): count for label, count in dict(getattr(self, name)).items()}
        return totals

    def _of(self, signal: str, sender: str) -> Received:
        received = self.received.get((signal, sender))
        if received is None:
            received = self.received[signal, sender] = Received()
        return received
