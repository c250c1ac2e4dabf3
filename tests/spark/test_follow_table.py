"""`to_table` keeps a table exactly once, whoever dies, and whoever writes there meanwhile."""

from __future__ import annotations

import random
import uuid

import pytest

from neve import failpoints
from neve.errors import NotFoundError, UnsupportedError, UsageError
from neve.lake.follower_tags import TAG_PREFIX
from neve.query.run import run

BY_HOUR = """
    SELECT date_trunc('HOUR', at) AS hour, sum(sign) AS orders, sum(sign * amount) AS amount
    FROM (SELECT *, IF(_change_type IN ('insert', 'update_postimage'), 1, -1) AS sign FROM changes)
    GROUP BY 1
"""
POINTS = [name for name in failpoints.POINTS if name.startswith("follow.")]


@pytest.fixture
def lake(embedded_lake):
    return embedded_lake


@pytest.fixture
def namespace(lake):
    name = f"f_{uuid.uuid4().hex[:12]}"
    lake.sql(f"CREATE NAMESPACE {name}")
    return name


@pytest.fixture
def orders(lake, namespace):
    """A table as mirrors are: format version 3, keys in the schema, deletes beside the files."""
    name = f"{namespace}.orders"
    lake.sql(
        f"CREATE TABLE {name} (id BIGINT NOT NULL, at TIMESTAMP, amount DECIMAL(10, 2)) "
        "USING iceberg TBLPROPERTIES ('format-version' = '3', "
        "'write.delete.mode' = 'merge-on-read', 'write.merge.mode' = 'merge-on-read')"
    )
    lake.sql(f"ALTER TABLE {name} SET IDENTIFIER FIELDS id")
    return name


def merge(lake, table, rows, deleted=()):
    """Change a table as a merge does: rows by their ids, in one commit."""
    source = [
        f"({number}, TIMESTAMP '2026-11-16 {hour:02}:30:00', {amount}, false)"
        for number, hour, amount in rows
    ] + [f"({number}, NULL, NULL, true)" for number in deleted]
    lake.sql(
        f"MERGE INTO {table} t USING (SELECT * FROM VALUES {', '.join(source)} "
        "AS s (id, at, amount, gone)) s ON t.id = s.id WHEN MATCHED AND s.gone THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET t.at = s.at, t.amount = s.amount "
        "WHEN NOT MATCHED AND NOT s.gone THEN INSERT (id, at, amount) "
        "VALUES (s.id, s.at, s.amount)"
    )


def rows_of(lake, statement):
    """Read on DuckDB, which takes a tenth of the time."""
    answer = run(lake, statement, "duckdb")
    rows = [row for batch in answer.batches for row in batch.to_pylist()]
    return sorted((tuple(row.values()) for row in rows), key=repr)


def content(lake, table):
    return rows_of(lake, f"SELECT id, at, amount FROM {table}")


def by_hour(lake, orders):
    return rows_of(
        lake,
        f"SELECT date_trunc('HOUR', at) AS hour, count(*) AS orders, sum(amount) AS amount "
        f"FROM {orders} GROUP BY 1",
    )


def tag(lake, table, name):
    return lake.table(table).refs.get(f"{TAG_PREFIX}{name}")


def head(lake, table):
    return lake.table(table).current_snapshot_id


