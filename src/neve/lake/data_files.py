"""Write rows as data files of a table, anywhere: in a Spark task, in a small job, in a test.

The files belong to nobody until a commit names them. Written with pyarrow: see
docs/decisions/0005-tasks-write-parquet.md for what that was measured against.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.exceptions import NotInstalledError
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import (
    DataFileStatistics,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    pyarrow_to_schema,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec, partition_record_value
from pyiceberg.schema import Schema
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import DayTransform, VoidTransform
from pyiceberg.typedef import Record

from neve.errors import UnsupportedError
from neve.lake.parquet_options import encoding_options
from neve.lake.row_order import RowOrder, row_order, transformed
from neve.lake.uuids import has_uuids, with_uuids

ROW_GROUP_ROWS = 256 * 1024
# Arrow bytes of a row group, about: usual rows reach the other bound first. Rows are copied into
# their order a row group at a time, so this bounds the memory for it.
ROW_GROUP_BYTES = 256 * 1024 * 1024
BLOOM_PREFIX = "write.parquet.bloom-filter-enabled.column."
# Iceberg's names of codecs, and Arrow's. What Arrow calls LZ4 is Parquet's LZ4_RAW.
_CODECS = {
    **{codec: codec for codec in ("zstd", "snappy", "gzip", "brotli", "lz4")},
    "lz4_raw": "lz4",
    "uncompressed": "none",
}
_DAY_MICROS = 86_400_000_000


@dataclass(frozen=True)
class PartitionRows:
    """The rows of one partition, as sorted indices into a table; not copied yet."""

    partition: Record
    table: pa.Table
    order: RowOrder

    @property
    def indices(self) -> pa.Array:
        return self.order.indices


@dataclass(frozen=True)
class WrittenFile:
    """A data file, and where its rows came from."""

    data_file: DataFile
    source: PartitionRows

    @property
    def rows(self) -> pa.Table:
        """Its rows, in the order in which they lie there; a copy."""
        return self.source.table.take(self.source.indices)


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
    fewer rows. It is not asked of `rows`: where Java made these, some have no offsets, and
    `Table.nbytes` then ends the process.

    With `partition_directories`, a file lies in a directory of its partition, and its name begins
    with the time, so that people who list a store find what was written when.

    Not atomic: a file without a commit is an orphan, and harmless.
    """
    row_group_rows = _row_group_rows(row_bytes)
    return [
        _write_file(metadata, io, partition, row_group_rows, in_directory=partition_directories)
        for partition in _split_by_partition(metadata, rows)
    ]


def write_rows(metadata: TableMetadata, io: FileIO, rows: pa.Table) -> list[WrittenFile]:
    """Write as `write_data_files` does, and say at which position of which file each row is."""
    return [
        WrittenFile(_write_file(metadata, io, partition, _row_group_rows(0)), partition)
        for partition in _split_by_partition(metadata, rows)
    ]


def encode_files(
    metadata: TableMetadata, rows: pa.Table, *, row_bytes: int = 0
) -> Iterator[EncodedFile]:
    """Encode rows as `write_data_files` writes them, for those who store the files themselves."""
    for partition in _split_by_partition(metadata, rows):
        stream = pa.BufferOutputStream()
        _write_parquet(stream, metadata, partition, _row_group_rows(row_bytes))
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


