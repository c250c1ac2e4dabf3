"""PyIceberg's own expiry clears the parent of the oldest snapshot that it keeps."""

from __future__ import annotations

from datetime import datetime, timezone

import pyarrow as pa
import pytest

import neve
from neve.errors import NotFoundError
from neve.lake.table_reads import file_reader
from neve.versions.resolve import resolve_range, resolve_version
from tests.support.lakes import sqlite_settings

ROWS = pa.table({"id": pa.array([1], pa.int64())})


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    with neve.open(sqlite_settings(tmp_path_factory.mktemp("expired"))) as lake:
        lake.catalog().create_namespace("shop")
        yield lake


def upgrade(table):
    with table.transaction() as transaction:
        transaction.upgrade_table_version(2)


STEPS = {
    "append": lambda table: table.append(ROWS),
    "overwrite": lambda table: table.overwrite(ROWS),
    "empty": lambda table: table.delete("true"),
    "upgrade": upgrade,
}


@pytest.mark.parametrize("mode", ["changes", "appends"])
@pytest.mark.parametrize(
    ("name", "format_version", "past"),
    [
        ("appended", 2, "append append append"),
        ("overwritten_daily", 2, "append overwrite overwrite append"),
        ("emptied_and_filled_again", 2, "append empty append append"),
        ("upgraded", 1, "append upgrade append append"),
        ("upgraded_and_overwritten", 1, "append upgrade overwrite append"),
        ("version_1", 1, "append empty append append"),
    ],
)
def test_a_history_that_pyiceberg_cut_is_not_whole(lake, name, format_version, past, mode):
    identifier = f"shop.{name}_{mode}"
    properties = {"format-version": str(format_version)}
    table = lake.catalog().create_table(identifier, ROWS.schema, properties=properties)
    for step in past.split():
        STEPS[step](table)
    *old, second, third = (each.snapshot_id for each in table.metadata.snapshots)
    table.maintenance.expire_snapshots().by_ids(old).commit()
    metadata = lake.reader().read(tuple(identifier.split(".")))
    assert metadata.snapshots[second].get("parent-snapshot-id") is None
    for since in (None, "2000-01-01"):
        with pytest.raises(NotFoundError, match="may have expired") as told:
            resolve_range(identifier, metadata, since, None)
        assert f"the oldest version still there is {second}" in told.value.hint
    found = resolve_range(identifier, metadata, second, None)
    assert [each.snapshot_id for each in found.commits] == [third]
    # A follower that begins anew is told, too, and not given a part of the rows.
    with pytest.raises(NotFoundError, match="may have expired"):
        next(iter(lake.follow(identifier, "a", mode=mode)))


def test_a_table_that_was_replaced_has_a_beginning_and_no_time_before_it(lake):
    """The line before may have expired, so that nobody knows what the table was then."""
    table = lake.catalog().create_table("shop.replaced", ROWS.schema)
    table.append(ROWS)
    metadata = lake.reader().read(("shop", "replaced"))
    metadata.document["snapshots"][0]["sequence-number"] = 7
    read = file_reader(lake, lake.ref("shop.replaced"))
    assert len(resolve_range("shop.replaced", metadata, None, None, read=read).commits) == 1
    with pytest.raises(NotFoundError, match="may have expired"):
        resolve_range("shop.replaced", metadata, "2000-01-01", None, read=read)


def test_a_time_whose_snapshot_pyiceberg_expired_is_not_that_of_the_one_before(lake):
    """It takes single snapshots out of the history log, and leaves those before them."""
    table = lake.catalog().create_table("shop.gap", ROWS.schema)
    for _ in range(4):
        table.append(ROWS)
    first, second, third, fourth = (each.snapshot_id for each in table.metadata.snapshots)
    times = {each.snapshot_id: each.timestamp_ms for each in table.metadata.snapshot_log}
    table.maintenance.expire_snapshots().by_id(second).commit()
    metadata = lake.reader().read(("shop", "gap"))
    moments = {
        number: datetime.fromtimestamp(time / 1000, timezone.utc) for number, time in times.items()
    }
    for snapshot_id in (first, third, fourth):
        assert resolve_version("shop.gap", metadata, moments[snapshot_id]) == snapshot_id
    with pytest.raises(NotFoundError, match=f"lacks what came after {first}"):
        resolve_version("shop.gap", metadata, moments[second])
