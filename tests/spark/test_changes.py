"""What changed between two versions: every way in which rows come and go, and what is read for it.

Random histories are in test_changes_oracle.py; here each way stands alone.
"""

from __future__ import annotations

from collections import Counter

import pytest

from neve.errors import UnsupportedError, UsageError
from neve.lake.paths import local_path
from neve.versions.changes import read_changes
from tests.support.versioned import MERGE_ON_READ, Versioned, delete_by_equality, read_by_spark


@pytest.mark.parametrize(
    "properties",
    [
        "'format-version' = '1'",
        # As version 1; the tables of most tests below are such.
        pytest.param("'format-version' = '2'", marks=pytest.mark.soak),
        f"'format-version' = '2', 'write.delete.granularity' = 'partition', {MERGE_ON_READ}",
        f"'format-version' = '3', {MERGE_ON_READ}",
    ],
    ids=["v1", "v2 copy-on-write", "v2 position deletes", "v3 deletion vectors"],
)
def test_rows_that_are_updated_deleted_and_written_again(embedded_lake, properties):
    table = Versioned(embedded_lake, properties=properties)
    first = table.sql("INSERT INTO {t} SELECT id, 'a' FROM range(0, 6, 1, 1)")
    second = table.sql("UPDATE {t} SET name = 'b' WHERE id IN (1, 2)")
    third = table.sql("DELETE FROM {t} WHERE id IN (2, 3)")
    # The same values again: nothing has changed.
    last = table.sql("UPDATE {t} SET name = name WHERE id = 4")
    table.lake.sql(
        f"CALL system.rewrite_data_files(table => '{table.name}', "
        "options => map('rewrite-all', 'true'))"
    )
    updated = {("delete", 1, "a"), ("delete", 2, "a"), ("insert", 1, "b"), ("insert", 2, "b")}
    assert table.changes(first, second) == Counter(updated)
    assert table.changes(second, third) == Counter([("delete", 2, "b"), ("delete", 3, "a")])
    assert not table.changes(third, last)
    assert not table.changes(last)
    every = Counter(("insert", key, "a") for key in range(6))
    assert table.changes() == every + Counter(updated) + table.changes(second, third)
    # Row 2 came and went in between.
    assert table.changes(first, mode="net", keys=["id"]) == Counter(
        [
            ("update_preimage", 1, "a"),
            ("update_postimage", 1, "b"),
            ("delete", 2, "a"),
            ("delete", 3, "a"),
        ]
    )
    assert table.changes(third, mode="net") == Counter()
    with pytest.raises(UnsupportedError, match=rf"snapshot {second} \(overwrite\) deletes rows"):
        table.changes(mode="appends")
    assert table.changes(None, first, mode="appends") == every


def test_each_change_has_its_commit(embedded_lake):
    table = Versioned(embedded_lake)
    versions = [table.sql(f"INSERT INTO {{t}} VALUES ({key}, 'a')") for key in range(3)]
    rows = read_changes(table.lake, table.ref, mode="appends").collect()
    assert {row["id"]: row["_commit_snapshot_id"] for row in rows} == dict(enumerate(versions))
    logged = table.lake.sql(f"SELECT snapshot_id, made_current_at FROM {table.name}.history")
    assert {row["_commit_snapshot_id"]: row["_commit_timestamp"] for row in rows} == {
        row.snapshot_id: row.made_current_at for row in logged.collect()
    }


