"""Between Spark's DataFrames and snapshots that no ref of the user's names."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import load_file_io
from pyiceberg.manifest import DataFile
from pyiceberg.table.metadata import TableMetadataUtil
from pyspark.sql import types as T  # noqa: N812 - as everywhere

from neve.lake.data_files import write_data_files
from neve.lake.jvm.fixed_clock import with_fixed_clock as with_fixed_clock
from neve.lake.workers import keep_zip_directories

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table.metadata import TableMetadata
    from pyspark.sql import DataFrame, SparkSession

    from neve.lake.table_ref import TableRef

# Arrow bytes of rows that a task works on at once, about.
PORTION_BYTES = 128 * 1024 * 1024

_FILES = T.StructType([T.StructField("data_file", T.BinaryType())])
_SPLIT = T.StructType(
    [T.StructField(name, T.ArrayType(T.BinaryType())) for name in ("passed", "failed", "reasons")]
)


def added_rows(
    spark: SparkSession, ref: TableRef, snapshot_id: int, parent_id: int | None
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
    return reader.table(ref.quoted)


def map_batches(
    frame: DataFrame,
    function: Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]],
    schema: T.StructType,
) -> DataFrame:
    """Run a function over a frame's Arrow batches in its tasks, whatever its columns are called.

    PySpark looks columns up by their names, unquoted: dots and backticks would fail. So columns
    have numbers on the way.
    """
    names, results = frame.columns, schema.names

    def work(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        keep_zip_directories()
        for found in function(batch.rename_columns(names) for batch in batches):
            yield found.rename_columns([f"c{number}" for number in range(len(results))])

    fields = [
        T.StructField(f"c{number}", field.dataType, field.nullable)
        for number, field in enumerate(schema)
    ]
    numbered = frame.toDF(*(f"c{number}" for number in range(len(names))))
    return numbered.mapInArrow(work, T.StructType(fields)).toDF(*results)


def in_portions(
    batches: Iterable[pa.RecordBatch], most_bytes: int = PORTION_BYTES
) -> Iterator[pa.Table]:
    """Put batches together until a portion is full; it is larger than that by one batch at most.

    What works on a whole partition at once needs its memory several times over, and fails where a
    column of texts passes 2 GiB.
    """
    portion: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if not len(batch):
            continue
        portion.append(batch)
        # Not `nbytes`: where Java made arrays, some have no offsets, and it ends the process.
        size += batch.get_total_buffer_size()
        if size >= most_bytes:
            yield pa.Table.from_batches(portion)
            portion, size = [], 0
    if portion:
        yield pa.Table.from_batches(portion)


class WritableTable(Protocol):
    """A table that files are written for: PyIceberg's, or a `StagingTable`."""

    @property
    def metadata(self) -> TableMetadata: ...

    @property
    def io(self) -> FileIO: ...


@dataclass(frozen=True)
class _Destination:
    """A table that tasks write files of; nothing is committed."""

    metadata_json: str
    io_properties: dict[str, str]

    @classmethod
    def of(cls, table: WritableTable) -> _Destination:
        return cls(table.metadata.model_dump_json(), dict(table.io.properties))

    def write(self, rows: pa.Table) -> list[bytes]:
        """Write rows as data files; returns these, pickled."""
        if not len(rows):
            return []
        metadata = TableMetadataUtil.parse_raw(self.metadata_json)
        io = load_file_io(self.io_properties, metadata.location)
        return [pickle.dumps(file) for file in write_data_files(metadata, io, rows)]


def write_frame(frame: DataFrame, table: WritableTable) -> list[DataFile]:
    """Write a DataFrame as data files of a table, in its tasks; nothing is committed."""
    destination = _Destination.of(table)

    def work(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for rows in in_portions(batches):
            yield pa.RecordBatch.from_pydict({"data_file": destination.write(rows)})

    return _unpickled(map_batches(frame, work, _FILES).toArrow()["data_file"])


@dataclass(frozen=True)
class SplitRows:
    """The files of rows that were written to two tables."""

    passed: list[DataFile]
    failed: list[DataFile]
    failing: Counter[str]
    """How many rows have each reason."""


def write_split(
    frame: DataFrame, reasons: str, passed: WritableTable, failed: WritableTable, marker: str
) -> SplitRows:
    """Write rows without reasons as files of one table, and the others as files of another.

    Each row is evaluated once, by whichever attempt of its task is kept: it is in one of the
    tables, and what it was counted for is where it is. Nothing is committed.

    Args:
        reasons: a column of lists of texts; together with `marker` for `failed` alone.
    """
    clean, bad = _Destination.of(passed), _Destination.of(failed)

    def work(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for rows in in_portions(batches):
            names = pc.list_flatten(rows[reasons]).value_counts().to_pylist()
            has_reasons = pc.greater(pc.list_value_length(rows[reasons]), 0)
            written = {
                "passed": clean.write(
                    rows.filter(pc.invert(has_reasons)).drop_columns([reasons, marker])
                ),
                "failed": bad.write(rows.filter(has_reasons)),
                "reasons": [pickle.dumps({name["values"]: name["counts"] for name in names})],
            }
            yield pa.RecordBatch.from_pydict({name: [found] for name, found in written.items()})

    result = map_batches(frame, work, _SPLIT).toArrow()
    failing: Counter[str] = Counter()
    for counts in _unpickled(pc.list_flatten(result["reasons"])):
        failing.update(counts)
    return SplitRows(
        _unpickled(pc.list_flatten(result["passed"])),
        _unpickled(pc.list_flatten(result["failed"])),
        failing,
    )


def _unpickled(values: pa.ChunkedArray) -> list[Any]:
    # Pickled by our own tasks a moment ago.
    return [pickle.loads(one) for one in values.to_pylist()]  # noqa: S301
