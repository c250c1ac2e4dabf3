"""PyIceberg's own expiry clears the parent of the oldest snapshot that it keeps."""

from __future__ import annotations

import pyarrow as pa
import pytest

import neve
from neve.errors import NotFoundError
from neve.versions.resolve import resolve_range
from tests.support.lakes import sqlite_settings

ROWS = pa.table({"id": pa.array([1], pa.int64())})


def test_a_history_that_pyiceberg_cut_is_not_whole(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        lake.catalog().create_namespace("shop")
        table = lake.catalog().create_table("shop.orders", ROWS.schema)
        for _ in range(3):
            table.append(ROWS)
        first, second, third = (each.snapshot_id for each in table.metadata.snapshots)
        table.maintenance.expire_snapshots().by_id(first).commit()
        metadata = lake.reader().read(("shop", "orders"))
        assert metadata.snapshots[second].get("parent-snapshot-id") is None
        with pytest.raises(NotFoundError, match="have expired") as told:
            resolve_range("shop.orders", metadata, None, None)
        assert f"the oldest version still there is {second}" in told.value.hint
        found = resolve_range("shop.orders", metadata, second, None)
        assert [each.snapshot_id for each in found.commits] == [third]
        # A follower that begins anew is told, too, and not given a part of the rows.
        with pytest.raises(NotFoundError, match="have expired"):
            next(iter(lake.follow("shop.orders", "a")))
