"""What maintenance did to one table."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class MaintenanceReport:
    """What was done to one table.

    Args:
        left: what was not done, and why; the next run tries it again.
        notes: what was not done by intention.
        conflicts: how often another writer was first.
        error: what failed first; what was committed stays, and the other actions were carried out.
    """

    table: str
    actions: int = 0
    rewritten_files: int = 0
    new_files: int = 0
    rewritten_bytes: int = 0
    new_bytes: int = 0
    expired_snapshots: int = 0
    deleted_rows: int = 0
    removed_orphans: int = 0
    removed_bytes: int = 0
    conflicts: int = 0
    seconds: float = 0.0
    left: list[str] = field(default_factory=list)
    notes: tuple[str, ...] = ()
    error: str | None = None

    @property
    def failed(self) -> bool:
        return self.error is not None
