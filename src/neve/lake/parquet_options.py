"""How the columns of a data file are encoded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import parquet_path_to_id_mapping

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

_SAMPLE_ROWS = 1024
# Of the rows in a sample: with more different values, most values of the column occur once.
_DISTINCT = 0.9


def encoding_options(schema: Schema, rows: pa.Table) -> dict[str, Any]:
    """Return how `ParquetWriter` is to write rows of a table.

    Columns whose values differ get no dictionary: it would hold the first megabyte of them, and
    the file would be larger and take longer.
    """
    distinct = _distinct_columns(rows)
    paths = parquet_path_to_id_mapping(schema)
    return {"use_dictionary": [path for path in paths if path not in distinct]}


def _distinct_columns(rows: pa.Table) -> set[str]:
    """Return the columns of which nearly all values differ, by a sample."""
    if len(rows) < _SAMPLE_ROWS:
        return set()
    # From all over: rows that lie side by side are alike.
    places = pa.array(np.linspace(0, len(rows) - 1, _SAMPLE_ROWS).astype(np.int64))
    flat = [field.name for field in rows.schema if not pa.types.is_nested(field.type)]
    sample = rows.select(flat).take(places)
    return {
        name
        for name in flat
        if not isinstance(sample[name].type, pa.BaseExtensionType)
        and pc.count_distinct(sample[name]).as_py() > _DISTINCT * _SAMPLE_ROWS
    }
