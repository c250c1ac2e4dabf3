"""The order in which a table wants the rows of its data files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import (
    UNSORTED_SORT_ORDER,
    NullOrder,
    SortDirection,
    SortField,
    SortOrder,
)
from pyiceberg.transforms import Transform, TruncateTransform
from pyiceberg.types import BinaryType, IcebergType

_MAX_INT64 = np.int64(2**63 - 1)

# Returns a table's column with the type that the table gives it.
CastColumn = Callable[[pa.ChunkedArray, str], pa.ChunkedArray]


@dataclass(frozen=True)
class RowOrder:
    """Where each row goes, and the sort order that files written so may declare."""

    sort_order_id: int
    indices: pa.Array


@dataclass(frozen=True)
class _SortKey:
    values: pa.ChunkedArray
    ascending: bool = True


def row_order(
    metadata: TableMetadata,
    rows: pa.Table,
    cast_column: CastColumn,
    partition: pa.ChunkedArray | None = None,
) -> RowOrder:
    """Sort rows as the table's sort order says; with `partition`, by those values first.

    An order that cannot be computed here is not declared: readers may rely on what a file declares.
    """
    order = metadata.sort_order_by_id(metadata.default_sort_order_id) or UNSORTED_SORT_ORDER
    keys = _sort_keys(order, metadata.schema(), rows, cast_column)
    if keys is None:
        order, keys = UNSORTED_SORT_ORDER, []
    if partition is not None:
        keys = [_SortKey(partition), *keys]
    return RowOrder(order.order_id, _sort(keys, len(rows)))


def _sort(keys: Sequence[_SortKey], count: int) -> pa.Array:
    if not keys:
        return pa.array(np.arange(count))
    names = [f"key{number}" for number in range(len(keys))]
    table = pa.Table.from_arrays([key.values for key in keys], names)
    directions = ["ascending" if key.ascending else "descending" for key in keys]
    return pc.sort_indices(table, sort_keys=list(zip(names, directions, strict=True)))


def _sort_keys(
    order: SortOrder, schema: Schema, rows: pa.Table, cast_column: CastColumn
) -> list[_SortKey] | None:
    """Return what to sort by; None when a field of the order cannot be computed."""
    keys: list[_SortKey] = []
    for field in order.fields:
        name = schema.find_column_name(field.source_id)
        if name is None or name not in {column.name for column in schema.fields}:
            return None  # inside a struct, or of an older schema
        if name not in rows.column_names or not len(rows):
            continue  # NULL in every row, so it decides nothing
        try:
            values = _values(field, schema, cast_column(rows.column(name), name))
        except (NotImplementedError, ValueError):
            return None  # a transform that neither PyIceberg nor we know
        if values.null_count:
            # Arrow has one place for the nulls of all keys: here, each key says where its own go.
            nulls_last = field.null_order is NullOrder.NULLS_LAST
            keys.append(_SortKey(values.is_null(), ascending=nulls_last))
        keys.append(_SortKey(values, ascending=field.direction is SortDirection.ASC))
    return keys


def _values(field: SortField, schema: Schema, column: pa.ChunkedArray) -> pa.ChunkedArray:
    key = transformed(field.transform, schema.find_field(field.source_id).field_type, column)
    if isinstance(key.type, pa.BaseExtensionType):
        return key.cast(key.type.storage_type)
    return _total_order(key) if pa.types.is_floating(key.type) else key


def transformed(
    transform: Transform[Any, Any], kind: IcebergType, column: pa.ChunkedArray
) -> pa.ChunkedArray:
    """Apply a transform to a column.

    Raises:
        NotImplementedError: it is not known here; ValueError also.
    """
    if isinstance(transform, TruncateTransform) and isinstance(kind, BinaryType):
        # PyIceberg takes no large binary, and its schemas have no other.
        return pc.binary_slice(column, 0, transform.width)
    apply: Callable[[Any], pa.ChunkedArray] = transform.pyarrow_transform(kind)
    return apply(column)


def _total_order(numbers: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return integers in the order that Iceberg gives to floating-point numbers.

    -0.0 comes before 0.0, and NaN after all others: Arrow would put NaN beside the nulls.
    """
    values = pc.fill_null(numbers.cast(pa.float64()), 0.0).to_numpy()
    values = np.where(np.isnan(values), np.nan, values)
    bits = values.view(np.int64)
    ordered = bits ^ ((bits >> 63) & _MAX_INT64)
    return pa.chunked_array([pa.array(ordered, mask=numbers.is_null().to_numpy())])
