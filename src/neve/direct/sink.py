"""Where rows go: the port that a table of a catalog and a directory of plain Parquet share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from neve.direct.deadline import Deadline
    from neve.direct.results import TableResult
    from neve.errors import NeveError


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

    def commit(self, deadline: Deadline) -> TableResult:
        """Have readers see all rows that were written, or none.

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
