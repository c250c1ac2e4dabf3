"""What upkeep removes, and when."""

from __future__ import annotations

from dataclasses import dataclass

from neve.buffer.spec import BufferSpec, buffer_spec
from neve.config import Settings


@dataclass(frozen=True)
class ExpiryPolicy:
    """Which snapshots of a table are kept."""

    retain_seconds: float
    # So many of each branch are kept, however old they are.
    retain_last: int
    # Nothing is done for fewer: each expiry is a commit, and a look at all files.
    expire_at_once: int = 100


@dataclass(frozen=True)
class UpkeepSpec:
    """The upkeep of the tables that consolidation writes."""

    buffer: BufferSpec
    namespace: str = "otel"
    expiry: ExpiryPolicy = ExpiryPolicy(retain_seconds=3600.0, retain_last=20)
    # Nobody travels in the ledger's time, and its writes cost what its metadata holds.
    ledger_expiry: ExpiryPolicy = ExpiryPolicy(60.0, retain_last=10, expire_at_once=20)
    # What a follower has yet to read is kept up to this age.
    follow_horizon_seconds: float = 7 * 86_400.0
    # What was staged, and can never be published, is kept for so long.
    retain_staged_seconds: float = 86_400.0
    # The ledger's data files, one for each write, are rewritten into few at this number, at most
    # so many at a time: that bounds how long it takes.
    compact_ledger_files: int = 2000
    max_files_to_rewrite: int = 20_000


def upkeep_spec(settings: Settings) -> UpkeepSpec:
    """Return the upkeep that a configuration asks for."""
    return UpkeepSpec(
        buffer=buffer_spec(settings),
        namespace=settings.telemetry.namespace,
        expiry=ExpiryPolicy(
            settings.consolidate.retain_snapshots_seconds or settings.upkeep.retain,
            settings.consolidate.retain_snapshots_min or settings.upkeep.retain_min,
        ),
        follow_horizon_seconds=settings.upkeep.follow_horizon_seconds,
    )