@pytest.mark.parametrize(
    "properties",
    ["'format-version' = '2'", f"'format-version' = '3', {MERGE_ON_READ}"],
    ids=["copy-on-write", "deletion vectors"],
)
def test_each_net_change_has_its_own_commit(embedded_lake, properties):
    """The one since which a row is there, or is not; whatever files were written again."""
    table = Versioned(embedded_lake, properties=properties)
    before = table.sql("INSERT INTO {t} SELECT id, 'a' FROM range(0, 8, 1, 1)")
    first = table.sql("UPDATE {t} SET name = 'b' WHERE id = 1")
    second = table.sql("DELETE FROM {t} WHERE id IN (2, 6)")
    table.sql("INSERT INTO {t} VALUES (9, 'a'), (6, 'a')")
    third = table.sql("UPDATE {t} SET name = 'c' WHERE id IN (9, 3)")
    fourth = table.sql("DELETE FROM {t} WHERE id = 6")
    table.lake.sql(
        f"CALL system.rewrite_data_files(table => '{table.name}', "
        "options => map('rewrite-all', 'true'))"
    )
    # Files are written again, and no row is another one.
    table.sql("UPDATE {t} SET name = name WHERE id IN (1, 3, 9)")
    rows = table.rows(before, mode="net", keys=["id"])
    assert {(row.id, row.name, row._change_type): row._commit_snapshot_id for row in rows} == {
        (1, "a", "update_preimage"): first,
        (1, "b", "update_postimage"): first,
        (2, "a", "delete"): second,
        (9, "c", "insert"): third,
        (3, "a", "update_preimage"): third,
        (3, "c", "update_postimage"): third,
        (6, "a", "delete"): fourth,
    }
    logged = table.lake.sql(f"SELECT snapshot_id, made_current_at FROM {table.name}.history")
    times = {row.snapshot_id: row.made_current_at for row in logged.collect()}
    assert all(row._commit_timestamp == times[row._commit_snapshot_id] for row in rows)


def test_net_changes_of_expired_commits_name_none(embedded_lake):
    table = Versioned(embedded_lake)
    before = table.sql("INSERT INTO {t} SELECT id, 'a' FROM range(0, 4, 1, 1)")
    table.sql("ALTER TABLE {t} CREATE TAG start")
    gone = table.sql("DELETE FROM {t} WHERE id = 0")
    table.sql("INSERT INTO {t} VALUES (8, 'a')")
    last = table.sql("UPDATE {t} SET name = 'b' WHERE id IN (1, 8)")
    table.lake.sql(
        f"CALL system.expire_snapshots(table => '{table.name}', snapshot_ids => array({gone}))"
    )
    rows = table.rows(before, mode="net")
    assert {(row.id, row.name, row._commit_snapshot_id) for row in rows} == {
        (0, "a", None),
        (1, "a", last),
        (1, "b", last),
        (8, "b", last),
    }
    assert {row._commit_timestamp is None for row in rows if row.id == 0} == {True}


def test_a_table_without_a_uuid(embedded_lake):
    """Format version 1 allows it."""
    table = Versioned(embedded_lake, properties="'format-version' = '1'")
    first = table.sql("INSERT INTO {t} VALUES (1, 'a'), (2, 'a')")
    table.sql("DELETE FROM {t} WHERE id = 1")
    document = table.metadata()
    del document["table-uuid"]
    table.replace_metadata(document)
    assert table.changes() == Counter([("insert", 1, "a"), ("insert", 2, "a"), ("delete", 1, "a")])
    assert table.changes(first, mode="net") == Counter([("delete", 1, "a")])


def test_only_changed_files_are_read(embedded_lake):
    """A file that did not change may as well not exist; filters and columns reach the scan."""
    table = Versioned(embedded_lake, properties=f"'format-version' = '3', {MERGE_ON_READ}")
    table.sql("INSERT INTO {t} SELECT id, 'old' FROM range(0, 1000, 1, 1)")
    unchanged = table.files()
    table.sql("INSERT INTO {t} SELECT id, 'touched' FROM range(1000, 1010, 1, 1)")
    before = table.version()
    table.sql("INSERT INTO {t} SELECT id, 'new' FROM range(2000, 2010, 1, 1)")
    table.sql("DELETE FROM {t} WHERE id = 1005")
    for path in unchanged:
        local_path(path).unlink()
    expected = Counter(("insert", key, "new") for key in range(2000, 2010))
    expected["delete", 1005, "touched"] = 1
    assert table.changes(before) == expected
    with read_by_spark():
        frame = read_changes(table.lake, table.ref, before).where("id = 2003").select("id")
    plan = frame._jdf.queryExecution().toString()
    # One scan for the added file, and one for the file that rows were deleted from.
    assert plan.count("filters=id IS NOT NULL, id = 2003") == 2
    assert [row.id for row in frame.collect()] == [2003]


