"""Rows into plain Parquet without a catalog, in Hive-style partitions: `catalog.type: none`.

A file is there as a whole or not at all, under a name that no other file has. There is no commit:
rows of several days are several files, and a process that dies between two of them leaves the
first. Whoever sends the request again stores it twice, as with tables.
"""

from __future__ import annotations

import logging
from datetime import date, timedelta
from typing import TYPE_CHECKING

from pyiceberg.io.pyarrow import schema_to_pyarrow

from neve.direct.results import TableResult, may_pass
from neve.errors import ConfigError, NeveError, StorageError
from neve.lake.create import unregistered_metadata
from neve.lake.data_files import EncodedFile, encode_files, timed_file_name
from neve.lake.file_store import FileStore
from neve.lake.identifier import parse_identifier
from neve.lake.local_files import HIDDEN_PREFIX
from neve.lake.warehouse import require_usable_warehouse
from neve.publish.telemetry_tables import telemetry_table
from neve.telemetry.schemas import SCHEMAS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table.metadata import TableMetadata

    from neve.direct.deadline import Deadline
    from neve.direct.sink import RecordCounts
    from neve.direct.spec import DirectSpec
    from neve.lake.profile import CatalogProfile

logger = logging.getLogger(__name__)

PARTITION = "day"
_EPOCH = date(1970, 1, 1)


class ParquetSink:
    """Writes files of the telemetry tables' columns; `Sink` has the contract."""

    def __init__(self, profile: CatalogProfile, spec: DirectSpec) -> None:
        self._spec = spec
        self._files = FileStore(profile, temporary_prefix=HIDDEN_PREFIX)
        require_usable_warehouse(profile)
        self._warehouse = str(profile.local_warehouse or profile.warehouse).rstrip("/")
        self._metadata = {name: self._describe(name) for name in SCHEMAS}

    def begin(self, table: str, deadline: Deadline) -> ParquetWrite:
        deadline.require(f"opening {table}")
        directory = "/".join((self._warehouse, *parse_identifier(self._spec.namespace), table))
        name = f"{self._spec.namespace}.{table}"
        return ParquetWrite(self._files, name, directory, self._metadata[table])

    def close(self) -> None:
        self._files.close()

    def _describe(self, table: str) -> TableMetadata:
        wanted = telemetry_table(self._spec.namespace, table, self._spec.promotions)
        if PARTITION in wanted.schema.names:
            raise ConfigError(
                f"telemetry.promote makes a column {PARTITION}, and plain Parquet has its "
                f"partitions by {PARTITION}",
                hint="give the promoted attribute another column",
            )
        return unregistered_metadata(wanted)


class ParquetWrite:
    """A write of one table's rows; `TableWrite` has the contract.

    Encoded files wait in memory until the commit, so that nothing is seen before all is written.
    """

    def __init__(
        self, files: FileStore, table: str, directory: str, metadata: TableMetadata
    ) -> None:
        self._files = files
        self._table = table
        self._directory = directory
        self._metadata = metadata
        self._encoded: list[EncodedFile] = []

    @property
    def schema(self) -> pa.Schema:
        return schema_to_pyarrow(self._metadata.schema(), include_field_ids=False)

    def write(self, rows: pa.Table, deadline: Deadline) -> None:
        deadline.require("encoding files")
        row_bytes = rows.nbytes // max(1, len(rows))
        self._encoded += encode_files(self._metadata, rows, row_bytes=row_bytes)

    def commit(self, deadline: Deadline, counts: RecordCounts) -> TableResult:
        counts.require(self._table, sum(file.rows for file in self._encoded))
        paths: list[str] = []
        try:
            for file in self._encoded:
                deadline.require("writing a file")
                paths.append(self._store(file))
        except NeveError as error:
            logger.warning(
                "%s: %d of %d files are written: %s; files: %s",
                self._table,
                len(paths),
                len(self._encoded),
                error,
                ", ".join(paths),
            )
            if not may_pass(error):
                raise
            return self._result(paths, error)
        result = self._result(paths)
        logger.info("%s: wrote %d rows in %d files", self._table, result.rows, len(paths))
        return result

    def abandon(self, error: NeveError) -> TableResult:
        self._encoded.clear()
        return self._result([], error)

    def _store(self, file: EncodedFile) -> str:
        day = _EPOCH + timedelta(days=file.partition[0])
        path = f"{self._directory}/{PARTITION}={day.isoformat()}/{timed_file_name()}"
        content = file.content.to_pybytes()
        # False: a first attempt whose answer was lost. No other writer has this name.
        if not self._files.write_new(path, content) and self._files.size(path) != len(content):
            raise StorageError(f"another file is at {path}", retryable=True)
        logger.debug("%s: wrote %d rows to %s", self._table, file.rows, path)
        return path

    def _result(self, paths: list[str], error: NeveError | None = None) -> TableResult:
        return TableResult(
            self._table,
            rows=sum(file.rows for file in self._encoded),
            bytes=sum(file.content.size for file in self._encoded),
            files=tuple(paths),
            committed=error is None,
            error=error,
        )
