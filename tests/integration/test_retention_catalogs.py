"""Expiry, removal of orphans and recovery of a lost table on other catalogs and object stores."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from datetime import datetime, timezone

import pytest

from neve.config import Settings
from neve.errors import ConflictError
from neve.lake.file_store import FileStore
from neve.upkeep.kept_versions import KeptVersion
from neve.upkeep.orphans import OrphanSearch
from neve.upkeep.retention import carry_out_retention, plan_retention
from neve.upkeep.retention_policy import retention_policy
from tests.support.appending import Appender
from tests.support.catalog_faults import after, lost_after, refused

DAY = 86_400.0


def plan_expiry(lake, namespace, now):
    identifier = (namespace, "t")
    upkeep = {"retain_min": 2, "tables": {f"{namespace}.t": {"expire": True}}}
    settings = Settings.model_validate({**lake.settings.model_dump(), "upkeep": upkeep})
    metadata = lake.reader().read(identifier)
    policy = retention_policy(settings, identifier, metadata)
    return plan_retention(f"{namespace}.t", metadata, policy, now), policy


def expire(lake, namespace, now):
    plan, policy = plan_expiry(lake, namespace, now)
    return carry_out_retention(lake, lake.ref((namespace, "t")), plan, policy, now)


def overwritten(lake, namespace):
    appender = Appender(lake, namespace)
    appender.append(1)
    table = appender.load()
    for _ in range(4):
        table.overwrite(table.scan().to_arrow())
    return appender


def reached(appender):
    """Return what all kept snapshots need, and read each of them."""
    table = appender.load()
    needed = appender.reachable()
    for snapshot in table.metadata.snapshots:
        scan = table.scan(snapshot_id=snapshot.snapshot_id)
        needed |= {task.file.file_path for task in scan.plan_files()}
        assert set(appender.ids(snapshot.snapshot_id)) <= {1}
    return needed


def listed(lake, appender):
    with FileStore(lake.profile) as store:
        files = store.list_files(appender.load().location())
        return {file.path for file in files if file.path.endswith((".avro", ".parquet"))}


@pytest.mark.parametrize("lake", ["postgres", "rest"], indirect=True)
def test_files_go_with_their_versions_and_a_lost_table_comes_back(lake, namespace):
    appender = overwritten(lake, namespace)
    assert expire(lake, namespace, time.time() + 2 * DAY).snapshots > 0
    assert listed(lake, appender) == reached(appender)
    assert appender.ids() == Counter([1])

    (left,) = appender.write(2)
    search = OrphanSearch(lake, lake.ref((namespace, "t")))
    plan = search.plan(time.time() + 60)
    assert left.file_path in {orphan.path for orphan in plan.orphans}, plan.skipped
    assert search.plan(time.time() - DAY).orphans == ()
    assert search.remove(plan).files == len(plan.orphans)
    assert appender.ids() == Counter([1])

    location = appender.load().location()
    lake.catalog().drop_table((namespace, "t"))
    report = lake.recover_table(f"{namespace}.t", location=location)
    assert (report.outcome, report.rows) == ("registered", 1)
    assert appender.ids() == Counter([1])


@pytest.mark.parametrize("lake", ["postgres", "rest"], indirect=True)
def test_a_lost_table_keeps_its_files_when_another_is_made_in_its_place(lake, namespace):
    appender = overwritten(lake, namespace)
    lost = appender.load()
    lake.catalog().drop_table((namespace, "t"))
    again = Appender(lake, namespace)
    again.append(7)
    assert again.load().location() == lost.location()
    search = OrphanSearch(lake, lake.ref((namespace, "t")))
    assert "has metadata of another table" in search.plan(time.time() + 60).skipped
    lake.recover_table(f"{namespace}.found", metadata_file=lost.metadata_location)
    found = lake.catalog().load_table((namespace, "found"))
    assert found.scan().to_arrow()["id"].to_pylist() == [1]


@pytest.mark.parametrize("lake", ["postgres"], indirect=True)
def test_a_table_that_the_catalog_lost_is_named_in_an_object_store(lake, namespace, monkeypatch):
    appender = overwritten(lake, namespace)
    location = appender.load().location()
    lake.catalog().create_table((namespace, "kept"), appender.load().schema())
    name = f"{namespace}.t"
    assert name not in lake.unregistered_tables()
    lake.catalog().drop_table((namespace, "t"))
    listed = []
    list_directories = FileStore.list_directories
    monkeypatch.setattr(
        FileStore,
        "list_directories",
        lambda store, path: listed.append(path) or list_directories(store, path),
    )
    lost = lake.unregistered_tables()
    assert name in lost
    assert f"{namespace}.kept" not in lost
    # Neither a table that the catalog knows is listed, nor the data of the one that it lost.
    below = {path for path in listed if f"/{namespace}/" in path}
    assert below == {location}
    assert lake.recover_table(name).outcome == "registered"
    assert name not in lake.unregistered_tables()


@pytest.mark.parametrize("fault", [refused(409), lost_after], ids=["refused", "lost"])
def test_a_commit_that_goes_wrong_leaves_no_version_without_files(faulty_lake, faults, fault):
    namespace = "expiry_" + str(time.time_ns())
    appender = overwritten(faulty_lake, namespace)
    faults.expect(namespace, {1: fault})
    assert expire(faulty_lake, namespace, time.time() + 2 * DAY).snapshots > 0
    assert faults.commits >= 1
    assert listed(faulty_lake, appender) == reached(appender)


def test_a_tag_that_a_user_makes_under_the_name_of_a_new_one_stays_where_it_is(faulty_lake, faults):
    namespace = "tagged_" + str(time.time_ns())
    appender = overwritten(faulty_lake, namespace)
    now = time.time() + 2 * DAY
    ids = [each.snapshot_id for each in appender.load().metadata.snapshots]
    plan, policy = plan_expiry(faulty_lake, namespace, now)
    until = datetime.fromtimestamp(now + DAY, timezone.utc)
    plan = replace(plan, new_tags=(KeptVersion("2026-11-03", ids[0], until),))

    def tag():
        appender.load().manage_snapshots().create_tag(ids[-1], "2026-11-03").commit()

    faults.expect(namespace, {1: after(tag)})
    removed = carry_out_retention(faulty_lake, faulty_lake.ref((namespace, "t")), plan, policy, now)
    assert faulty_lake.reader().read((namespace, "t")).refs["2026-11-03"] == ids[-1]
    assert removed.snapshots > 0
    assert listed(faulty_lake, appender) == reached(appender)


def lose_newest_manifest(appender):
    """Delete the manifest that the newest version has added; return its path."""
    table = appender.load()
    snapshot = table.current_snapshot()
    (path,) = (
        each.manifest_path
        for each in snapshot.manifests(table.io)
        if each.added_snapshot_id == snapshot.snapshot_id
    )
    table.io.delete(path)
    return path


@pytest.mark.parametrize("lake", ["postgres", "rest"], indirect=True)
def test_a_version_without_its_manifest_is_told_and_given_up_when_asked(lake, namespace):
    appender, name = Appender(lake, namespace), f"{namespace}.t"
    for number in range(3):
        appender.append(number)
    path = lose_newest_manifest(appender)
    report = lake.recover_table(name)
    assert (report.outcome, report.damaged_file) == ("damaged", path)
    assert (report.damage, report.lost_commits, report.lost_rows) == ("it is not there", 1, 1)
    assert lake.recover_table(name, roll_back=True).outcome == "rolled back"
    assert appender.ids() == Counter([0, 1])
    appender.append(3)
    assert appender.ids() == Counter([0, 1, 3])


def test_a_roll_back_whose_answer_is_lost_is_found_and_one_that_is_refused_changes_nothing(
    faulty_lake, faults
):
    namespace = "repair_" + str(time.time_ns())
    appender, name = Appender(faulty_lake, namespace), f"{namespace}.t"
    for number in range(2):
        appender.append(number)
    lose_newest_manifest(appender)
    faults.expect(namespace, {1: refused(409), 2: lost_after})
    with pytest.raises(ConflictError):
        faulty_lake.recover_table(name, roll_back=True)
    assert faulty_lake.recover_table(name).outcome == "damaged"
    assert faulty_lake.recover_table(name, roll_back=True).outcome == "rolled back"
    assert appender.ids() == Counter([0])
