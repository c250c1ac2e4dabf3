"""Rows of a table that is partitioned or sorted in a way of its own: gathered whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.table.metadata import TableMetadata

from neve.lake.data_files import write_data_files
from neve.lake.pending_rows import PendingRows
from neve.telemetry.promote import Promotion, promote
from neve.telemetry.rows import TableRows


class WholeRows(PendingRows):
    """The rows of one table, and where they go; as `GatheredRows` in all but its memory.

    What does not fit is written, as a file for each partition: files are smaller then.
    """

    def __init__(
        self, name: str, metadata: TableMetadata, io: FileIO, promotions: Sequence[Promotion]
    ) -> None:
        super().__init__()
        self.name, self.metadata, self.io = name, metadata, io
        self.unfit_values = 0
        self._promotions = promotions

    def parts(self, rows: TableRows) -> Iterator[pa.Table]:
        """Yield what `add` takes, in parts of bounded size."""
        for part in rows.parts():
            promoted = promote(part, self._promotions)
            self.unfit_values += promoted.unfit_values
            yield promoted.rows

    def relieve(self) -> list[DataFile]:
        """Free the memory of all rows, by writing them."""
        return self.write()

    def write(self) -> list[DataFile]:
        """Write all rows as files."""
        if not self.bytes:
            return []
        rows, row_bytes = self.take()
        return write_data_files(self.metadata, self.io, rows, row_bytes=row_bytes)
