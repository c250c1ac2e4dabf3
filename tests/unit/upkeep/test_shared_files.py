"""Files that two tables name stay when one of them expires: clones, in any configured catalog."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from pyiceberg.table.update import SetLocationUpdate

import neve
from neve.config import Settings
from neve.lake import metadata_reader
from neve.upkeep.maintainer import Maintainer
from neve.upkeep.plan import Step
from neve.upkeep.spec import upkeep_spec
from neve.upkeep.upkeep import Upkeep
from tests.support.appending import Appender
from tests.support.lakes import sqlite_settings

DAY = 86_400.0
POLICY = {"retain_min": 1, "keep_hourly": 0, "keep_daily": 0, "tables": {"*": {"expire": True}}}


@pytest.fixture
def lake(tmp_path):
    further = {"type": "sqlite", "uri": f"sqlite:///{tmp_path}/further.db"}
    further["warehouse"] = str(tmp_path / "further")
    document = {**sqlite_settings(tmp_path).model_dump(), "upkeep": POLICY}
    document["buffer"] = {"location": str(tmp_path / "buffer")}
    with neve.open(Settings.model_validate({**document, "catalogs": {"archive": further}})) as lake:
        lake.catalog("archive")
        yield lake


def overwritten(lake, namespace="ns", **properties):
    """Make a table whose old versions have files that the newest one has not."""
    appender = Appender(lake, namespace)
    if properties:
        appender.load().transaction().set_properties(properties).commit_transaction()
    appender.append(1)
    table = appender.load()
    for _ in range(12):
        table.overwrite(table.scan().to_arrow())
    return table


def clone(lake, table, catalog="lake"):
    """Register a table's metadata file a second time."""
    target = lake.catalog(catalog)
    target.create_namespace_if_not_exists("copies")
    return target.register_table(("copies", "t"), table.metadata_location)


def expire(lake, seconds_later=DAY):
    upkeep = Upkeep(lake, upkeep_spec(lake.settings), clock=lambda: time.time() + seconds_later)
    report = upkeep.run()
    assert report.failures == {}
    return report.expired_snapshots


def is_readable(table):
    """Read every version that a table has."""
    versions = [each.snapshot_id for each in table.metadata.snapshots]
    scans = [table.scan(snapshot_id=each).to_arrow() for each in versions]
    # An overwrite makes two versions, the first of which has no row.
    return len(scans) > 0 and all(set(scan["id"].to_pylist()) <= {1} for scan in scans)


def data_files(table):
    place = table.properties.get("write.data.path") or table.location()
    return list(Path(urlsplit(place).path).rglob("*.parquet"))


@pytest.mark.parametrize("catalog", ["lake", "archive"])
def test_files_of_a_clone_stay_when_the_original_expires(lake, catalog, caplog):
    table = overwritten(lake)
    copy = clone(lake, table, catalog)
    if catalog == "lake":
        # Both expire in one run.
        copy.transaction().set_properties({"gc.enabled": "false"}).commit_transaction()
        copy.refresh()
    before = len(data_files(table))
    caplog.set_level("INFO", "neve.upkeep")
    assert expire(lake) >= 20
    assert is_readable(copy)
    assert len(data_files(table)) == before
    name = "copies.t" if catalog == "lake" else "archive.copies.t"
    assert f"files are left: its location is shared with table {name}" in caplog.text


def test_files_of_the_original_stay_when_a_clone_with_a_place_of_its_own_expires(lake, tmp_path):
    """Its files of before lie where the original is."""
    table = overwritten(lake)
    copy = clone(lake, table)
    moved = SetLocationUpdate(location=f"file://{tmp_path}/elsewhere")
    lake.catalog().commit_table(copy, (), (moved,))
    copy.refresh()
    copy.overwrite(copy.scan().to_arrow())
    table.transaction().set_properties({"gc.enabled": "false"}).commit_transaction()
    assert expire(lake) >= 20
    table.refresh()
    assert len(table.metadata.snapshots) <= 2
    assert is_readable(lake.catalog().register_table(("copies", "again"), copy.metadata_location))