def test_equality_deletes_are_found_by_comparing(embedded_lake, tmp_path):
    table = Versioned(embedded_lake, properties=f"'format-version' = '2', {MERGE_ON_READ}")
    first = table.sql("INSERT INTO {t} SELECT id, 'a' FROM range(0, 6, 1, 1)")
    delete_by_equality(table, tmp_path / "deletes.parquet", 2, 3)
    second = table.version()
    # Such a key may come back, and such a row is not deleted twice.
    third = table.sql("INSERT INTO {t} VALUES (2, 'b')")
    last = table.sql("DELETE FROM {t} WHERE id IN (2, 3, 4)")
    assert table.changes(first, second) == Counter([("delete", 2, "a"), ("delete", 3, "a")])
    assert table.changes(second, third) == Counter([("insert", 2, "b")])
    assert table.changes(third, last) == Counter([("delete", 2, "b"), ("delete", 4, "a")])
    assert table.changes(first, mode="net") == Counter(("delete", key, "a") for key in (2, 3, 4))
    # The plan says that files are compared; an append beside them needs none of it.
    assert [one.number for one in table.plan(first).comparisons] == [0, 2]


def test_columns_and_partitions_that_change_inside_the_range(embedded_lake):
    table = Versioned(
        embedded_lake,
        "id INT, name STRING, gone STRING, price DECIMAL(5,2), day DATE, raw BINARY",
        clauses="PARTITIONED BY (day, truncate(2, name), truncate(4, price), raw)",
    )
    first = table.sql("INSERT INTO {t} VALUES (1, 'abc', 'x', 1.25, DATE '2026-11-01', X'01FF')")
    for change in (
        "ALTER COLUMN id TYPE BIGINT",
        "RENAME COLUMN name TO other",
        "RENAME COLUMN other TO Name",
        "DROP COLUMN gone",
        "ALTER COLUMN price TYPE DECIMAL(9,2)",
        "ADD COLUMN extra STRUCT<x: DOUBLE>",
        "REPLACE PARTITION FIELD day WITH bucket(4, id)",
    ):
        table.sql("ALTER TABLE {t} " + change)
    table.sql(
        "INSERT INTO {t} VALUES "
        "(2, 'abd', 1000000.25, DATE '2026-11-02', NULL, named_struct('x', -0.0D))"
    )
    table.sql("DELETE FROM {t} WHERE id = 1")
    rows = [tuple(row)[:-2] for row in read_changes(table.lake, table.ref).collect()]
    assert sorted(row[-1] for row in rows) == ["delete", "insert", "insert"]
    assert {row[0]: row[5] for row in rows} == {1: None, 2: (-0.0,)}
    assert {type(row[0]) for row in rows} == {int}
    # An end in the past has the columns of then.
    then = read_changes(table.lake, table.ref, until=first)
    assert then.columns[:6] == ["id", "name", "gone", "price", "day", "raw"]
    assert [row["gone"] for row in then.collect()] == ["x"]


