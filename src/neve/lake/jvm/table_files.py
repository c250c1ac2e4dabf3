"""A table's own files, read through its own FileIO; and tables in memory that read some of them."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from neve.lake.jvm.byte_streams import metadata_json, read_stream
from neve.lake.jvm.tables import active, load
from neve.lake.jvm.unreachable import unreachable, watch
from neve.lake.table_ref import TableRef

_READ_LOCAL_FILES = (
    "org.apache.iceberg.io.ResolvingFileIO",
    "org.apache.iceberg.hadoop.HadoopFileIO",
)


class TableFiles:
    """One table as its catalog has it when this is made. Raises what Java raises."""

    def __init__(self, session: SparkSession, ref: TableRef) -> None:
        self._session = session
        self._jvm: Any = session._jvm
        self._gateway: Any = session.sparkContext._gateway
        self._table = load(session, ref)

    def metadata_location(self) -> str:
        return str(self._table.operations().current().metadataFileLocation())

    def metadata_json(self) -> bytes:
        """Return the metadata as JSON; with a long history that takes Java a while."""
        return metadata_json(self._gateway, self._table.operations().current())

    def is_whole(self, ref: TableRef) -> bool:
        """Tell a table from a part of it: for `ns.t.branch_x` Iceberg loads `ns.t`."""
        return str(self._table.name()).lower().endswith(ref.identifier[-1].lower())

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Read a file, or a part of it."""
        stream = self._table.io().newInputFile(path).newStream()
        if offset:
            stream.seek(offset)
        return read_stream(self._gateway, stream, length)

    def scan(self, metadata_location: str, metadata_json: str, directory: str) -> DataFrame:
        """Return the rows of a table that exists in memory only, by its metadata.

        Args:
            directory: is needed for as long as the rows can be read; see `unused_directories`.
        """
        iceberg = self._jvm.org.apache.iceberg
        metadata = iceberg.TableMetadataParser.fromJson(metadata_location, metadata_json)
        operations = iceberg.StaticTableOperations(metadata, self._io_with_local_files())
        # Whoever plans a scan holds the table, and with it these.
        watch(self._session, operations, directory)
        table = iceberg.BaseTable(operations, self._table.name())
        sql = self._jvm.org.apache.spark.sql
        none = self._jvm.scala.Option.empty()
        with active(self._session):
            relation = sql.execution.datasources.v2.DataSourceV2Relation.create(
                iceberg.spark.source.SparkTable(table),
                none,
                none,
                sql.util.CaseInsensitiveStringMap.empty(),
                none,
            )
            rows = sql.classic.Dataset.ofRows(self._session._jsparkSession, relation)
        return DataFrame(rows, self._session)

    def unused_directories(self) -> list[str]:
        """Return the directories of scans whose rows nobody can read any more."""
        return unreachable(self._session)

    def _io_with_local_files(self) -> Any:
        """Return a FileIO that reads the table's files and those of this machine."""
        own = self._table.io()
        if own.getClass().getName() in _READ_LOCAL_FILES:
            return own
        return self._jvm.org.apache.iceberg.CatalogUtil.loadFileIO(
            _READ_LOCAL_FILES[0],
            own.properties(),
            self._session._jsparkSession.sessionState().newHadoopConf(),
        )
