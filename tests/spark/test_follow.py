"""A follower reads every change once, batch after batch, and its tag says how far it has come."""

from __future__ import annotations

import uuid

import pytest

from neve.errors import UsageError
from neve.lake.follower_tags import TAG_PREFIX


@pytest.fixture
def lake(embedded_lake):
    return embedded_lake


@pytest.fixture
def orders(lake):
    return new_table(lake)


def new_table(lake, version=2):
    name = f"f_{uuid.uuid4().hex[:12]}.orders"
    lake.sql(f"CREATE NAMESPACE {name.split('.')[0]}")
    lake.sql(
        f"CREATE TABLE {name} (id BIGINT, amount INT) USING iceberg TBLPROPERTIES ("
        f"'format-version' = '{version}', 'write.delete.mode' = 'merge-on-read', "
        "'write.merge.mode' = 'merge-on-read')"
    )
    return name


def insert(lake, table, *ids):
    rows = ", ".join(f"({number}, {number * 10})" for number in ids)
    lake.sql(f"INSERT INTO {table} VALUES {rows}")
    return head(lake, table)


def head(lake, table):
    return lake.table(table).current_snapshot_id


def ids(batch):
    return sorted((row["id"], row["_change_type"]) for row in batch.rows.collect())


def tag(lake, table, name="shop"):
    return lake.table(table).refs.get(f"{TAG_PREFIX}{name}")


@pytest.mark.parametrize("version", [2, 3])
def test_batches_begin_where_the_last_commit_ended(lake, version):
    orders = new_table(lake, version)
    first, second = insert(lake, orders, 1), insert(lake, orders, 2)
    follower = lake.follow(orders, "shop", max_commits=1)
    one, two = follower
    assert (one.since, one.until, two.since, two.until) == (None, first, first, second)
    assert tag(lake, orders) is None
    one.commit()
    assert tag(lake, orders) == first == follower.position
    (again,) = lake.follow(orders, "shop", since=second)
    assert (again.since, again.until, ids(again)) == (first, second, [(2, "insert")])
    two.commit()
    two.commit()
    with pytest.raises(UsageError, match="is committed"):
        one.commit()
    lake.sql(f"DELETE FROM {orders} WHERE id = 1")
    (batch,) = lake.follow(orders, "shop")
    assert ids(batch) == [(1, "delete")]
    batch.commit()
    assert list(lake.follow(orders, "shop")) == []
    assert lake.sql(f"SELECT count(*) FROM {orders}").collect()[0][0] == 1
