"""Where rows go: the port that a table of a catalog and a directory of plain Parquet share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from neve.direct.deadline import Deadline
    from neve.direct.results import TableResult


class Sink(Protocol):
    """Keeps rows of telemetry tables. May be called by several threads."""

    def write(self, table: str, rows: pa.Table, deadline: Deadline) -> TableResult:
        """Write rows and have readers see them, all or none.

        Args:
            table: one of the telemetry tables, such as `logs`.
            rows: with that table's columns; those it lacks are NULL.

        Returns:
            What became of them. A catalog that stays away is no exception here.

        Raises:
            NeveError: nothing was written that anybody will see.
        """

    def close(self) -> None:
        """Let go of connections."""
