"""The rows of each partition, in the table's order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.exceptions import NotInstalledError
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec, partition_record_value
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import DayTransform, VoidTransform
from pyiceberg.typedef import Record

from neve.errors import UnsupportedError
from neve.lake.row_order import RowOrder, row_order, transformed
from neve.lake.table_columns import cast_column, with_table_columns

_DAY_MICROS = 86_400_000_000
# Rows that lie side by side and stay so are copied together, if they are as many on average: those
# of a request often are in order.
_RUN_ROWS = 256


@dataclass(frozen=True)
class PartitionRows:
    """The rows of one partition, as sorted indices into a table; not copied yet."""

    partition: Record
    table: pa.Table
    order: RowOrder
    spec_id: int | None = None
    """The partition spec that it is of; None: the table's current one."""

    @property
    def indices(self) -> pa.Array:
        return self.order.indices

    def rows(self, start: int = 0, count: int | None = None, *, are_ours: bool = False) -> pa.Table:
        """Return some of its rows, in their order; a copy.

        Args:
            are_ours: Java made none of them. Those that it made may have no offsets, and to join
                parts of such arrays ends the process.
        """
        indices = self.indices.slice(start, count)
        runs = _copy_runs(self.table, indices) if are_ours else None
        return _take(self.table, indices) if runs is None else runs

    def row_groups(self, most_rows: int, *, are_ours: bool = False) -> Iterator[pa.Table]:
        """Yield its rows in their order, a row group at a time."""
        for start in range(0, len(self.indices), most_rows):
            yield self.rows(start, most_rows, are_ours=are_ours)

    @property
    def sample(self) -> pa.Table:
        """Rows that have its columns and are like its rows, at least `SAMPLE_ROWS` if it has."""
        return self.table


def split_by_partition(metadata: TableMetadata, rows: pa.Table) -> Iterator[PartitionRows]:
    """Sort rows as the table wants them, and split them where the partition changes."""
    schema, spec = metadata.schema(), metadata.spec()
    arrow_schema = schema_to_pyarrow(schema, include_field_ids=False)

    def cast(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
        return cast_column(column, arrow_schema.field(name).type)

    day_column = _day_column(spec, schema, rows)
    if spec.is_unpartitioned():
        yield PartitionRows(Record(), rows, row_order(metadata, rows, cast))
    elif day_column is not None:
        days = pc.divide(rows.column(day_column).cast(pa.int64()), _DAY_MICROS).cast(pa.int32())
        order = row_order(metadata, rows, cast, partition=days)
        yield from _split_by_day(rows, days, order)
    else:
        for partition, part in _split_by_spec(spec, schema, rows):
            yield PartitionRows(partition, part, row_order(metadata, part, cast))


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


def _copy_runs(rows: pa.Table, indices: pa.Array) -> pa.Table | None:
    """Return the rows at some indices, copied in runs; None: the runs are too short for that."""
    places = indices.to_numpy()
    starts = [0, *(np.flatnonzero(np.diff(places) != 1) + 1).tolist(), len(places)]
    if (len(starts) - 1) * _RUN_ROWS > len(places):
        return None
    runs = [rows.slice(int(places[start]), end - start) for start, end in pairwise(starts)]
    return pa.concat_tables(runs).combine_chunks()


def _take(rows: pa.Table, indices: pa.Array) -> pa.Table:
    """Return the rows at some indices.

    Arrow copies all chunks into one array first: leave out those before and after the indices.
    """
    if not len(indices):
        return rows.slice(0, 0)
    first, last = pc.min(indices).as_py(), pc.max(indices).as_py()
    within: pa.Array = pc.subtract(indices, pa.scalar(first, indices.type))
    return rows.slice(first, last - first + 1).take(within)
