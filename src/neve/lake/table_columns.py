"""Rows as columns of a table, with the types that the table gives them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as kinds

from neve.lake.uuids import has_uuids, with_uuids


def with_table_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with a table's columns and types; columns they lack are NULL."""
    columns = [
        cast_column(rows.column(field.name), field.type)
        if field.name in rows.column_names
        else pa.chunked_array([pa.nulls(len(rows), field.type)])
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def cast_column(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    if has_uuids(wanted):
        chunks = [with_uuids(chunk, wanted).cast(wanted) for chunk in column.chunks]
        return pa.chunked_array(chunks, wanted)
    return column.cast(wanted)


def without_needless_casts(wanted: pa.Schema, given: pa.Schema) -> pa.Schema:
    """Return the columns of a table, their texts and lists with 32-bit offsets if rows have those.

    Parquet does not tell the two apart, and PyIceberg's schemas have 64-bit ones only.
    """
    return pa.schema(
        [
            field.with_type(_narrowed(field.type, given.field(field.name).type))
            if field.name in given.names
            else field
            for field in wanted
        ],
        metadata=wanted.metadata,
    )


def _narrowed(wanted: pa.DataType, given: pa.DataType) -> pa.DataType:
    if kinds.is_large_string(wanted) and kinds.is_string(given):
        return given
    if kinds.is_large_binary(wanted) and kinds.is_binary(given):
        return given
    if kinds.is_large_list(wanted) and kinds.is_list(given):
        return pa.list_(_narrowed_field(wanted.value_field, given.value_type))
    if kinds.is_map(wanted) and kinds.is_map(given):
        key = _narrowed_field(wanted.key_field, given.key_type)
        return pa.map_(key, _narrowed_field(wanted.item_field, given.item_type))
    if kinds.is_struct(wanted) and kinds.is_struct(given):
        by_name = {field.name: field.type for field in given}
        return pa.struct(
            [_narrowed_field(field, by_name.get(field.name, field.type)) for field in wanted]
        )
    return wanted


def _narrowed_field(wanted: pa.Field, given: pa.DataType) -> pa.Field:
    return wanted.with_type(_narrowed(wanted.type, given))
