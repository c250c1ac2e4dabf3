"""Small ranges are read on the driver, and only those that Spark would read the same.

`Versioned.changes` reads each range both ways, and compares rows, names, types and comments.
"""

from __future__ import annotations

import logging
from collections import Counter
from unittest import mock

import pytest

from neve.lake.plain_rows import Allowance
from neve.versions import driver_rows
from neve.versions.changes import read_changes
from tests.support.versioned import MERGE_ON_READ, Versioned

V3 = f"'format-version' = '3', {MERGE_ON_READ}"
COLUMNS = (
    "id BIGINT NOT NULL COMMENT 'the key', flag BOOLEAN, small INT, ratio FLOAT, amount DOUBLE, "
    "price DECIMAL(9,2), big DECIMAL(38,10), day DATE, at TIMESTAMP, here TIMESTAMP_NTZ, "
    "word STRING, raw BINARY, pair STRUCT<a: INT COMMENT 'inner', b: ARRAY<STRING>>, "
    "list ARRAY<STRUCT<x: DOUBLE>>, dict MAP<STRING, DECIMAL(5,1)>"
)
EDGES = (
    "{id}, true, -2147483648, float('NaN'), double('-0.0'), 9999999.99BD, "
    "CAST('-1234567890123456789012345678.0123456789' AS DECIMAL(38,10)), DATE '0001-01-01', "
    "TIMESTAMP '1582-10-04 23:59:59.123456', TIMESTAMP_NTZ '9999-12-31 23:59:59.999999', "
    "'é𝄞', X'00ff', named_struct('a', NULL, 'b', array('x', NULL)), "
    "array(named_struct('x', double('NaN')), NULL), map('k', 1.5BD, 'j', NULL)"
)


@pytest.fixture
def other_zone(embedded_lake):
    """Another zone of the session: times must not move."""
    before = embedded_lake.spark.conf.get("spark.sql.session.timeZone")
    embedded_lake.spark.conf.set("spark.sql.session.timeZone", "America/St_Johns")
    yield
    embedded_lake.spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.usefixtures("other_zone")
def test_every_plain_type(embedded_lake):
    table = Versioned(embedded_lake, COLUMNS, V3)
    nothing = ", ".join(["NULL"] * 14)
    first = table.sql(
        f"INSERT INTO {{t}} SELECT /*+ COALESCE(1) */ * FROM VALUES ({EDGES.format(id=1)}), "
        f"({EDGES.format(id=2)}), (3, {nothing}), (4, {nothing})"
    )
    table.sql("UPDATE {t} SET word = 'other', pair.a = 1 WHERE id IN (2, 3)")
    changes = table.rows(first, keys=["id"])
    assert Counter(row[-3] for row in changes) == {"update_preimage": 2, "update_postimage": 2}
    assert len(table.rows()) == 8
    # Copy-on-write writes the others again, and they cancel.
    table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.update.mode' = 'copy-on-write')")
    before = table.version()
    table.sql("UPDATE {t} SET flag = false WHERE id = 4")
    assert sorted((row.id, row[-3]) for row in table.rows(before)) == [(4, "delete"), (4, "insert")]
    assert set(table.paths) == {"driver"}


def test_columns_that_changed_and_partitions(embedded_lake):
    """Columns that a file lacks are NULL, narrower ones are widened, partitions are constants."""
    table = Versioned(
        embedded_lake,
        "id INT, name STRING, day DATE, price DECIMAL(5,2), ratio FLOAT",
        V3,
        "PARTITIONED BY (name, day, bucket(2, id))",
    )
    first = table.sql(
        "INSERT INTO {t} VALUES (1, 'a', DATE '2026-11-01', 1.25, 0.5), (2, NULL, NULL, 2.5, 1.5)"
    )
    for change in (
        "ALTER COLUMN id TYPE BIGINT",
        "ALTER COLUMN price TYPE DECIMAL(9,2)",
        "ALTER COLUMN ratio TYPE DOUBLE",
        "RENAME COLUMN name TO Word",
        "ADD COLUMN extra STRUCT<x: INT> FIRST",
        "DROP PARTITION FIELD day",
    ):
        table.sql("ALTER TABLE {t} " + change)
    table.sql("DELETE FROM {t} WHERE id = 2")
    table.sql("INSERT INTO {t} VALUES (named_struct('x', 1), 3, 'b', NULL, 5.5, 0.1)")
    assert len(table.rows(None, first)) == 2
    assert len(table.rows()) == 4
    assert len(table.rows(mode="net")) == 2
    assert table.paths == ["driver"] * 3