def test_a_copy_and_an_aggregate_follow_random_changes(lake, namespace, orders):
    chance = random.Random(4)
    copy, hours = f"{namespace}.copy", f"{namespace}.hours"

    def keep():
        report = lake.follow(orders, "copy", max_commits=2).to_table(copy)
        lake.follow(orders, "hours").to_table(
            hours,
            keys=["hour"],
            transform=BY_HOUR,
            add=["orders", "amount"],
            count="orders",
        )
        assert content(lake, copy) == content(lake, orders)
        assert rows_of(lake, f"SELECT hour, orders, amount FROM {hours}") == by_hour(lake, orders)
        return report

    for turn in range(2):
        for _ in range(1 + turn):
            rows = [
                (number, chance.randrange(4), chance.randrange(100))
                for number in chance.sample(range(12), 5)
            ]
            merge(lake, orders, rows, deleted=chance.sample(range(12, 14), 1))
            lake.sql(f"DELETE FROM {orders} WHERE id % 5 = {turn}")
        keep()
    lake.sql(
        f"CALL system.rewrite_data_files(table => '{orders}', "
        "options => map('rewrite-all', 'true'))"
    )
    assert keep().rows == 0
    assert tag(lake, orders, "copy") == tag(lake, orders, "hours") == head(lake, orders)
    lake.sql(f"DELETE FROM {orders}")
    keep()
    assert content(lake, copy) == []
    # One mirror feeds another: the copy is followed like any other table.
    merge(lake, orders, [(1, 1, 1), (2, 2, 2)])
    keep()
    lake.follow(copy, "copy", keys=["id"]).to_table(f"{namespace}.second")
    assert content(lake, f"{namespace}.second") == content(lake, orders)


@pytest.mark.parametrize(
    "first",
    [pytest.param(name, marks=() if name == POINTS[0] else pytest.mark.soak) for name in POINTS],
)
def test_a_batch_is_written_once_whoever_dies(lake, namespace, orders, first):
    """Once while the table is made, and then at every step while it lives."""
    hours = f"{namespace}.hours"
    follow = lambda: lake.follow(orders, "hours").to_table(  # noqa: E731 - called three times
        hours, keys=["hour"], transform=BY_HOUR, add=["orders", "amount"], count="orders"
    )
    merge(lake, orders, [(1, 1, 10), (2, 1, 20)])
    with pytest.raises(failpoints.PowerCut), failpoints.armed(first):
        follow()
    for number, point in enumerate(POINTS, 3):
        merge(lake, orders, [(1, 1, 10 * number), (number, 2, 5)], deleted=[number - 1])
        with pytest.raises(failpoints.PowerCut), failpoints.armed(point):
            follow()
        assert follow().until == head(lake, orders) == tag(lake, orders, "hours")
        assert rows_of(lake, f"SELECT hour, orders, amount FROM {hours}") == by_hour(lake, orders)


def test_another_writer_and_another_process_in_between(lake, namespace, orders):
    copy = f"{namespace}.copy"
    merge(lake, orders, [(1, 1, 10)])
    lake.follow(orders, "copy").to_table(copy)
    merge(lake, orders, [(2, 1, 20)])
    others = []

    def other_writer(changes):
        if not others:
            others.append(lake.sql(f"INSERT INTO {copy} VALUES (9, NULL, 9)"))
            # The same follower in another process, which is faster.
            lake.follow(orders, "copy").to_table(copy, transform=lambda rows: rows)
        return changes

    merge(lake, orders, [(3, 1, 30)])
    report = lake.follow(orders, "copy").to_table(copy, transform=other_writer)
    assert (report.batches, report.until) == (0, head(lake, orders))
    assert [row[0] for row in content(lake, copy)] == [1, 2, 3, 9]
    assert not [ref for ref in lake.table(copy).refs if ref.startswith("neve-follow")]


def test_the_position_survives_expiry_and_goes_back_with_a_rollback(lake, namespace, orders):
    copy = f"{namespace}.copy"
    merge(lake, orders, [(1, 1, 10)])
    lake.follow(orders, "copy").to_table(copy)
    before = head(lake, copy)
    merge(lake, orders, [(2, 1, 20)])
    lake.follow(orders, "copy").to_table(copy)
    lake.sql(f"CALL system.rollback_to_snapshot('{copy}', {before})")
    assert [row[0] for row in content(lake, copy)] == [1]
    lake.follow(orders, "copy").to_table(copy)
    assert content(lake, copy) == content(lake, orders)
    lake.sql(f"INSERT INTO {copy} VALUES (9, NULL, 9)")
    lake.sql(
        f"CALL system.expire_snapshots(table => '{copy}', "
        "older_than => TIMESTAMP '2099-01-01 00:00:00', retain_last => 1)"
    )
    assert lake.table(copy).snapshots == 1
    report = lake.follow(orders, "copy").to_table(copy)
    assert (report.batches, report.until) == (0, head(lake, orders))
    lake.sql(f"DROP TABLE {copy}")
    with pytest.raises(NotFoundError, match="does not exist: it was dropped") as told:
        lake.follow(orders, "copy").to_table(copy)
    assert f"neve follow drop {orders} copy" in told.value.hint
    lake.drop_follower(orders, "copy")
    lake.follow(orders, "copy").to_table(copy)
    assert content(lake, copy) == content(lake, orders)


