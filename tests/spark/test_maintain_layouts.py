"""Maintenance of tables of all shapes: Z order, position deletes, changed partitions, nulls."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import neve
from neve.config import Settings
from neve.upkeep.plan import Step
from neve.upkeep.policy import compaction_policy
from tests.support.lakes import sqlite_settings
from tests.support.maintained import TRACES, data_files, names_by, with_policies, write


@pytest.fixture
def lake(embedded_lake, tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        yield lake


def test_a_policy_orders_days_along_a_z_curve(lake):
    written = write(lake, [0, 1])
    with_policies(lake, **{"otel.t*": {"zorder": ["service_name", "trace_id"]}})
    ((action,),) = [plan.actions for plan in lake.plan_maintenance()]
    assert action.effect == "12 files become about 1, ordered by service_name, trace_id"
    (report,) = lake.maintain()
    assert (report.rewritten_files, report.new_files) == (12, 1)
    assert names_by(lake, "PyIceberg") == written
    assert [plan.actions for plan in lake.plan_maintenance()] == [()]
    with_policies(lake, **{TRACES: {"zorder": ["servic"]}})
    assert "has no column servic" in lake.plan_maintenance()[0].error


def test_z_order_takes_the_files_that_were_planned_and_leaves_the_open_hour_alone(lake):
    policies = {"tables": {"shop.t": {"compact": True, "zorder": ["id"]}}, "min_small_files": 2}
    upkeep = Settings.model_validate({"upkeep": policies}).upkeep
    lake.settings = lake.settings.model_copy(update={"upkeep": upkeep})
    properties = "('format-version'='3', 'write.delete.mode'='merge-on-read')"
    partitions = f"PARTITIONED BY (days(at), kind) TBLPROPERTIES {properties}"
    for statement in (
        "CREATE NAMESPACE shop",
        f"CREATE TABLE shop.t (id BIGINT, at TIMESTAMP, kind STRING) {partitions}",
        "INSERT INTO shop.t SELECT id, TIMESTAMP '2026-01-05 10:00:00', 'x' FROM range(100)",
        "DELETE FROM shop.t WHERE id < 25",
        "INSERT INTO shop.t SELECT id, current_timestamp(), 'x' FROM range(100, 101)",
        "INSERT INTO shop.t SELECT id, current_timestamp(), 'x' FROM range(101, 102)",
    ):
        lake.sql(statement).collect()
    today = f"at_day={datetime.now(timezone.utc):%Y-%m-%d}"
    is_open = [path for path in data_files(lake, "shop.t") if today in str(path)]
    (plan,) = lake.plan_maintenance("shop.t")
    assert [action.step for action in plan.actions] == [Step.ZORDER]
    (report,) = lake.maintain("shop.t")
    assert (report.error, report.rewritten_files, report.left) == (None, 1, [])
    assert [path for path in data_files(lake, "shop.t") if today in str(path)] == is_open
    assert lake.health("shop.t")[0].deleted_rows == 0
    ids = [row.id for row in lake.sql("SELECT id FROM shop.t").collect()]
    assert sorted(ids) == list(range(25, 102))
    assert [plan.actions for plan in lake.plan_maintenance("shop.t")] == [()]


def test_position_deletes_of_a_partition_are_joined_once(lake, monkeypatch):
    with_policies(lake, **{"shop.p": {"compact": True}})
    policy = compaction_policy(lake.settings, "shop.p")
    few = replace(policy, max_delete_files=3)
    monkeypatch.setattr("neve.upkeep.observed_table.compaction_policy", lambda *_: few)
    properties = ["'format-version'='2'", "'write.delete.mode'='merge-on-read'"]
    properties += ["'write.delete.granularity'='partition'"]
    created = f"PARTITIONED BY (kind) TBLPROPERTIES ({', '.join(properties)})"
    kind = "CASE WHEN id % 2 = 0 THEN 'a' ELSE 'b' END"
    for statement in (
        "CREATE NAMESPACE shop",
        f"CREATE TABLE shop.p (id BIGINT, kind STRING) {created}",
        f"INSERT INTO shop.p SELECT id, {kind} FROM range(100)",
        *(f"DELETE FROM shop.p WHERE id IN ({2 * n}, {2 * n + 1})" for n in range(3)),
    ):
        lake.sql(statement).collect()
    (plan,) = lake.plan_maintenance("shop.p")
    assert [action.step for action in plan.actions] == [Step.POSITION_DELETES]
    (before,) = lake.health("shop.p")
    (report,) = lake.maintain(plans=[plan])
    assert (report.error, report.left, report.actions) == (None, [], 1)
    (after,) = lake.health("shop.p")
    assert (before.delete_files, after.delete_files, after.deleted_rows) == (6, 2, 6)
    assert [plan.actions for plan in lake.plan_maintenance("shop.p")] == [()]
    ids = [row.id for row in lake.sql("SELECT id FROM shop.p").collect()]
    assert sorted(ids) == list(range(6, 100))


def test_a_table_whose_partitions_and_columns_have_changed(lake):
    """Files are partitioned by a column that was dropped; the table is sorted by one with a dot."""
    policies = {"tables": {"shop.t": {"compact": True}}, "min_small_files": 2}
    upkeep = Settings.model_validate({"upkeep": policies}).upkeep
    lake.settings = lake.settings.model_copy(update={"upkeep": upkeep})
    columns = "(id BIGINT, kind STRING, `a.b` STRING)"
    for statement in (
        "CREATE NAMESPACE shop",
        f"CREATE TABLE shop.t {columns} PARTITIONED BY (kind) TBLPROPERTIES ('format-version'='3')",
        "ALTER TABLE shop.t WRITE LOCALLY ORDERED BY `a.b`",
        "INSERT INTO shop.t VALUES (4, 'x', 'd'), (2, 'x', 'b')",
        "INSERT INTO shop.t VALUES (1, 'x', 'a'), (3, 'x', 'c')",
        "ALTER TABLE shop.t REPLACE PARTITION FIELD kind WITH bucket(2, id)",
        "ALTER TABLE shop.t DROP COLUMN kind",
        "INSERT INTO shop.t VALUES (5, 'f')",
        "INSERT INTO shop.t VALUES (5, 'e')",
    ):
        lake.sql(statement).collect()
    rows = "SELECT *, _row_id, _last_updated_sequence_number FROM shop.t"
    before = sorted(lake.sql(rows).collect())
    (report,) = lake.maintain("shop.t")
    assert (report.error, report.rewritten_files, report.new_files) == (None, 4, 3)
    assert sorted(lake.sql(rows).collect()) == before
    for path in data_files(lake, "shop.t"):
        # By its place: Iceberg writes a dot in a name as `_x2E`.
        values = pq.read_table(path, partitioning=None).column(1).to_pylist()
        assert values == sorted(values)


def test_rewritten_files_have_nulls_where_the_sort_order_has_them(lake):
    lake.sql("CREATE NAMESPACE shop").collect()
    rows = [(kind, number) for kind in ("a", "b", None) for number in (1, 2, None)]
    for name, kind_order, number_order in (
        ("t", "DESC NULLS LAST", "ASC NULLS LAST"),
        ("u", "ASC NULLS FIRST", "DESC NULLS FIRST"),
    ):
        table = f"shop.{name}"
        with_policies(lake, **{table: {"compact": True}})
        lake.sql(f"CREATE TABLE {table} (kind STRING, number BIGINT)").collect()
        order = f"kind {kind_order}, number {number_order}"
        lake.sql(f"ALTER TABLE {table} WRITE LOCALLY ORDERED BY {order}").collect()
        arrow = lake.catalog().load_table(table)
        for some in (rows[::2], rows[1::2], *([row] for row in rows[:3])):
            kinds, numbers = zip(*some, strict=True)
            data = {"kind": pa.array(kinds, pa.string()), "number": pa.array(numbers, pa.int64())}
            arrow.append(pa.table(data))
        (report,) = lake.maintain(table)
        assert (report.rewritten_files, report.new_files, report.error) == (5, 1, None)
        (path,) = data_files(lake, table)
        written = [(row["kind"], row["number"]) for row in pq.read_table(path).to_pylist()]
        expected = lake.sql(f"SELECT kind, number FROM {table} ORDER BY {order}").collect()
        assert written == [tuple(row) for row in expected]
        assert len(written) == 12


def test_a_table_with_a_variant_column_is_maintained(lake):
    """PyIceberg reads no such table, and health and maintenance need none."""
    with_policies(lake, **{"shop.v": {"compact": True}})
    lake.sql("CREATE NAMESPACE shop")
    lake.sql("CREATE TABLE shop.v (id INT, doc VARIANT) TBLPROPERTIES ('format-version'='3')")
    for number in range(5):
        lake.sql(f"INSERT INTO shop.v VALUES ({number}, parse_json('{{\"n\": {number}}}'))")
    (before,) = lake.health("shop.v")
    assert (before.error, before.files) == (None, 5)
    (report,) = lake.maintain("shop.v")
    assert (report.error, report.rewritten_files, report.new_files) == (None, 5, 1)
    rows = lake.sql("SELECT id, variant_get(doc, '$.n', 'int') AS n FROM shop.v").collect()
    assert sorted((row.id, row.n) for row in rows) == [(number, number) for number in range(5)]
    assert lake.health("shop.v")[0].files == 1
