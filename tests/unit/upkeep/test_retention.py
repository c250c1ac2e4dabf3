"""Versions go when nobody needs them, and their files with them: no JVM, any history."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import neve
from neve.config import Settings
from neve.errors import ConflictError, CorruptionError, NotFoundError, UnknownOutcomeError
from neve.lake import json_table as json_table_module
from neve.lake.create import FEW_METADATA_FILES
from neve.lake.horizons import KEYS, SIDE_OF
from neve.lake.kept_moments import RECORD
from neve.lake.metadata_json import MetadataJson
from neve.lake.tag_commit import TagMove, move_tag
from neve.upkeep.kept_versions import KeptVersion, recorded_tags
from neve.upkeep.retention import RetentionPlan, removal_of
from neve.upkeep.retention_policy import retention_policy
from neve.upkeep.table_kind import TableKind
from neve.versions.resolve import resolve_version
from tests.support.appending import Appender
from tests.support.lakes import sqlite_settings
from tests.support.power_cut import power_cut
from tests.support.retained import (
    DAY,
    HOUR,
    NAME,
    NOW,
    Bench,
    files_of,
    fill,
    manifests_of,
)
from tests.support.spread_times import spread


@pytest.fixture
def lake(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as opened:
        yield opened


def reached(appender):
    table, paths = appender.load(), set()
    for snapshot in table.metadata.snapshots:
        paths.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            paths.add(manifest.manifest_path)
            entries = manifest.fetch_manifest_entry(table.io)
            paths.update(entry.data_file.file_path for entry in entries)
    return {urlsplit(path).path for path in paths}


def test_every_version_stays_for_a_time_then_hours_and_days_do(lake):
    """A commit every 30 minutes for two days; the names of times answer before and after."""
    appender, _ = fill(lake, 96, apart_seconds=1800)
    bench = Bench(lake, keep_hourly="6h")
    moments = {
        **{f"2026-11-0{day}": f"2026-11-0{day}T00:00" for day in (2, 3)},
        **{f"2026-11-03T0{hour}": f"2026-11-03T0{hour}:00" for hour in range(6)},
    }
    assert {tag for tag in bench.metadata.refs if tag != "main"} == set()
    before = {tag: resolve_version("t", bench.metadata, time) for tag, time in moments.items()}
    removed = bench.run()
    metadata = bench.metadata
    assert removed.snapshots > 80
    assert {tag: resolve_version("t", metadata, tag) for tag in moments} == before
    # Half past four (current until five), five, half past; 0 to 4 o'clock; a midnight more.
    assert len(metadata.snapshots) == 3 + 5 + 1
    assert files_of(appender) == reached(appender)
    for snapshot_id in metadata.snapshots:
        assert sum(appender.ids(snapshot_id).values()) > 0
    assert bench.run().snapshots == 0


def test_a_kept_version_goes_when_its_time_is_over_and_users_tags_never(lake):
    appender, ids = fill(lake, 40)
    appender.load().manage_snapshots().create_tag(ids[5], "2026-11-01T20").create_tag(
        ids[6], "before_upgrade"
    ).commit()
    Bench(lake).run()
    hourly = {name for name in Bench(lake).metadata.refs if "T" in name}
    assert len(hourly) == 24 + 1
    # A query that began with a tag in its last minute has an hour to end.
    dropped = {each.tag for each in Bench(lake, now=NOW + 24 * HOUR).plan().drop_tags}
    assert dropped == hourly - {"2026-11-01T20", "2026-11-03T05"}
    # A day and the grace of an hour later, only days are left, and what is not upkeep's.
    later = Bench(lake, now=NOW + 25 * HOUR)
    plan = later.plan()
    assert {each.tag for each in plan.drop_tags} == hourly - {"2026-11-01T20"}
    later.run(plan)
    refs = later.metadata.refs
    assert set(refs) == {"main", "2026-11-01T20", "before_upgrade", "2026-11-02", "2026-11-03"}
    assert (refs["2026-11-01T20"], refs["before_upgrade"]) == (ids[5], ids[6])
    assert files_of(appender) == reached(appender)
    Bench(lake, now=NOW + 40 * DAY).run()
    assert set(later.metadata.refs) == {"main", "2026-11-01T20", "before_upgrade"}
    assert RECORD not in later.metadata.properties
    assert files_of(appender) == reached(appender)


def test_a_tag_that_somebody_moved_is_theirs(lake):
    appender, ids = fill(lake, 30)
    Bench(lake).run()
    table = appender.load()
    mine = recorded_tags(Bench(lake).metadata)
    table.manage_snapshots().remove_tag("2026-11-03").create_tag(
        table.metadata.current_snapshot_id, "2026-11-03"
    ).commit()
    Bench(lake, now=NOW + 40 * DAY).run()
    assert mine["2026-11-03"] != ids[-1]
    assert Bench(lake).metadata.refs == {"main": ids[-1], "2026-11-03": ids[-1]}


def test_an_idle_table_gets_no_commit(lake):
    fill(lake, 3, apart_seconds=1, end=NOW - 20 * DAY)
    bench = Bench(lake)
    bench.run()
    location = bench.metadata.metadata_location
    assert bench.plan().is_empty
    bench.run()
    assert bench.metadata.metadata_location == location
    assert resolve_version("t", bench.metadata, "2026-11-01") == bench.metadata.refs["main"]


def test_nothing_goes_of_a_version_that_was_current_within_the_grace(lake):
    """A snapshot is old and was current until a moment ago: a query may have begun with it."""
    appender, ids = fill(lake, 2, apart_seconds=10 * DAY, end=NOW - 60)
    bench = Bench(lake, keep_daily=0, keep_hourly=0)
    assert bench.run().snapshots == 0
    assert sum(appender.ids(ids[0]).values()) == 1
    assert Bench(lake, now=NOW + 2 * HOUR, keep_daily=0, keep_hourly=0).run().snapshots == 1


def test_what_is_needed_elsewhere_stays_and_the_plan_says_why(lake):
    _, ids = fill(lake, 30)
    bench = Bench(lake, keep_daily=0, keep_hourly=0)
    plan = bench.plan({ids[3]: "a merge or the index needs it"})
    assert plan.kept == Counter(
        {
            "main names it": 1,
            "current within 1h": 1,
            "a merge or the index needs it": 1,
        }
    )
    assert ids[3] not in {each.snapshot_id for each in plan.expire}
    assert plan.expire[0].reason == "not current for more than 1h"


def test_a_commit_in_between_is_no_loss_and_a_new_tag_keeps_its_snapshot(lake, monkeypatch):
    """Between plan and commit somebody appends, and a follower begins at an old snapshot."""
    appender, ids = fill(lake, 30)
    bench = Bench(lake, keep_daily=0, keep_hourly=0)
    plan = bench.plan()
    assert ids[10] in {each.snapshot_id for each in plan.expire}
    appender.append(100)
    uuid = str(bench.metadata.uuid)
    move = TagMove("neve_follow_a", None, ids[10], ("neve.follow.a", "{}"))
    assert move_tag(lake, lake.ref(NAME), uuid, move)
    removed = bench.run(plan)
    # All that the follower has yet to read stays, too.
    assert set(bench.metadata.snapshots) == {*ids[10:], bench.metadata.refs["main"]}
    assert removed.snapshots == 10
    assert files_of(appender) == reached(appender)


def test_a_death_after_the_commit_leaves_files_and_nothing_else(lake):
    appender, _ = fill(lake, 30)
    bench = Bench(lake)
    with power_cut("upkeep.expired"):
        bench.run()
    assert reached(appender) < files_of(appender)
    assert bench.plan().is_empty
    assert sum(appender.ids().values()) == 30


@pytest.mark.parametrize("applied", [True, False])
def test_an_unknown_outcome_deletes_only_what_the_table_shows_as_gone(lake, monkeypatch, applied):
    appender, _ = fill(lake, 30)
    bench = Bench(lake)
    before, swap = files_of(appender), json_table_module.swap_document

    def lose_answer(*arguments):
        if applied:
            swap(*arguments)
        raise UnknownOutcomeError("the answer was lost")

    monkeypatch.setattr(json_table_module, "swap_document", lose_answer)
    if applied:
        assert bench.run().snapshots > 0
        assert files_of(appender) == reached(appender) < before
    else:
        with pytest.raises(UnknownOutcomeError):
            bench.run()
        assert files_of(appender) == before


def test_a_conflict_changes_nothing(lake, monkeypatch):
    appender, _ = fill(lake, 30)
    before = files_of(appender)

    def refuse(*_):
        raise ConflictError("somebody was first")

    monkeypatch.setattr(json_table_module, "swap_document", refuse)
    with pytest.raises(ConflictError):
        Bench(lake).run()
    assert files_of(appender) == before


def overwritten(lake, times=5):
    """Return a table of one row that was written several times, each in a file of its own."""
    appender = Appender(lake)
    appender.append(1)
    table = appender.load()
    for _ in range(times):
        table.overwrite(table.scan().to_arrow())
    spread(lake, NAME, HOUR, NOW - 60)
    return appender


def data_files(appender):
    return {path for path in files_of(appender) if path.endswith(".parquet")}


def test_an_unreadable_manifest_leaves_all_files(lake):
    appender = overwritten(lake)
    table = appender.load()
    kept = manifests_of(table, table.current_snapshot())
    for path in set(manifests_of(table, table.metadata.snapshots[0])) - set(kept):
        Path(urlsplit(path).path).write_bytes(b"damaged")
    before = files_of(appender)
    removed = Bench(lake, keep_daily=0, keep_hourly=0).run()
    assert removed.snapshots > 0
    assert "not all manifests could be read" in removed.left
    assert files_of(appender) == before


def test_a_table_without_garbage_collection_keeps_its_files(lake):
    appender, _ = fill(lake, 30)
    appender.load().transaction().set_properties({"gc.enabled": "false"}).commit_transaction()
    before = files_of(appender)
    assert Bench(lake).run().left == "gc.enabled is false"
    assert files_of(appender) == before


def test_overwritten_rows_go_with_their_last_version(lake):
    appender = overwritten(lake)
    assert len(data_files(appender)) == 6
    Bench(lake, keep_daily=0, keep_hourly=0).run()
    assert files_of(appender) == reached(appender)
    assert 1 <= len(data_files(appender)) <= 2
    assert appender.ids() == Counter([1])


def test_others_tables_are_left_alone_without_a_policy(lake):
    fill(lake, 30)
    bench = Bench(lake, tables={})
    assert bench.policy.kind is TableKind.OTHER
    assert "only by a policy" in bench.plan().skipped
    assert bench.run().snapshots == 0


@pytest.mark.parametrize(
    ("name", "properties", "days"),
    [
        (("otel", "logs"), {}, 30),
        (("shop", "rows"), {KEYS: "[]"}, 30),
        (("shop", "rows_tombstones"), {SIDE_OF: "shop.rows"}, 0),
        (("neve", "batches"), {}, 0),
    ],
)
def test_all_tables_of_neve_expire_by_one_rule_and_those_that_people_query_have_tags(
    lake, name, properties, days
):
    document = {"properties": properties}
    policy = retention_policy(Settings(), name, MetadataJson("file:///t/1.metadata.json", document))
    assert (policy.expire, policy.retain_seconds, policy.retain_min) == (True, HOUR, 20)
    assert (policy.keep_hourly_seconds, policy.keep_daily_seconds) == (
        min(days, 1) * DAY,
        days * DAY,
    )
    policies = {"upkeep": {"tables": {".".join(name): {"keep_daily": "7d"}}}}
    kept = retention_policy(
        Settings.model_validate(policies), name, MetadataJson("file:///t", document)
    )
    assert kept.keep_daily_seconds == 7 * DAY


def test_each_key_comes_from_the_longest_pattern_that_sets_it(lake):
    fill(lake, 1)
    tables = {
        "*": {"expire": True, "retain": "2h", "keep_daily": "7d"},
        "ns.*": {"retain": "3h"},
        "ns.t": {"keep_hourly": 0},
        "elsewhere.*": {"retain": "9h"},
        "gone.t": {},
    }
    bench = Bench(lake, tables=tables)
    policy = bench.policy
    assert (policy.retain_seconds, policy.keep_daily_seconds) == (3 * HOUR, 7 * DAY)
    assert (policy.expire, policy.keep_hourly_seconds) == (True, 0)
    assert bench.settings.upkeep.policies_without_table(["ns.t"]) == [
        "upkeep.tables: elsewhere.* fits no table",
        "upkeep.tables: there is no table gone.t",
    ]


def test_commits_to_a_table_of_neve_come_to_delete_old_metadata_files(lake):
    fill(lake, 30)
    bench = Bench(lake)
    bare = replace(bench.metadata, document={**bench.metadata.document, "properties": {}})
    ours = replace(bench.policy, kind=TableKind.MIRROR)
    plan = bench.plan()
    set_for_us = removal_of(plan, bare, ours, NOW, None).set_properties
    assert FEW_METADATA_FILES.items() <= set_for_us.items()
    others = removal_of(plan, bare, bench.policy, NOW, None).set_properties
    assert FEW_METADATA_FILES.keys().isdisjoint(others)


def test_nothing_expires_while_main_cannot_be_read(lake):
    """The older snapshots are what a damaged `main` can be restored from."""
    appender, _ = fill(lake, 25)
    bench = Bench(lake, keep_hourly=0, keep_daily=0)
    table = appender.load()
    newest = Path(urlsplit(manifests_of(table, table.current_snapshot())[0]).path)
    content = newest.read_bytes()
    newest.write_bytes(content[:-20])
    before = files_of(appender)
    with pytest.raises(CorruptionError, match=newest.name):
        bench.run()
    newest.unlink()
    with pytest.raises(NotFoundError, match=r"ns\.t: .*does not exist"):
        bench.run()
    assert len(bench.metadata.snapshots) == 25
    assert files_of(appender) == before - {str(newest)}
    newest.write_bytes(content)
    assert bench.run().snapshots > 20
    assert sum(appender.ids().values()) == 25


def test_a_plan_counts_its_tags_in_words_that_fit():
    kept = KeptVersion("2026-11-19T05", 1, datetime(2026, 11, 20, 5, tzinfo=timezone.utc))
    one = RetentionPlan("ns.t", "u", new_tags=(kept,))
    assert one.effect_on(7) == "1 tag made"
    assert replace(one, new_tags=(kept, kept)).effect_on(7) == "2 tags made"