def test_files_of_the_owner_stay_when_a_table_that_took_them_up_expires(lake):
    """They lie in the owner's location, whose metadata lies in another directory of it."""
    owner = overwritten(lake)
    (file,) = [task.file.file_path for task in owner.scan().plan_files()]
    other = lake.catalog().create_table("ns.other", owner.schema())
    other.add_files([file])
    for _ in range(12):
        other.overwrite(other.scan().to_arrow())
    assert expire(lake) >= 40
    owner.refresh()
    assert is_readable(owner)


def test_files_of_a_clone_stay_of_which_no_metadata_lies_there_any_more(lake, tmp_path):
    """It has a place of its own, and has expired all versions that it had with the original."""
    appender = Appender(lake)
    appender.append(1)
    copy = clone(lake, appender.load(), "archive")
    moved = SetLocationUpdate(location=f"file://{tmp_path}/elsewhere")
    lake.catalog("archive").commit_table(copy, (), (moved,))
    copy.refresh()
    copy.append(pa.table({"id": [2]}))
    with copy.transaction() as change:
        # Else its commits delete metadata files of the original.
        change.set_properties({"write.metadata.delete-after-commit.enabled": "false"})
        change.set_properties({"write.metadata.previous-versions-max": "1"})
    copy.maintenance.expire_snapshots().by_id(copy.metadata.snapshots[0].snapshot_id).commit()
    copy.append(pa.table({"id": [3]}))
    for _ in range(12):
        table = appender.load()
        table.overwrite(table.scan().to_arrow())
    assert expire(lake) >= 20
    copy.refresh()
    assert sorted(copy.scan().to_arrow()["id"].to_pylist()) == [1, 2, 3]


def test_a_clone_that_is_dropped_stands_in_the_way_no_more(lake):
    table = overwritten(lake)
    clone(lake, table)
    lake.catalog().drop_table(("copies", "t"))
    assert expire(lake) >= 20
    assert len(data_files(table)) <= 2


def test_tables_with_one_directory_for_data_share_no_files(lake, tmp_path):
    paths = {"write.data.path": f"file://{tmp_path}/data"}
    tables = [overwritten(lake, namespace, **paths) for namespace in ("a", "b")]
    assert len(data_files(tables[0])) >= 24
    assert expire(lake) >= 40
    assert len(data_files(tables[0])) <= 4
    for table in tables:
        table.refresh()
        assert is_readable(table)


def test_maintenance_says_why_files_are_left(lake):
    table = overwritten(lake)
    copy = clone(lake, table, "archive")
    (plan,) = lake.plan_maintenance()
    assert plan.actions == ()
    settings = {**lake.settings.model_dump(), "upkeep": {**POLICY, "retain": "1ms"}}
    settings["upkeep"]["reader_grace"] = 0
    lake.settings = Settings.model_validate(settings)
    (plan,) = lake.plan_maintenance()
    assert [action.step for action in plan.actions] == [Step.EXPIRE]
    (report,) = Maintainer(lake).carry_out([plan])
    assert report.expired_snapshots >= 20
    (note,) = report.notes
    assert note.startswith("files of expired snapshots are left: its location is shared with table")
    assert is_readable(copy)


def test_upkeep_reads_again_only_tables_that_have_changed(lake, monkeypatch):
    for number in range(12):
        lake.catalog("archive").create_namespace_if_not_exists("old")
        lake.catalog("archive").create_table(("old", f"t{number}"), overwritten_schema(lake))
    appenders = [Appender(lake, namespace) for namespace in ("a", "b")]
    upkeep = Upkeep(lake, upkeep_spec(lake.settings), clock=lambda: time.time() + DAY)
    reads, read = Counter(), metadata_reader.read_metadata_file

    def counting(identifier, *arguments, **options):
        reads[identifier] += 1
        return read(identifier, *arguments, **options)

    monkeypatch.setattr(metadata_reader, "read_metadata_file", counting)

    def run():
        for number in range(25):
            for appender in appenders:
                appender.append(number)
        reads.clear()
        assert upkeep.run().expired_snapshots >= 40
        return sum(count for name, count in reads.items() if name[0] == "old"), reads["a", "t"]

    assert run()[0] == 12
    of_unchanged, of_changed = run()
    # Its own expiry, the followers, and once for all that ask whether they share files with it.
    assert (of_unchanged, of_changed) == (0, 3)


def overwritten_schema(lake):
    return Appender(lake, "a").load().schema()
