"""How the columns of a data file are encoded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import parquet_path_to_id_mapping
from pyiceberg.types import ListType, MapType, StructType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyiceberg.schema import Schema
    from pyiceberg.types import IcebergType

SAMPLE_ROWS = 1024
# Of the rows in a sample: with more different values, most values of the column occur once.
_DISTINCT = 0.9


def encoding_options(schema: Schema, rows: pa.Table) -> dict[str, Any]:
    """Return how `ParquetWriter` is to write rows of a table.

    Columns whose values differ get no dictionary: it would hold the first megabyte of them, and
    the file would be larger and take longer. Members of lists and maps get no statistics: no reader
    asks for the least key of all maps, and it takes a tenth of the time.
    """
    distinct = _distinct_columns(rows)
    paths = parquet_path_to_id_mapping(schema)
    members = repeated_fields(schema)
    return {
        "use_dictionary": [path for path in paths if path not in distinct],
        "write_statistics": [path for path, field_id in paths.items() if field_id not in members],
    }


def repeated_fields(schema: Schema) -> set[int]:
    """Return the ids of all fields that are inside lists and maps."""
    return set(_members(schema.as_struct()))


def _members(kind: IcebergType, *, is_member: bool = False) -> Iterator[int]:
    if isinstance(kind, StructType):
        for field in kind.fields:
            if is_member:
                yield field.field_id
            yield from _members(field.field_type, is_member=is_member)
    elif isinstance(kind, ListType):
        yield kind.element_id
        yield from _members(kind.element_type, is_member=True)
    elif isinstance(kind, MapType):
        yield from (kind.key_id, kind.value_id)
        yield from _members(kind.key_type, is_member=True)
        yield from _members(kind.value_type, is_member=True)


def _distinct_columns(rows: pa.Table) -> set[str]:
    """Return the columns of which nearly all values differ, by a sample."""
    if len(rows) < SAMPLE_ROWS:
        return set()
    # From all over: rows that lie side by side are alike.
    places = pa.array(np.linspace(0, len(rows) - 1, SAMPLE_ROWS).astype(np.int64))
    flat = [field.name for field in rows.schema if not pa.types.is_nested(field.type)]
    sample = rows.select(flat).take(places)
    return {
        name
        for name in flat
        if not isinstance(sample[name].type, pa.BaseExtensionType)
        and pc.count_distinct(sample[name]).as_py() > _DISTINCT * SAMPLE_ROWS
    }
