"""What upkeep removes, and when."""

from __future__ import annotations

from dataclasses import dataclass

from neve.buffer.spec import BufferSpec, buffer_spec
from neve.config import Settings
from neve.upkeep.retention import WORTH_A_COMMIT


@dataclass(frozen=True)
class UpkeepSpec:
    """The upkeep of the tables that consolidation writes."""

    buffer: BufferSpec
    namespace: str = "otel"
    # For fewer snapshots nothing is done: each expiry is a commit.
    expire_at_once: int = WORTH_A_COMMIT
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
    )