@pytest.mark.parametrize("one_task_bytes", [0, 8 * 1024 * 1024])
def test_values_that_grouping_confuses(embedded_lake, monkeypatch, one_task_bytes):
    """Cancelled are only the same values: 0.0 and -0.0 are two, maps have no order."""
    monkeypatch.setattr("neve.versions.spark_rows._ONE_TASK_BYTES", one_task_bytes)
    table = Versioned(
        embedded_lake,
        "id INT, d DOUBLE, m MAP<STRING, DOUBLE>, v VARIANT",
        "'format-version' = '3'",
    )
    first = table.sql(
        "INSERT INTO {t} VALUES "
        "(1, 0.0D, map('a', 1.0D, 'b', 2.0D), parse_json('1')), "
        "(2, double('NaN'), map('a', -0.0D), parse_json('{\"x\": 1}')), (3, 1.0D, NULL, NULL)"
    )
    same = table.sql(
        "INSERT OVERWRITE {t} VALUES "
        "(1, 0.0D, map('b', 2.0D, 'a', 1.0D), parse_json('1')), "
        "(2, double('NaN'), map('a', -0.0D), parse_json('{\"x\": 1}')), (3, 1.0D, NULL, NULL)"
    )
    assert not read_changes(table.lake, table.ref, first, same).collect()
    table.sql(
        "INSERT OVERWRITE {t} VALUES "
        "(1, -0.0D, map('b', 2.0D, 'a', 1.0D), parse_json('1')), "
        "(2, double('NaN'), map('a', 0.0D), parse_json('{\"x\": 1}')), "
        "(3, 1.0D, NULL, parse_json('null'))"
    )
    rows = read_changes(table.lake, table.ref, same, keys=["id"]).collect()
    assert sorted((row["id"], row["_change_type"]) for row in rows) == [
        (key, kind) for key in (1, 2, 3) for kind in ("update_postimage", "update_preimage")
    ]


def test_doubled_rows_and_doubled_keys(embedded_lake):
    table = Versioned(embedded_lake)
    first = table.sql("INSERT INTO {t} VALUES (1, 'a'), (1, 'a'), (1, 'a'), (2, 'a'), (2, 'b')")
    table.sql("INSERT OVERWRITE {t} VALUES (1, 'a'), (2, 'a'), (2, 'c')")
    assert table.changes(first, keys=["id"]) == Counter(
        {("delete", 1, "a"): 2, ("update_preimage", 2, "b"): 1, ("update_postimage", 2, "c"): 1}
    )
    with pytest.raises(UsageError, match=r"t_\w+\.t has no column nmae to be a key") as told:
        table.changes(first, keys=["nmae"])
    assert "id, name" in told.value.hint


def test_identifier_fields_are_keys(embedded_lake):
    table = Versioned(embedded_lake, columns="id BIGINT NOT NULL, name STRING")
    table.sql("ALTER TABLE {t} SET IDENTIFIER FIELDS id")
    first = table.sql("INSERT INTO {t} VALUES (1, 'a')")
    table.sql("UPDATE {t} SET name = 'b'")
    assert table.changes(first) == Counter(
        [("update_preimage", 1, "a"), ("update_postimage", 1, "b")]
    )


def test_branches_and_rollbacks(embedded_lake):
    table = Versioned(embedded_lake)
    first = table.sql("INSERT INTO {t} VALUES (1, 'a')")
    table.sql("ALTER TABLE {t} CREATE BRANCH work")
    table.lake.sql(f"INSERT INTO {table.name}.branch_work VALUES (2, 'b')")
    table.sql("INSERT INTO {t} VALUES (3, 'c')")
    table.lake.sql(
        f"CALL system.rollback_to_snapshot(table => '{table.name}', snapshot_id => {first})"
    )
    table.sql("INSERT INTO {t} VALUES (4, 'd')")
    assert table.changes() == Counter([("insert", 1, "a"), ("insert", 4, "d")])
    assert table.changes(first, "work") == Counter([("insert", 2, "b")])


def test_a_table_without_changes(embedded_lake):
    table = Versioned(embedded_lake)
    assert table.changes() == Counter()
    first = table.sql("INSERT INTO {t} VALUES (1, 'a')")
    for mode in ("changes", "net", "appends"):
        assert table.changes(first, mode=mode) == Counter()
    with pytest.raises(UsageError, match="there is no mode 'all'"):
        table.changes(mode="all")


def test_a_table_that_was_replaced_begins_anew(embedded_lake):
    """Its first snapshot has no parent, and did not lose one."""
    table = Versioned(embedded_lake)
    table.sql("INSERT INTO {t} VALUES (1, 'a'), (2, 'a')")
    table.sql("CREATE OR REPLACE TABLE {t} USING iceberg AS SELECT 3L AS id, 'b' AS name")
    table.sql("DELETE FROM {t} WHERE id = 3")
    assert table.changes() == Counter([("insert", 3, "b"), ("delete", 3, "b")])
