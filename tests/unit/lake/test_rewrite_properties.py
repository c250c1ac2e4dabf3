"""How rewritten files are written, where a table's properties leave it open."""

from __future__ import annotations

from neve.lake.rewrite_properties import PlannedOutput, parquet_properties
from neve.limits import MIB

BLOOM = {"write.parquet.bloom-filter-enabled.column.trace_id": "true"}
VALUES = "write.parquet.bloom-filter-ndv.column.trace_id"
DICTIONARY = "write.parquet.dict-encoding-enabled.column.trace_id"
ROW_GROUP = "write.parquet.row-group-size-bytes"


def test_bloom_filters_are_as_large_as_a_row_group_needs():
    small = PlannedOutput(1, 128 * MIB, 36_000, 2 * MIB)
    added = parquet_properties(BLOOM, small, is_sorted=True)
    assert added == {VALUES: "36000", DICTIONARY: "false", ROW_GROUP: str(16 * MIB)}
    large = PlannedOutput(2, 128 * MIB, 1_600_000, 256 * MIB)
    assert parquet_properties(BLOOM, large, is_sorted=True)[VALUES] == "100000"
    assert parquet_properties(BLOOM, large, is_sorted=False)[VALUES] == "800000"


def test_what_a_table_says_stays():
    output = PlannedOutput(1, 128 * MIB, 10, MIB)
    said = {**BLOOM, VALUES: "7", DICTIONARY: "true", ROW_GROUP: str(64 * MIB)}
    assert parquet_properties(said, output, is_sorted=True) == {}
    off = {"write.parquet.bloom-filter-enabled.column.trace_id": "false"}
    assert parquet_properties(off, output, is_sorted=False) == {}
