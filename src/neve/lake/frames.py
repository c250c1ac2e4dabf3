"""Between Spark's DataFrames and snapshots that no ref of the user's names."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.io import load_file_io
from pyiceberg.manifest import DataFile
from pyiceberg.table.metadata import TableMetadataUtil

from neve.lake.files import write_data_files
from neve.lake.identifier import Identifier, quote_identifier
from neve.lake.profile import DEFAULT_CATALOG

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame, SparkSession

_FILES = "data_file BINARY"


def added_rows(
    spark: SparkSession, identifier: Identifier, snapshot_id: int, parent_id: int | None
) -> DataFrame:
    """Return the rows that one append snapshot added, published or not.

    Iceberg asks only that `parent_id` is the parent's, not that it was not expired since.
    """
    reader = spark.read
    if parent_id is None:
        reader = reader.option("versionAsOf", snapshot_id)
    else:
        reader = reader.option("start-snapshot-id", parent_id)
        reader = reader.option("end-snapshot-id", snapshot_id)
    return reader.table(quote_identifier((DEFAULT_CATALOG, *identifier)))


def write_frame(frame: DataFrame, table: Table) -> list[DataFile]:
    """Write a DataFrame as data files of a table, in its tasks; nothing is committed."""
    metadata_json = table.metadata.model_dump_json()
    io_properties = dict(table.io.properties)
    names = frame.columns

    def work(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        found = [batch for batch in batches if len(batch)]
        if not found:
            return
        metadata = TableMetadataUtil.parse_raw(metadata_json)
        io = load_file_io(io_properties, metadata.location)
        rows = pa.Table.from_batches(found).rename_columns(names)
        files = write_data_files(metadata, io, rows)
        yield pa.RecordBatch.from_pydict({"data_file": [pickle.dumps(file) for file in files]})

    # PySpark looks the columns up by their names, unquoted: dots and backticks would fail.
    numbered = frame.toDF(*(f"c{number}" for number in range(len(names))))
    written = numbered.mapInArrow(work, _FILES).toArrow()
    # Pickled by our own tasks a moment ago.
    return [pickle.loads(one) for one in written["data_file"].to_pylist()]  # noqa: S301
