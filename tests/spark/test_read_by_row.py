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


def is_vectorised(lake, columns):
    (row,) = lake.sql(f"EXPLAIN SELECT {columns} FROM shop.t").collect()
    return "ColumnarToRow" in row.plan