def _row_group_rows(row_bytes: int) -> int:
    return max(1, min(ROW_GROUP_ROWS, ROW_GROUP_BYTES // max(1, row_bytes)))


def with_table_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with a table's columns and types; columns they lack are NULL."""
    columns = [
        _cast_column(rows.column(field.name), field.type)
        if field.name in rows.column_names
        else pa.chunked_array([pa.nulls(len(rows), field.type)])
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _cast_column(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    if has_uuids(wanted):
        chunks = [with_uuids(chunk, wanted).cast(wanted) for chunk in column.chunks]
        return pa.chunked_array(chunks, wanted)
    return column.cast(wanted)


def _split_by_partition(metadata: TableMetadata, rows: pa.Table) -> Iterator[PartitionRows]:
    """Sort rows as the table wants them, and split them where the partition changes."""
    schema, spec = metadata.schema(), metadata.spec()
    arrow_schema = schema_to_pyarrow(schema, include_field_ids=False)

    def cast_column(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
        return _cast_column(column, arrow_schema.field(name).type)

    day_column = _day_column(spec, schema, rows)
    if spec.is_unpartitioned():
        yield PartitionRows(Record(), rows, row_order(metadata, rows, cast_column))
    elif day_column is not None:
        days = pc.divide(rows.column(day_column).cast(pa.int64()), _DAY_MICROS).cast(pa.int32())
        order = row_order(metadata, rows, cast_column, partition=days)
        yield from _split_by_day(rows, days, order)
    else:
        for partition, part in _split_by_spec(spec, schema, rows):
            yield PartitionRows(partition, part, row_order(metadata, part, cast_column))


def _split_by_spec(
    spec: PartitionSpec, schema: Schema, rows: pa.Table
) -> Iterator[tuple[Record, pa.Table]]:
    """Split rows by any partition spec.

    PyIceberg's own way asks for each partition which values are equal to it, and so loses NaN.
    """
    shaped = with_table_columns(rows, schema_to_pyarrow(schema, include_field_ids=True))
    numbers = np.zeros(len(rows), np.int64)
    values: list[pa.Array] = []
    try:
        for field in spec.fields:
            column = _partition_column(field, schema, shaped)
            if isinstance(column.type, pa.BaseExtensionType):
                column = column.cast(column.type.storage_type)
            encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
            values.append(encoded)
            numbers = numbers * len(encoded.dictionary) + np.asarray(encoded.indices)
            # Numbered anew, so that the product of all sizes passes no bound.
            numbers = np.unique(numbers, return_inverse=True)[1]
    except (KeyError, ValueError, NotImplementedError, NotInstalledError) as error:
        raise UnsupportedError(
            f"files cannot be written for the partition spec {spec}: {error}",
            hint="let Spark write to this table, or partition it otherwise",
        ) from error
    order = np.argsort(numbers, kind="stable")
    starts = np.flatnonzero(np.diff(numbers[order], prepend=-1)).tolist()
    for start, end in pairwise([*starts, len(order)]):
        record = Record(
            *(
                _partition_value(field, schema, encoded[int(order[start])].as_py())
                for field, encoded in zip(spec.fields, values, strict=True)
            )
        )
        yield record, shaped.take(pa.array(order[start:end]))


def _partition_column(field: PartitionField, schema: Schema, rows: pa.Table) -> pa.ChunkedArray:
    """Return the value of a partition field for each row."""
    kind = schema.find_field(field.source_id).field_type
    if isinstance(field.transform, VoidTransform):
        # In format version 1, a field that was removed. PyIceberg returns another kind of array.
        return pa.chunked_array([pa.nulls(len(rows), pa.string())])
    return transformed(field.transform, kind, _source(field, schema, rows))


def _source(field: PartitionField, schema: Schema, rows: pa.Table) -> pa.ChunkedArray:
    """Return the column that a partition is of; it may be inside structs."""
    name = str(schema.find_column_name(field.source_id))
    if name in rows.column_names:
        return rows.column(name)
    column, *path = name.split(".")
    return pc.struct_field(rows.column(column), path)


def _partition_value(field: PartitionField, schema: Schema, value: Any) -> Any:
    """Return a value as manifests have it: a date as days, a time as microseconds."""
    is_plain = value is None or isinstance(value, (bytes, float))
    return value if is_plain else partition_record_value(field, value, schema)


def _split_by_day(
    rows: pa.Table, days: pa.ChunkedArray, order: RowOrder
) -> Iterator[PartitionRows]:
    values = days.take(order.indices).to_numpy()
    if not len(values):
        return
    starts = np.flatnonzero(np.diff(values, prepend=values[0] - 1)).tolist()
    for start, end in pairwise([*starts, len(values)]):
        of_day = replace(order, indices=order.indices.slice(start, end - start))
        yield PartitionRows(Record(int(values[start])), rows, of_day)


def _day_column(spec: PartitionSpec, schema: Schema, rows: pa.Table) -> str | None:
    """Return the time whose day is the partition, as in all tables of telemetry: one sort does."""
    fields: tuple[PartitionField, ...] = spec.fields
    if len(fields) != 1 or not isinstance(fields[0].transform, DayTransform):
        return None
    name = str(schema.find_column_name(fields[0].source_id))
    if name not in rows.column_names or not pa.types.is_timestamp(rows.schema.field(name).type):
        return None
    times = rows.column(name).cast(pa.int64())
    # Division rounds towards zero: before 1970 that would be the next day.
    return None if times.null_count or (len(times) and pc.min(times).as_py() < 0) else name


def _write_file(
    metadata: TableMetadata,
    io: FileIO,
    rows: PartitionRows,
    row_group_rows: int,
    *,
    in_directory: bool = False,
) -> DataFile:
    schema, properties = metadata.schema(), metadata.properties
    locations = load_location_provider(metadata.location, properties)
    name = _name_in_directory(metadata, rows) if in_directory else f"{uuid.uuid4()}.parquet"
    path = locations.new_data_location(name)
    output = io.new_output(path)
    with output.create(overwrite=False) as stream:
        footer = _write_parquet(stream, metadata, rows, row_group_rows)
    statistics = _statistics(footer, schema, properties)
    order_id = rows.order.sort_order_id
    spec_id = metadata.default_spec_id
    return _data_file(path, len(output), statistics, rows.partition, spec_id, order_id)


def _write_parquet(
    stream: Any, metadata: TableMetadata, rows: PartitionRows, row_group_rows: int
) -> pq.FileMetaData:
    columns = schema_to_pyarrow(metadata.schema(), include_field_ids=True)
    writer = pq.ParquetWriter(
        stream,
        columns,
        compression=_compression(metadata.properties),
        bloom_filter_options=_bloom_filters(metadata.properties, len(rows.indices)),
        store_decimal_as_integer=True,
        **encoding_options(metadata.schema(), rows.table),
    )
    with writer:
        for start in range(0, len(rows.indices), row_group_rows):
            group = _take(rows.table, rows.indices.slice(start, row_group_rows))
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


def _take(rows: pa.Table, indices: pa.Array) -> pa.Table:
    """Return the rows at some indices.

    Arrow copies all chunks into one array first: leave out those before and after the indices.
    """
    first, last = pc.min(indices).as_py(), pc.max(indices).as_py()
    within: pa.Array = pc.subtract(indices, pa.scalar(first, indices.type))
    return rows.slice(first, last - first + 1).take(within)


def _bloom_filters(properties: dict[str, str], rows: int) -> dict[str, Any] | None:
    columns = [
        key.removeprefix(BLOOM_PREFIX)
        for key, value in properties.items()
        if key.startswith(BLOOM_PREFIX) and value == "true"
    ]
    distinct = max(1, min(rows, ROW_GROUP_ROWS))
    return {column: {"ndv": distinct, "fpp": 0.01} for column in columns} or None