def test_columns_that_were_added_widened_and_renamed(lake, namespace, orders):
    copy = f"{namespace}.copy"
    merge(lake, orders, [(1, 1, 10), (2, 1, 20)])
    lake.follow(orders, "copy").to_table(copy)
    lake.sql(f"ALTER TABLE {orders} RENAME COLUMN amount TO price")
    lake.sql(f"ALTER TABLE {orders} ALTER COLUMN price TYPE DECIMAL(20, 2)")
    lake.sql(f"ALTER TABLE {orders} ADD COLUMN note STRING")
    lake.sql(f"UPDATE {orders} SET note = 'new', price = 12345678901234 WHERE id = 2")
    lake.follow(orders, "copy").to_table(copy)
    statement = "SELECT id, price, note FROM "
    assert rows_of(lake, f"{statement}{copy} WHERE id = 2") == rows_of(
        lake, f"{statement}{orders} WHERE id = 2"
    )
    assert lake.sql(f"{statement}{copy} WHERE id = 1").collect()[0]["price"] == 10


def test_fields_inside_columns(lake, namespace):
    """Fields that were added and widened come along; for others the table is filled anew."""
    table, copy = f"{namespace}.t", f"{namespace}.copy"
    lake.sql(
        f"CREATE TABLE {table} (id INT, pair STRUCT<a: INT>, list ARRAY<STRUCT<x: INT>>) "
        "USING iceberg"
    )

    def follow():
        lake.follow(table, "copy", keys=["id"]).to_table(copy)
        columns = "id, pair, to_json(list) AS list"
        told = [
            sorted(map(repr, lake.sql(f"SELECT {columns} FROM {name}").collect()))
            for name in (table, copy)
        ]
        assert told[0] == told[1]

    lake.sql(f"INSERT INTO {table} VALUES (1, struct(1), array(struct(1))), (2, NULL, NULL)")
    follow()
    for change in (
        "ADD COLUMN pair.b STRING",
        "ALTER COLUMN pair.a TYPE BIGINT",
        "ADD COLUMN list.element.y STRUCT<z: INT>",
    ):
        lake.sql(f"ALTER TABLE {table} {change}")
    lake.sql(
        f"INSERT INTO {table} VALUES (3, named_struct('a', 3000000000L, 'b', 'x'), "
        "array(named_struct('x', 1, 'y', named_struct('z', 2))))"
    )
    lake.sql(f"UPDATE {table} SET pair.b = 'new' WHERE id = 1")
    follow()
    lake.sql(f"ALTER TABLE {table} RENAME COLUMN pair.b TO c")
    lake.sql(f"INSERT INTO {table} VALUES (4, named_struct('a', 1L, 'c', 'x'), NULL)")
    with pytest.raises(UnsupportedError, match="inside column pair were renamed") as told:
        follow()
    assert f"drop it and run: neve follow drop {table} copy" in told.value.hint
    lake.sql(f"DROP TABLE {copy}")
    lake.drop_follower(table, "copy")
    follow()


def test_a_table_that_pyiceberg_cannot_read_is_followed(lake, namespace):
    table, copy = f"{namespace}.t", f"{namespace}.copy"
    lake.sql(
        f"CREATE TABLE {table} (id INT, v VARIANT) USING iceberg "
        "TBLPROPERTIES ('format-version' = '3')"
    )
    for number in range(2):
        lake.sql(f"INSERT INTO {table} SELECT {number}, parse_json('{{\"a\": {number}}}')")
        lake.follow(table, "copy", keys=["id"]).to_table(copy)
    (batch,) = lake.follow(table, "rows")
    assert batch.rows.count() == 2
    batch.commit()
    assert {state.name: state.lag_commits for state in lake.followers(table)} == {
        "copy": 0,
        "rows": 0,
    }
    told = lake.sql(f"SELECT id, to_json(v) FROM {copy} ORDER BY id").collect()
    assert [tuple(row) for row in told] == [(0, '{"a":0}'), (1, '{"a":1}')]
    lake.drop_follower(table, "rows")


