"""Where rows go: the port that a table of a catalog and a directory of plain Parquet share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from neve.errors import UnbalancedError

if TYPE_CHECKING:
    import pyarrow as pa

    from neve.direct.deadline import Deadline
    from neve.direct.results import TableResult
    from neve.errors import NeveError


@dataclass(frozen=True)
class RecordCounts:
    """The records for one table: those that were read, and those that it cannot hold."""

    read: int
    rejected: int = 0

    def require(self, table: str, rows: int) -> None:
        """Check the books of a table, before its commit: records read = rows in files + rejected.

        Raises:
            UnbalancedError: the numbers differ, by a defect; nothing may be committed.
        """
        if self.read != rows + self.rejected:
            raise UnbalancedError(
                f"{table}: {self.read} records were read, {rows} are rows in data files and "
                f"{self.rejected} were rejected: nothing is committed",
                hint="this is a defect of Neve; send the rows again",
            )


class TableWrite(Protocol):
    """Rows on their way into one table: files first, then one commit. Used by one thread."""

    @property
    def schema(self) -> pa.Schema:
        """The columns that the table takes."""

    def write(self, rows: pa.Table, deadline: Deadline) -> None:
        """Write rows as data files. May be called again, for more rows.

        Args:
            rows: with columns of the table; those they lack are NULL.

        Raises:
            NeveError: the rows are not written; `abandon` ends the write.
        """

    def commit(self, deadline: Deadline, counts: RecordCounts) -> TableResult:
        """Have readers see all rows that were written, or none.

        Args:
            counts: what was read for the table; the rows that were written must be as many.

        Returns:
            What became of them. A catalog that stays away is no exception here.

        Raises:
            NeveError: nobody will see them.
        """

    def abandon(self, error: NeveError) -> TableResult:
        """End a write without a commit; return what was written, and why it stays unseen."""


class Sink(Protocol):
    """Takes rows of telemetry tables. May be called by several threads."""

    def begin(self, table: str, deadline: Deadline) -> TableWrite:
        """Begin a write to one of the telemetry tables, such as `logs`.

        Raises:
            NeveError: the table cannot be made, or does not take the columns of this version.
        """

    def close(self) -> None:
        """Let go of connections."""
