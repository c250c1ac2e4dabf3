"""What the receiver did, for whoever exposes it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Counters:
    """Counts since the start; by signal, or by reason. Changed by the event loop's thread only."""

    accepted_requests: Counter[str] = field(default_factory=Counter)
    accepted_records: Counter[str] = field(default_factory=Counter)
    accepted_bytes: Counter[str] = field(default_factory=Counter)
    duplicate_requests: Counter[str] = field(default_factory=Counter)
    duplicate_records: Counter[str] = field(default_factory=Counter)
    refused_requests: Counter[str] = field(default_factory=Counter)