@pytest.mark.parametrize(
    ("columns", "clauses", "change", "reason"),
    [
        ("id BIGINT, b DECIMAL(3,1)", "PARTITIONED BY (b)", "", "decimal"),
        ("id BIGINT, b DOUBLE", "PARTITIONED BY (b)", "", "double"),
        ("id BIGINT, b STRUCT<c: INT>", "PARTITIONED BY (b.c)", "", "nested column"),
        (
            "id BIGINT, b STRUCT<c: INT>",
            "",
            "ALTER TABLE {t} RENAME COLUMN b.c TO d",
            "another type",
        ),
        ("id BIGINT, b STRUCT<c: INT>", "", "ALTER TABLE {t} ADD COLUMN b.d INT", "another type"),
        ("id BIGINT, b VARIANT", "", "", "type variant"),
        (
            "id BIGINT, b INT",
            "",
            "ALTER TABLE {t} SET TBLPROPERTIES ('write.format.default' = 'avro')",
            "format AVRO",
        ),
    ],
)
def test_what_only_spark_reads(embedded_lake, caplog, columns, clauses, change, reason):
    table = Versioned(embedded_lake, columns, V3, clauses)
    values = {
        "b STRUCT<c: INT>": "named_struct('c', 1)",
        "b VARIANT": "parse_json('1')",
    }.get(columns.split(", ")[1], "1.5")
    caplog.set_level(logging.INFO, "neve.versions")
    if "TBLPROPERTIES" in change:
        table.sql(change)
    table.sql(f"INSERT INTO {{t}} SELECT 1, {values}")
    if change:
        table.sql(change)
    assert len(table.rows()) == 1
    assert table.paths == ["Spark"]
    assert reason in caplog.text


def test_more_than_a_little_is_left_to_spark(embedded_lake, caplog):
    """Each limit is kept, by metadata or by the footers of files."""
    table = Versioned(embedded_lake, properties=V3)
    first = table.sql("INSERT INTO {t} SELECT id, 'a' FROM range(0, 1000, 1, 1)")
    table.sql("DELETE FROM {t} WHERE id % 100 = 1")
    caplog.set_level(logging.INFO, "neve.versions")
    for since in (None, first):
        enough = {"files": 9, "stored_bytes": 99_999, "decoded_bytes": 99_999, "rows": 2000}
        for limit in (*enough, "kept_bytes"):
            few = Allowance(**{"kept_bytes": 99_999, **enough, limit: 0})
            with mock.patch.object(driver_rows, "LIMIT", few):
                table.changes(since)
            assert table.paths.pop() == "Spark", (since, limit)
            assert f"limit of {limit.replace('_', ' ')}" in caplog.text
            caplog.clear()
        table.changes(since)
        assert table.paths.pop() == "driver"
    assert "changes were read on the driver" in caplog.text


def test_filters_and_columns_on_top(embedded_lake):
    table = Versioned(embedded_lake, properties=V3)
    table.sql("INSERT INTO {t} SELECT id, 'a' FROM range(0, 10, 1, 1)")
    frame = read_changes(table.lake, table.ref).where("id = 3").select("id", "_change_type")
    assert [tuple(row) for row in frame.collect()] == [(3, "insert")]
    assert "LocalTableScan" in frame._jdf.queryExecution().toString()
    total = table.lake.sql(f"SELECT sum(id) FROM {table.name} VERSION SINCE '2000-01-01'")
    assert total.collect()[0][0] == sum(range(10))
