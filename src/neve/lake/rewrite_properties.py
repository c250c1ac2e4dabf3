"""How files are written that queries read for long: what a table's properties leave open. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from neve.limits import MIB

_BLOOM_ENABLED = "write.parquet.bloom-filter-enabled.column."
_DICTIONARY_ENABLED = "write.parquet.dict-encoding-enabled.column."
_BLOOM_VALUES = "write.parquet.bloom-filter-ndv.column."
_ROW_GROUP_BYTES = "write.parquet.row-group-size-bytes"
# Readers skip whole row groups, by the least and greatest value and by bloom filter. In a sorted
# file of 128 MiB, small ones mean that a query for one service or one trace reads a part of it.
_SORTED_ROW_GROUP_BYTES = 16 * MIB
_ROW_GROUP_BYTES_DEFAULT = 128 * MIB


@dataclass(frozen=True)
class PlannedOutput:
    """What the rows of some files are written into.

    Args:
        target_file_bytes: no file becomes larger.
        rows: in all files together, or about so many; `bytes` likewise.
        days: of rows that share files, those of so many days get files of their own; 0: rows stay
            in their partition.
    """

    files: int
    target_file_bytes: int
    rows: int
    bytes: int
    days: int = 0


def parquet_properties(
    properties: Mapping[str, str], output: PlannedOutput, *, is_sorted: bool
) -> dict[str, str]:
    """Return what is to be added to a table's properties.

    Without a number of values, Parquet gives each bloom filter its greatest size, a mebibyte: more
    than the rows of a small hour, and all of it is read to find out that a value is not there.
    Where a dictionary holds all values of a column, Parquet writes no bloom filter; Spark looks
    into the dictionary then, which is larger, and DuckDB reads the whole column.
    """
    added = {}
    if is_sorted and _ROW_GROUP_BYTES not in properties:
        added[_ROW_GROUP_BYTES] = str(_SORTED_ROW_GROUP_BYTES)
    row_group_bytes = int({**properties, **added}.get(_ROW_GROUP_BYTES, _ROW_GROUP_BYTES_DEFAULT))
    row_groups = max(output.files, output.bytes // row_group_bytes, 1)
    for key, value in properties.items():
        column = key.removeprefix(_BLOOM_ENABLED)
        values = _BLOOM_VALUES + column
        if column != key and value == "true":
            added.setdefault(_DICTIONARY_ENABLED + column, "false")
            added.setdefault(values, str(max(output.rows // row_groups, 1)))
    return {key: value for key, value in added.items() if key not in properties}
