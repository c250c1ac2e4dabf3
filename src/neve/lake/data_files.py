"""Write rows as data files of a table, anywhere: in a Spark task, in a small job, in a test.

The files belong to nobody until a commit names them. Written with pyarrow: see
docs/decisions/0005-tasks-write-parquet.md for what that was measured against.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import (
    DataFileStatistics,
    MetricModeTypes,
    MetricsMode,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    pyarrow_to_schema,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record

from neve.errors import UnsupportedError
from neve.lake.parquet_options import encoding_options, repeated_fields
from neve.lake.partition_rows import PartitionRows, split_by_partition
from neve.lake.table_columns import with_table_columns, without_needless_casts

ROW_GROUP_ROWS = 256 * 1024
# Arrow bytes of a row group, about: usual rows reach the other bound first. Rows are copied into
# their order a row group at a time, so this bounds the memory for it.
ROW_GROUP_BYTES = 256 * 1024 * 1024
BLOOM_PREFIX = "write.parquet.bloom-filter-enabled.column."
_NO_METRICS = MetricsMode(MetricModeTypes.NONE)
# Iceberg's names of codecs, and Arrow's. What Arrow calls LZ4 is Parquet's LZ4_RAW.
_CODECS = {
    **{codec: codec for codec in ("zstd", "snappy", "gzip", "brotli", "lz4")},
    "lz4_raw": "lz4",
    "uncompressed": "none",
}


@dataclass(frozen=True)
class WrittenFile:
    """A data file, and where its rows came from."""

    data_file: DataFile
    source: PartitionRows

    @property
    def rows(self) -> pa.Table:
        """Its rows, in the order in which they lie there; a copy."""
        return self.source.rows()


@dataclass(frozen=True)
class EncodedFile:
    """A Parquet file that is not stored yet."""

    partition: Record
    rows: int
    content: pa.Buffer


def write_data_files(
    metadata: TableMetadata,
    io: FileIO,
    rows: pa.Table,
    *,
    row_bytes: int = 0,
    partition_directories: bool = False,
) -> list[DataFile]:
    """Write one sorted file for each partition that `rows` touch; columns they lack are NULL.

    Takes little more memory than `rows` do: they are brought into order a row group at a time.
    `row_bytes` is the average size of a row in memory; with it, wide rows make row groups of
    fewer rows, and rows that are in order already are copied faster. Not for rows that Java made:
    some of them have no offsets, and `Table.nbytes` then ends the process.

    With `partition_directories`, a file lies in a directory of its partition, and its name begins
    with the time, so that people who list a store find what was written when.

    Not atomic: a file without a commit is an orphan, and harmless.
    """
    return [
        write_partition(metadata, io, partition, row_bytes, in_directory=partition_directories)
        for partition in split_by_partition(metadata, rows)
    ]


def write_rows(metadata: TableMetadata, io: FileIO, rows: pa.Table) -> list[WrittenFile]:
    """Write as `write_data_files` does, and say at which position of which file each row is."""
    return [
        WrittenFile(write_partition(metadata, io, partition), partition)
        for partition in split_by_partition(metadata, rows)
    ]


def encode_files(
    metadata: TableMetadata, rows: pa.Table, *, row_bytes: int = 0
) -> Iterator[EncodedFile]:
    """Encode rows as `write_data_files` writes them, for those who store the files themselves."""
    for partition in split_by_partition(metadata, rows):
        stream = pa.BufferOutputStream()
        _write_parquet(stream, metadata, partition, row_bytes)
        yield EncodedFile(partition.partition, len(partition.indices), stream.getvalue())


def timed_file_name() -> str:
    """Return a name that no other Parquet file has, and that begins with the time."""
    return f"{datetime.now(timezone.utc):%Y%m%dT%H%M%S%fZ}-{uuid.uuid4()}.parquet"


def data_file_of(
    metadata: TableMetadata,
    io: FileIO,
    path: str,
    partition: Record,
    spec_id: int,
    sort_order_id: int | None,
) -> DataFile:
    """Describe a Parquet file that was written for a table earlier, from its footer.

    Its columns are known by their field ids, so that the table may have got other ones since.

    Raises:
        OSError: the file cannot be read; FileNotFoundError: it is not there.
        ValueError: it is no Parquet file, or its columns have no field ids.
    """
    file = io.new_input(path)
    with file.open() as stream:
        footer = pq.read_metadata(stream)
    schema = pyarrow_to_schema(footer.schema.to_arrow_schema())
    statistics = _statistics(footer, schema, metadata.properties)
    return _data_file(path, len(file), statistics, partition, spec_id, sort_order_id)


def _row_groups(rows: PartitionRows, row_bytes: int) -> Iterator[pa.Table]:
    count = max(1, min(ROW_GROUP_ROWS, ROW_GROUP_BYTES // max(1, row_bytes)))
    return rows.row_groups(count, are_ours=row_bytes > 0)


def write_partition(
    metadata: TableMetadata,
    io: FileIO,
    rows: PartitionRows,
    row_bytes: int = 0,
    *,
    in_directory: bool = False,
) -> DataFile:
    """Write the rows of one partition as a file; see `write_data_files`."""
    schema, properties = metadata.schema(), metadata.properties
    locations = load_location_provider(metadata.location, properties)
    name = _name_in_directory(metadata, rows) if in_directory else f"{uuid.uuid4()}.parquet"
    path = locations.new_data_location(name)
    output = io.new_output(path)
    with output.create(overwrite=False) as stream:
        footer = _write_parquet(stream, metadata, rows, row_bytes)
    statistics = _statistics(footer, schema, properties)
    order_id = rows.order.sort_order_id
    spec_id = metadata.default_spec_id if rows.spec_id is None else rows.spec_id
    return _data_file(path, len(output), statistics, rows.partition, spec_id, order_id)


def _write_parquet(
    stream: Any, metadata: TableMetadata, rows: PartitionRows, row_bytes: int
) -> pq.FileMetaData:
    sample = rows.sample
    columns = without_needless_casts(
        schema_to_pyarrow(metadata.schema(), include_field_ids=True), sample.schema
    )
    writer = pq.ParquetWriter(
        stream,
        columns,
        compression=_compression(metadata.properties),
        bloom_filter_options=_bloom_filters(metadata.properties, len(rows.indices)),
        store_decimal_as_integer=True,
        **encoding_options(metadata.schema(), sample),
    )
    with writer:
        for group in _row_groups(rows, row_bytes):
            writer.write_table(with_table_columns(group, columns))
    return writer.writer.metadata


def _name_in_directory(metadata: TableMetadata, rows: PartitionRows) -> str:
    spec = metadata.spec()
    if spec.is_unpartitioned():
        return timed_file_name()
    return f"{spec.partition_to_path(rows.partition, metadata.schema())}/{timed_file_name()}"


def _statistics(
    footer: pq.FileMetaData, schema: Schema, properties: dict[str, str]
) -> DataFileStatistics:
    try:
        plan = compute_statistics_plan(schema, properties)
    except ValueError as error:
        raise UnsupportedError(
            f"files cannot be written with the table's properties: {error}",
            hint="correct its write.metadata.metrics properties",
        ) from error
    for field_id in repeated_fields(schema) & plan.keys():
        # They have none, and PyIceberg would warn of each.
        plan[field_id] = replace(plan[field_id], mode=_NO_METRICS)
    return data_file_statistics_from_parquet_metadata(
        parquet_metadata=footer,
        stats_columns=plan,
        parquet_column_mapping=parquet_path_to_id_mapping(schema),
    )


def _data_file(
    path: str,
    size: int,
    statistics: DataFileStatistics,
    partition: Record,
    spec_id: int,
    sort_order_id: int | None,
) -> DataFile:
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=partition,
        file_size_in_bytes=size,
        sort_order_id=sort_order_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )
    file.spec_id = spec_id
    return file


def _compression(properties: dict[str, str]) -> str:
    """Return Arrow's name of the codec that a table asks for by Iceberg's."""
    codec = properties.get("write.parquet.compression-codec", "zstd").lower()
    if codec not in _CODECS:
        raise UnsupportedError(
            f"write.parquet.compression-codec is {codec}, which files cannot be written with here",
            hint=f"set it to one of {', '.join(_CODECS)}",
        )
    return _CODECS[codec]


def _bloom_filters(properties: dict[str, str], rows: int) -> dict[str, Any] | None:
    columns = [
        key.removeprefix(BLOOM_PREFIX)
        for key, value in properties.items()
        if key.startswith(BLOOM_PREFIX) and value == "true"
    ]
    distinct = max(1, min(rows, ROW_GROUP_ROWS))
    return {column: {"ndv": distinct, "fpp": 0.01} for column in columns} or None
