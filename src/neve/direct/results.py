"""What became of rows and requests that were written directly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from neve.errors import ConflictError, NeveError, UnknownOutcomeError

if TYPE_CHECKING:
    from neve.signals import Signal


@dataclass(frozen=True)
class TableResult:
    """What became of rows for one table.

    Args:
        table: namespace and name.
        rows: those of the request, or of the call; others may be in the same files.
        bytes: of the files.
        files: the paths of the data files that were written. Where the outcome of the commit is
            unknown they are still there, and nobody may delete them.
        committed: whether readers see the rows; True also where there were none to write.
        snapshot_id: the snapshot that has them; None without a catalog, and without rows.
        recovery_record: from which `neve recover` registers the files; None: there is none.
        error: why the rows were not committed.
    """

    table: str
    rows: int
    bytes: int
    files: tuple[str, ...]
    committed: bool
    snapshot_id: int | None = None
    recovery_record: str | None = None
    error: NeveError | None = None

    @property
    def is_kept(self) -> bool:
        """Whether the rows may be acknowledged: they are in the table, or will be."""
        return self.committed or self.recovery_record is not None


@dataclass(frozen=True)
class RequestResult:
    """What became of one OTLP request.

    Args:
        tables: what became of its rows, for each table that has some.
        rejected: records that no table can hold.
        warning: what the sender is told beside success; empty: nothing.
    """

    signal: Signal
    tables: tuple[TableResult, ...]
    rejected: int = 0
    warning: str = ""

    @property
    def committed(self) -> bool:
        """Whether readers see all its rows."""
        return all(table.committed for table in self.tables)

    @property
    def is_kept(self) -> bool:
        """Whether the request may be acknowledged."""
        return all(table.is_kept for table in self.tables)

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self.tables)

    @property
    def error(self) -> NeveError | None:
        """Why it may not be acknowledged; None: it may."""
        failed = (table.error for table in self.tables if not table.is_kept)
        return next(failed, None)


def may_pass(error: NeveError) -> bool:
    """Tell whether the same rows may be committed later, or are already."""
    return error.retryable or isinstance(error, (ConflictError, UnknownOutcomeError))
