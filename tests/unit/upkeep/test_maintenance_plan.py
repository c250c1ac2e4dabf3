"""What maintenance would do, and why: from metadata and a listing, without a JVM."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

import neve
from neve.config import Settings
from neve.errors import ConfigError, CorruptionError
from neve.index.indexed_table import SEQUENCE
from neve.index.maintain import build
from neve.index.root import index_location, new_path
from neve.lake import metadata_reader
from neve.lake.horizons import KEYS, SOURCE
from neve.upkeep import plan as plan_module
from neve.upkeep.maintainer import Maintainer
from neve.upkeep.plan import Step, plan_maintenance
from tests.support.lakes import sqlite_settings
from tests.unit.upkeep.test_health import SCHEMA, make_table

TABLE = "shop.events"


@pytest.fixture
def lake(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        lake.catalog().create_namespace("shop")
        yield lake


def configure(lake, **policy):
    upkeep = {"reader_grace": 0, "retain": "1ms", "retain_min": 1}
    upkeep |= {"keep_hourly": 0, "keep_daily": 0, "tables": {TABLE: policy}}
    settings = Settings.model_validate({"upkeep": upkeep})
    lake.settings = lake.settings.model_copy(update={"upkeep": settings.upkeep})


def lose_a_file(table, name="lost.parquet"):
    path = Path(table.location().removeprefix("file://"), "data", name)
    path.write_bytes(b"lost")
    os.utime(path, (0, 0))


def test_every_action_has_a_reason_and_an_effect(lake):
    lose_a_file(make_table(lake, TABLE, 6))
    configure(lake, compact=True, expire=True, remove_orphans=True, delete_rows_after="1h")
    (plan,) = lake.plan_maintenance()
    told = {action.step: (action.why, action.effect) for action in plan.actions}
    assert list(told) == [Step.OLD_ROWS, Step.SORT, Step.EXPIRE, Step.ORPHANS]
    assert told[Step.OLD_ROWS][0] == "older than 1h, by whole days"
    assert told[Step.SORT] == ("closed hour 2026-11-17 10:00", "6 files become 1")
    assert told[Step.EXPIRE][1] == "5 of 6 snapshots expire"
    assert told[Step.ORPHANS][0] == "1 files that no snapshot names, older than 3d"
    configure(lake, delete_rows_after="36500d")
    assert [plan.actions for plan in lake.plan_maintenance()] == [()]


def test_a_plan_says_why_no_rows_are_deleted_by_age(lake):
    make_table(lake, TABLE, 1)
    configure(lake, delete_rows_after={"column": "at", "after": "1h"})
    (plan,) = lake.plan_maintenance()
    assert plan.notes == ("no rows are deleted by age: it has no column at",)
    assert (plan.actions, plan.error) == ((), None)


def test_rows_are_deleted_by_a_time_that_the_table_is_not_partitioned_by(lake):
    table = lake.catalog().create_table(TABLE, SCHEMA)
    at = datetime(2026, 11, 17, 10, tzinfo=timezone.utc)
    table.append(pa.Table.from_pylist([{"timestamp": at}], schema=SCHEMA.as_arrow()))
    configure(lake, delete_rows_after={"column": "timestamp", "after": "1h"})
    day = 86_400
    (plan,) = plan_maintenance(lake, now=at.timestamp() + 2 * day, unconfirmed=tuple)
    assert [action.step for action in plan.actions] == [Step.OLD_ROWS]
    assert plan.actions[0].effect == (
        "rows with timestamp before 2026-11-19 00:00 go: "
        "files that have later rows, too, are rewritten"
    )
    (plan,) = plan_maintenance(lake, now=at.timestamp() + 7200, unconfirmed=tuple)
    assert (plan.actions, plan.notes) == ((), ())


def test_tables_of_others_are_left_alone_without_a_policy(lake):
    lose_a_file(make_table(lake, TABLE, 6))
    (plan,) = lake.plan_maintenance()
    assert (plan.actions, plan.error) == ((), None)


def test_manifests_are_rewritten_after_many_files_were_replaced(lake, monkeypatch):
    make_table(lake, TABLE, 6)
    configure(lake, compact=True)
    (plan,) = lake.plan_maintenance()
    assert [action.step for action in plan.actions] == [Step.SORT]
    monkeypatch.setattr("neve.upkeep.plan._MANY_REPLACED_FILES", 6)
    (plan,) = lake.plan_maintenance()
    assert [action.step for action in plan.actions] == [Step.SORT, Step.MANIFESTS]
    assert plan.actions[1].why == "manifests that name 6 replaced files"


def test_what_is_beyond_the_budget_is_deferred(lake):
    make_table(lake, TABLE, 12, hours=2)
    configure(lake, compact=True)
    (plan,) = lake.plan_maintenance(max_bytes=10_000)
    assert [action.why for action in plan.actions] == ["closed hour 2026-11-17 10:00"]
    assert [action.why for action in plan.deferred] == ["closed hour 2026-11-17 11:00"]


def test_a_small_budget_is_used_in_each_run(lake):
    """A group is as large as the budget; what cannot be made smaller says how much it needs."""
    make_table(lake, TABLE, 12)
    configure(lake, compact=True)
    (whole,) = lake.plan_maintenance()[0].actions
    budget = whole.bytes // 3
    (plan,) = lake.plan_maintenance(max_bytes=budget)
    (action,) = plan.actions
    assert 2 <= action.files < 12
    assert (action.bytes <= budget, plan.notes) == (True, ())
    upkeep = {"tables": {TABLE: {"compact": True, "zorder": ["service_name"]}}}
    settings = Settings.model_validate({"upkeep": upkeep})
    lake.settings = lake.settings.model_copy(update={"upkeep": settings.upkeep})
    (plan,) = lake.plan_maintenance(max_bytes=budget)
    assert [action.step for action in plan.deferred] == [Step.ZORDER]
    (deferred,) = plan.deferred
    needed = f"one commit of {whole.bytes:,} bytes, which the budget must have"
    assert plan.notes == (f"{deferred.why}: {needed}",)


def test_statistics_are_computed_of_tables_that_are_not_written_any_more(lake):
    make_table(lake, TABLE, 1)
    hour_later = time.time() + 3600
    assert plan_maintenance(lake, now=hour_later)[0].actions == ()
    configure(lake, statistics=["service_name"])
    (plan,) = plan_maintenance(lake, now=hour_later)
    ((action,),) = [plan.actions]
    assert (action.step, action.columns) == (Step.STATISTICS, ("service_name",))
    assert action.why.endswith("has no statistics of service_name")
    assert plan.notes == ()
    (plan,) = plan_maintenance(lake)
    assert plan.actions == ()
    assert "statistics hold for one snapshot" in plan.notes[0]


def test_statistics_come_after_what_makes_a_new_snapshot(lake):
    make_table(lake, TABLE, 6)
    configure(lake, compact=True, statistics=["service_name"])
    (plan,) = plan_maintenance(lake, now=time.time() + 3600)
    assert [action.step for action in plan.actions] == [Step.SORT, Step.STATISTICS]
    assert plan.actions[1].why == "files are rewritten, and the new snapshot has no statistics"
    configure(lake, statistics=["servic"])
    assert "has no column servic" in (lake.plan_maintenance()[0].error or "")


def test_nothing_is_begun_once_the_minutes_are_over(lake):
    table = make_table(lake, TABLE, 6)
    lose_a_file(table)
    configure(lake, expire=True, remove_orphans=True)
    plans = lake.plan_maintenance()
    assert [action.step for action in plans[0].actions] == [Step.EXPIRE, Step.ORPHANS]
    # The clock is asked at the start, and before each action.
    times = iter([0.0, 59.0, 60.0])
    (report,) = Maintainer(lake, max_seconds=60, clock=lambda: next(times)).carry_out(plans)
    assert (report.actions, report.expired_snapshots, report.removed_orphans) == (1, 5, 0)
    assert report.left == [
        "1 files that no snapshot names, older than 3d: beyond the budget of time"
    ]
    assert report.error is None


def test_no_orphans_are_removed_where_two_tables_share_a_location(lake):
    table = make_table(lake, TABLE, 1)
    lake.catalog().create_table("shop.other", SCHEMA, location=table.location())
    lose_a_file(table)
    configure(lake, remove_orphans=True)
    plan = next(plan for plan in lake.plan_maintenance() if plan.table == TABLE)
    assert plan.actions == ()
    assert "shop.other" in plan.notes[0]


def test_a_plan_reads_the_metadata_of_each_table_so_often_however_many_there_are(lake, monkeypatch):
    reads = []
    read = metadata_reader.read_metadata_file

    def counting(identifier, *arguments, **options):
        reads.append(identifier)
        return read(identifier, *arguments, **options)

    def reads_for_each_table():
        reads.clear()
        plans = lake.plan_maintenance()
        assert [plan.error for plan in plans if plan.error] == []
        lake.health(listing=True)
        return len(reads) / len(plans)

    monkeypatch.setattr(metadata_reader, "read_metadata_file", counting)
    make_table(lake, TABLE, 1)
    policies = Settings.model_validate({"upkeep": {"tables": {"*": {"remove_orphans": True}}}})
    lake.settings = lake.settings.model_copy(update={"upkeep": policies.upkeep})
    for number in range(2):
        lake.catalog().create_table(f"shop.t{number}", SCHEMA)
    few = reads_for_each_table()
    for number in range(2, 12):
        lake.catalog().create_table(f"shop.t{number}", SCHEMA)
    assert reads_for_each_table() == few


@pytest.mark.parametrize("damage", ["lost", "cut"])
def test_a_lost_manifest_of_an_old_version_stops_no_other_table(lake, damage):
    """`neve maintain` and `neve health --listing` ended with it, for all tables."""
    for name in ("shop.broken", TABLE):
        table = make_table(lake, name, 6)
        lose_a_file(table)
    policies = {"upkeep": {"tables": {"*": {"compact": True, "remove_orphans": True}}}}
    lake.settings = Settings.model_validate({**lake.settings.model_dump(), **policies})
    table = lake.catalog().load_table("shop.broken")
    table.overwrite(table.scan().to_arrow())
    old = table.metadata.snapshots[0].manifests(table.io)[0].manifest_path
    path = Path(old.removeprefix("file://"))
    path.unlink() if damage == "lost" else path.write_bytes(b"cut")
    plans = {plan.table: plan for plan in lake.plan_maintenance()}
    # All of its current version can be read: whatever needs no more than that is done.
    (note,) = plans["shop.broken"].notes
    assert (path.name in note, plans["shop.broken"].error) == (True, None)
    assert [action.step for action in plans[TABLE].actions] == [Step.SORT]
    # Nobody knows which files the other one needs.
    (note,) = plans[TABLE].notes
    assert "table shop.broken, which cannot be read completely" in note
    health = {report.table: report for report in lake.health(listing=True)}
    (note,) = health["shop.broken"].notes
    assert (path.name in note, health["shop.broken"].error) == (True, None)
    assert (health[TABLE].error, health[TABLE].unreferenced_files) == (None, None)


def test_a_damaged_recovery_record_stops_only_what_it_may_concern(lake):
    for name in (TABLE, "shop.other"):
        lose_a_file(make_table(lake, name, 6))
    configure(lake, compact=True, expire=True, remove_orphans=True, delete_rows_after="1h")
    reads = []

    def damaged():
        reads.append(1)
        raise CorruptionError("recovery record x cannot be read")

    lake.unconfirmed_writes = damaged
    plan, other = lake.plan_maintenance()
    assert [action.step for action in plan.actions] == [Step.OLD_ROWS, Step.SORT]
    (note,) = plan.notes
    assert note == "no versions and no orphans are removed: recovery record x cannot be read"
    assert (plan.error, other.error, len(reads)) == (None, None, 1)
    lake.unconfirmed_writes = lambda: reads.append(1) or []
    plan, _ = lake.plan_maintenance()
    assert {Step.EXPIRE, Step.ORPHANS} < {action.step for action in plan.actions}
    lake.health(listing=True)
    assert len(reads) == 3


def test_a_plan_names_so_many_orphans_of_all_tables_together(lake, monkeypatch):
    for name in ("shop.a", "shop.b", "shop.c"):
        table = make_table(lake, name, 1)
        for number in range(4):
            lose_a_file(table, f"lost{number}.parquet")
    policies = {"upkeep": {"tables": {"*": {"remove_orphans": True}}}}
    lake.settings = Settings.model_validate({**lake.settings.model_dump(), **policies})
    monkeypatch.setattr(plan_module, "_Removals", partial(plan_module._Removals, most_orphans=6))
    plans = lake.plan_maintenance()
    named = [len(action.orphans.files) for plan in plans for action in plan.actions]
    assert named == [4, 2]
    assert plans[2].notes[0].startswith("no orphans are removed: those of other tables go first")
    Maintainer(lake).carry_out(plans)
    named = [len(action.orphans.files) for p in lake.plan_maintenance() for action in p.actions]
    assert named == [2, 4]


def make_mirror(lake):
    table = make_table(lake, TABLE, 1)
    names = {KEYS: '["service_name"]', SEQUENCE: '["size"]', SOURCE: '{"table": "shop.log"}'}
    with table.transaction() as change:
        change.set_properties(names)
    return table, Path(
        index_location(table.location(), str(table.metadata.table_uuid)).removeprefix("file://")
    )


def test_files_of_an_index_that_no_root_names_are_orphans_of_the_mirror(lake):
    _, location = make_mirror(lake)
    old, young = (new_path(str(location), "shard") for _ in range(2))
    location.mkdir(parents=True)
    for path in (old, young):
        Path(path).write_bytes(b"shard")
    os.utime(old, (0, 0))
    (plan,) = lake.plan_maintenance(TABLE)
    (orphans,) = [action.orphans.files for action in plan.actions if action.orphans]
    assert [orphan.path.removeprefix("file://") for orphan in orphans] == [old]
    only = [action for action in plan.actions if action.orphans]
    (report,) = Maintainer(lake).carry_out([replace(plan, actions=tuple(only))])
    assert (report.removed_orphans, report.error) == (1, None)
    assert [str(path) for path in location.iterdir()] == [young]


def test_what_an_expiring_snapshot_has_of_the_index_goes_in_the_same_run(lake):
    table, location = make_mirror(lake)
    build(lake, table.name())
    expiring = set(location.iterdir())
    table.refresh()
    table.append(table.scan().to_arrow())
    build(lake, table.name())
    kept = set(location.iterdir()) - expiring
    assert (len(expiring), len(kept)) == (2, 2)
    configure(lake, compact=False)
    # Young files stay: a merge may be about to name them.
    (plan,) = lake.plan_maintenance(TABLE)
    assert [action.step for action in plan.actions] == [Step.EXPIRE]
    for path in location.iterdir():
        os.utime(path, (0, 0))
    (plan,) = lake.plan_maintenance(TABLE)
    expire, remove = plan.actions
    planned = {Path(each.path.removeprefix("file://")) for each in remove.orphans.files}
    assert planned == expiring
    # Where the expiry did not happen, the files are needed still.
    (report,) = Maintainer(lake).carry_out([replace(plan, actions=(remove,))])
    assert (report.removed_orphans, set(location.iterdir())) == (0, expiring | kept)
    (report,) = Maintainer(lake).carry_out([replace(plan, actions=(expire, remove))])
    assert (report.expired_snapshots, report.removed_orphans, report.error) == (1, 2, None)
    assert set(location.iterdir()) == kept


def test_a_policy_without_a_table_is_refused_but_a_service_only_warns(lake, caplog):
    configure(lake, compact=True)
    with pytest.raises(ConfigError, match=r"there is no table shop\.events"):
        lake.plan_maintenance()
    assert plan_maintenance(lake, is_strict=False) == []
    assert "there is no table shop.events" in caplog.text