def test_what_a_copy_cannot_follow_is_told_and_a_new_copy_can(lake, namespace, orders):
    copy = f"{namespace}.copy"
    merge(lake, orders, [(1, 1, 10)])
    first = lake.table(orders).refs["main"]
    lake.follow(orders, "copy").to_table(copy)
    # Rows that are there have no amount any more, and no change of a row says so.
    lake.sql(f"ALTER TABLE {orders} DROP COLUMN amount")
    lake.sql(f"ALTER TABLE {orders} ADD COLUMN amount DECIMAL(10, 2)")
    merge(lake, orders, [(2, 1, 20)])
    with pytest.raises(UnsupportedError, match="column amount is another one") as told:
        lake.follow(orders, "copy").to_table(copy)
    for _ in range(2):
        assert f"drop it and run: neve follow drop {orders} copy" in told.value.hint
        lake.sql(f"DROP TABLE {copy}")
        lake.drop_follower(orders, "copy")
        lake.follow(orders, "copy").to_table(copy)
        assert content(lake, copy) == content(lake, orders)
        lake.sql(f"CALL system.rollback_to_snapshot('{orders}', {first})")
        merge(lake, orders, [(3, 1, 30)])
        with pytest.raises(NotFoundError, match="rolled back") as told:
            lake.follow(orders, "copy").to_table(copy)


def test_appends_go_into_a_table_as_they_are(lake, namespace, orders):
    log = f"{namespace}.log"
    for _ in range(2):
        lake.sql(f"INSERT INTO {orders} VALUES (1, NULL, 1)")
        lake.follow(orders, "log", mode="appends").to_table(log)
    assert content(lake, log) == content(lake, orders) == [(1, None, 1)] * 2
    lake.sql(f"DELETE FROM {orders}")
    with pytest.raises(UnsupportedError, match="deletes rows"):
        lake.follow(orders, "log", mode="appends").to_table(log)
    assert content(lake, log) == [(1, None, 1)] * 2


def test_what_does_not_fit_is_refused(lake, namespace, orders):
    merge(lake, orders, [(1, 1, 10)])
    with pytest.raises(UsageError, match="cannot follow itself"):
        lake.follow(orders, "a").to_table(orders)
    with pytest.raises(UsageError, match="the rows have no column hour"):
        lake.follow(orders, "a").to_table(f"{namespace}.x", keys=["hour"])
    with pytest.raises(UsageError, match="add needs keys"):
        lake.follow(orders, "a").to_table(f"{namespace}.x", add=["amount"])
    lake.follow(orders, "a").to_table(f"{namespace}.x")
    with pytest.raises(UsageError, match="follower a keeps table"):
        lake.follow(orders, "a").to_table(f"{namespace}.y")
    with pytest.raises(UsageError, match="follower a keeps table"):
        list(lake.follow(orders, "a"))
    lake.sql(f"INSERT INTO {orders} VALUES (5, NULL, 1), (5, NULL, 2)")
    with pytest.raises(UsageError, match="keys id are not unique"):
        lake.follow(orders, "a").to_table(f"{namespace}.x")
    (batch,) = lake.follow(orders, "b", until=lake.table(orders).refs["neve_follow_a"])
    batch.commit()
    with pytest.raises(UsageError, match="is a consumer without a table"):
        lake.follow(orders, "b").to_table(f"{namespace}.z")
    # The same name at another table of that name: the position tells.
    lake.sql(f"DROP TABLE {orders}")
    lake.sql(f"CREATE TABLE {orders} (id BIGINT) USING iceberg")
    lake.sql(f"INSERT INTO {orders} VALUES (1)")
    with pytest.raises(NotFoundError, match="dropped and created again"):
        lake.follow(orders, "a", keys=["id"]).to_table(f"{namespace}.x")
