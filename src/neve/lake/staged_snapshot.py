"""A staged snapshot as a value; apart from those that stage, so that listing loads no PyIceberg."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class StagedSnapshot:
    """A snapshot that only a ref of ours names."""

    snapshot_id: int
    parent_id: int | None
    sequence_number: int
    ref: str
    summary: Mapping[str, str]
    timestamp_ms: int
