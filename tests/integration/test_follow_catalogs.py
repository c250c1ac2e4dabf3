"""Following on every catalog: a tag moves once, also when the answer to its commit is lost."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest

from neve.errors import ConflictError
from tests.support.catalog_faults import FAULTS

ESSENTIAL = ("409", "504", "dropped after it was applied", "sent twice")


@pytest.mark.parametrize("kind", ["postgres", "rest", "s3tables"])
def test_a_follower_commits_and_keeps_a_table(request, embedded_lake, kind):
    lake = request.getfixturevalue(f"{kind}_lake")
    namespace = f"t_{uuid.uuid4().hex[:12]}"
    lake.catalog().create_namespace(namespace)
    orders = f"{namespace}.orders"
    lake.sql(
        f"CREATE TABLE {orders} (id BIGINT, v STRING) USING iceberg TBLPROPERTIES ("
        "'format-version' = '3', 'write.delete.mode' = 'merge-on-read')"
    )
    lake.sql(f"INSERT INTO {orders} SELECT id, 'a' FROM range(0, 4, 1, 1)")
    (batch,), (other,) = lake.follow(orders, "a"), lake.follow(orders, "a")
    batch.commit()
    with pytest.raises(ConflictError, match="by somebody else"):
        other.commit()
    lake.follow(orders, "copy").to_table(f"{namespace}.copy", keys=["id"])
    lake.sql(f"DELETE FROM {orders} WHERE id = 2")
    report = lake.follow(orders, "copy").to_table(f"{namespace}.copy", keys=["id"])
    assert (report.batches, report.rows) == (1, 1)
    copied = lake.sql(f"SELECT id FROM {namespace}.copy").collect()
    assert sorted(row[0] for row in copied) == [0, 1, 3]
    assert [(each.name, each.lag_commits) for each in lake.followers(orders)] == [
        ("a", 1),
        ("copy", 0),
    ]
    lake.drop_follower(orders, "a")
    assert [each.name for each in lake.followers() if each.table == orders] == ["copy"]


@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=() if each in ESSENTIAL else pytest.mark.soak) for each in FAULTS],
)
def test_a_move_that_goes_wrong_is_made_once(faulty_lake, faults, name):
    namespace = f"t_{uuid.uuid4().hex[:12]}"
    catalog = faulty_lake.catalog()
    catalog.create_namespace(namespace)
    rows = pa.table({"id": [1]})
    table = f"{namespace}.orders"
    catalog.create_table(table, rows.schema).append(rows)
    (batch,), (other,) = faulty_lake.follow(table, "a"), faulty_lake.follow(table, "a")
    faults.expect(namespace, {1: FAULTS[name]})
    batch.commit()
    (state,) = faulty_lake.followers(table)
    assert state.snapshot_id == batch.until
    with pytest.raises(ConflictError, match="moved to snapshot"):
        other.commit()
