"""What maintenance did to one table."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class MaintenanceReport:
    """What was done to one table.

    Args:
        left: what was not done, and why; the next run tries it again.
        notes: what was not done by intention.
        stored_bytes: of the table's data files, before.
        written_share: bytes that this run has written anew, against `stored_bytes`; None: the
            procedure that wrote them does not say how many.
        writes_per_row: how often a row of a telemetry table was written so far, at most: when it
            came, as an hour's, and as a day's.
        conflicts: how often another writer was first.
        error: what failed first; what was committed stays, and the other actions were carried out.
    """

    table: str
    actions: int = 0
    rewritten_files: int = 0
    new_files: int = 0
    rewritten_bytes: int = 0
    new_bytes: int = 0
    stored_bytes: int = 0
    written_share: float | None = 0.0
    writes_per_row: float | None = None
    expired_snapshots: int = 0
    deleted_rows: int = 0
    removed_orphans: int = 0
    removed_bytes: int = 0
    conflicts: int = 0
    seconds: float = 0.0
    left: list[str] = field(default_factory=list)
    notes: tuple[str, ...] = ()
    error: str | None = None

    def say_share(self) -> None:
        """Set how much was written anew, once all is done."""
        if self.rewritten_files and not self.new_bytes:
            self.written_share = None
        elif self.stored_bytes:
            self.written_share = round(self.new_bytes / self.stored_bytes, 3)

    @property
    def failed(self) -> bool:
        return self.error is not None
