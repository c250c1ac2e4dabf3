"""A staged snapshot as a value; apart from those that stage, so that listing loads no PyIceberg."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

# In the summary of a snapshot: the counts of what it was made of, as JSON.
COUNTS = "neve.counts"


@dataclass(frozen=True)
class StagedSnapshot:
    """A snapshot that only a ref of ours names."""

    snapshot_id: int
    parent_id: int | None
    sequence_number: int
    ref: str
    summary: Mapping[str, str]
    timestamp_ms: int

    @classmethod
    def of(cls, ref: str, snapshot: Mapping[str, Any]) -> StagedSnapshot:
        """Describe a snapshot as metadata documents have it."""
        summary = dict(snapshot.get("summary") or {})
        summary.pop("operation", None)
        return cls(
            snapshot["snapshot-id"],
            snapshot.get("parent-snapshot-id"),
            snapshot.get("sequence-number") or 0,
            ref,
            MappingProxyType(summary),
            snapshot["timestamp-ms"],
        )
