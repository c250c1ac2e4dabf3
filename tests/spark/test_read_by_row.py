"""For which columns Spark's vectorised reader of Iceberg falls back to rows."""

from __future__ import annotations

import neve
from tests.support.lakes import sqlite_settings

COLUMNS = {
    "id": "BIGINT",
    "at": "TIMESTAMP",
    "name": "STRING",
    "price": "DECIMAL(9, 2)",
    "body": "BINARY",
    "tags": "MAP<STRING, STRING>",
    "parts": "ARRAY<STRING>",
    "place": "STRUCT<town: STRING>",
}
ROW = (
    "1, current_timestamp(), 'a', 1.5, X'00', map('a', 'b'), array('x'), named_struct('town', 'y')"
)


def test_describe_names_the_columns_with_which_a_query_is_read_by_row(embedded_lake, tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        lake.sql("CREATE NAMESPACE shop")
        columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
        lake.sql(f"CREATE TABLE shop.t ({columns}) TBLPROPERTIES ('format-version'='3')")
        lake.sql(f"INSERT INTO shop.t VALUES ({ROW})")
        by_row = [name for name in COLUMNS if not is_vectorised(lake, f"id, {name}")]
        assert list(lake.table("shop.t").read_by_row) == by_row
        assert by_row == ["tags", "parts", "place"]


def test_a_variant_column_is_read_by_row_if_its_files_may_be_shredded_or_lack_bounds(
    embedded_lake, tmp_path
):
    properties = {
        "plain": {},
        "shredded": {"write.parquet.shred-variants": "true"},
        "counted": {"write.metadata.metrics.default": "counts"},
        "column": {"write.metadata.metrics.column.data": "none"},
        "bounded": {
            "write.metadata.metrics.default": "none",
            "write.metadata.metrics.column.data": "full",
        },
    }
    with neve.open(sqlite_settings(tmp_path)) as lake:
        lake.sql("CREATE NAMESPACE shop")
        for name, given in properties.items():
            listed = {"format-version": "3", **given}
            text = ", ".join(f"'{key}'='{value}'" for key, value in listed.items())
            lake.sql(f"CREATE TABLE shop.{name} (id BIGINT, data VARIANT) TBLPROPERTIES ({text})")
            lake.sql(f"INSERT INTO shop.{name} SELECT 1, parse_json('{{}}')")
        by_row = [name for name in properties if not is_vectorised(lake, "data", f"shop.{name}")]
        assert [name for name in properties if lake.table(f"shop.{name}").read_by_row] == by_row
        assert by_row == ["shredded", "counted", "column"]


def is_vectorised(lake, columns, table="shop.t"):
    (row,) = lake.sql(f"EXPLAIN SELECT {columns} FROM {table}").collect()
    return "ColumnarToRow" in row.plan
