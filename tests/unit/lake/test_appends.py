"""Appends without Spark: what they write, and at the same cost after many of them."""

import json
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.manifest import (
    ManifestContent,
    ManifestFile,
    clear_manifest_cache,
    write_manifest_list,
)
from pyiceberg.types import StringType

import neve
from neve.errors import NotFoundError, UnsupportedError
from neve.lake import append_snapshot
from neve.lake.append_snapshot import MERGED_AT_ONCE
from neve.lake.commit_loop import CommitCounters, RetryPolicy
from neve.lake.follower_tags import TAG_PREFIX
from neve.lake.kept_moments import RECORD
from neve.lake.snapshot_limit import SnapshotLimit
from neve.lake.staging import StagingTable
from tests.support.appending import Appender
from tests.support.lakes import sqlite_settings

HOUR = 3600.0


@pytest.fixture
def lake(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        yield lake


@pytest.fixture
def few_sizes(monkeypatch):
    """Manifests of 64 entries and more are not merged: a hundred appends meet every case."""
    monkeypatch.setattr(append_snapshot, "_SIZES", (8, 64))


def stored_manifests(tmp_path):
    directory = tmp_path / "warehouse" / "ns" / "t" / "metadata"
    return {file.as_uri() for file in directory.glob("*.avro")}


def as_uris(paths):
    return {path if path.startswith("file:") else Path(path).as_uri() for path in paths}


def test_many_appends_leave_few_snapshots_manifests_and_files(lake, tmp_path, few_sizes):
    appender = Appender(lake, limit=SnapshotLimit(20))
    expected = {}
    for number in range(120):
        (file,) = appender.write(number)
        appended = appender.table.append(
            [file], str(number), policy=RetryPolicy(), counters=appender.counters
        )
        expected[file.file_path] = (appended.snapshot_id, number + 1, number + 1)
        # Its own manifest, and one that merges others: never more.
        assert 1 <= appended.manifests <= 2
    table = appender.load()
    assert len(table.metadata.snapshots) == len(table.metadata.snapshot_log) == 20
    # One of 64 entries, six of 8, and eight that are not merged yet.
    assert len(table.current_snapshot().manifests(table.io)) <= 2 * MERGED_AT_ONCE
    assert appender.ids() == Counter(range(120))
    assert appender.entries() == expected
    assert stored_manifests(tmp_path) == as_uris(appender.reachable())
    summary = table.current_snapshot().summary
    assert (summary["total-records"], summary["total-data-files"]) == ("120", "120")
    # Readers of every retained snapshot find all that it names.
    oldest = table.metadata.snapshots[0].snapshot_id
    assert appender.ids(oldest) == Counter(range(101))


def test_files_of_removed_snapshots_stay_where_the_table_says_so(lake, tmp_path, few_sizes):
    """A clone of the table that was registered before may need them."""
    appender = Appender(lake, limit=SnapshotLimit(5))
    appender.append(0)
    with appender.load().transaction() as change:
        change.set_properties({"gc.enabled": "false"})
    stored = set()
    for number in range(1, 30):
        appender.append(number)
        assert stored <= stored_manifests(tmp_path)
        stored = stored_manifests(tmp_path)
    assert len(appender.load().metadata.snapshots) == 5


def test_what_refs_name_and_followers_have_not_read_stays(lake, tmp_path, few_sizes):
    appender = Appender(lake, limit=SnapshotLimit(10))
    kept = {}
    for number in range(60):
        snapshot_id = appender.append(number).snapshot_id
        if number in (3, 20):
            appender.load().manage_snapshots().create_tag(snapshot_id, f"tag{number}").commit()
            kept[snapshot_id] = Counter(range(number + 1))
        if number == 30:
            staging = StagingTable(lake.profile, appender.load())
            staged = staging.stage(appender.write(1000), {}, "neve-staged-x")
            kept[staged.snapshot_id] = Counter([*range(31), 1000])
        if number == 40:
            appender.load().manage_snapshots().create_tag(snapshot_id, f"{TAG_PREFIX}f").commit()
    snapshots = appender.load().metadata.snapshots
    # What the follower has to read, where it is, and what refs name; nothing else.
    assert lake.followers()[0].lag_commits == 19
    assert len(snapshots) == 20 + len(kept)
    for snapshot_id, rows in kept.items():
        assert appender.ids(snapshot_id) == rows
    assert as_uris(appender.reachable()) <= stored_manifests(tmp_path)
    # Once it is read, and its age counts no more, all but ten of them go.
    appender.table._limit = SnapshotLimit(10, follow_horizon_seconds=0)
    appender.append(60), appender.append(61)
    assert lake.followers()[0].lag_commits is None
    assert len(appender.load().metadata.snapshots) == 10 + 1 + len(kept)
    assert as_uris(appender.reachable()) <= stored_manifests(tmp_path)


@pytest.mark.parametrize("is_kept_up", [True, False])
def test_versions_of_full_hours_are_left_for_the_tags_of_upkeep(lake, monkeypatch, is_kept_up):
    """A commit every ten minutes, the first a minute before a full hour; three are kept."""
    appender = Appender(lake, limit=SnapshotLimit(3, keep_hourly_seconds=3 * 3600))
    if is_kept_up:
        with appender.load().transaction() as change:
            change.set_properties({RECORD: "{}"})
        appender.table.refresh()
    ids, begin = [], 1_900_000_000 // 3600 * 3600 - 60
    monkeypatch.setattr(time, "time", lambda: float(begin + 600 * len(ids)))
    while len(ids) < 24:
        ids.append(appender.append(len(ids)).snapshot_id)
    retained = {snapshot.snapshot_id for snapshot in appender.load().metadata.snapshots}
    # The first is older than three hours, and upkeep's to expire: no line of main leads to it.
    hours = {ids[0], ids[6], ids[12], ids[18]} if is_kept_up else set()
    assert retained == hours | set(ids[-3:])
    if is_kept_up:
        assert appender.ids(ids[6]) == Counter(range(7))


def test_snapshots_stay_where_files_were_replaced_or_others_wrote(lake):
    appender = Appender(lake, limit=SnapshotLimit(5))
    appender.append(0)
    # Somebody else's statements in a summary may be needed still.
    appender.load().append(pa.table({"id": [1]}))
    for number in range(2, 10):
        appender.append(number)
    assert len(appender.load().metadata.snapshots) == 9
    with appender.load().transaction() as change:
        change.set_properties({"history.expire.max-snapshot-age-ms": "0"})
    appender.append(10)
    assert len(appender.load().metadata.snapshots) == 5
    appender.load().delete("id = 10")
    for number in range(11, 20):
        appender.append(number)
    assert len(appender.load().metadata.snapshots) == 15
    assert appender.ids() == Counter([*range(10), *range(11, 20)])


def test_delete_manifests_and_other_partition_specs_are_carried_over(lake):
    """Of eight data manifests one is of another spec: the rest is too few to be merged."""
    appender = Appender(lake)
    for number in range(MERGED_AT_ONCE - 1):
        appender.append(number)
    with appender.load().update_spec() as update:
        update.add_identity("id")
    appender.table.refresh()
    appender.append(7)
    table = appender.load()
    listed = table.current_snapshot().manifests(table.io)
    assert len({manifest.partition_spec_id for manifest in listed}) == 2
    deletes = ManifestFile.from_args(
        manifest_path="file:///nowhere/deletes.avro",
        manifest_length=1,
        partition_spec_id=0,
        content=ManifestContent.DELETES,
        sequence_number=9,
        min_sequence_number=9,
        added_snapshot_id=1,
        added_files_count=1,
        existing_files_count=0,
        deleted_files_count=0,
        added_rows_count=1,
        existing_rows_count=0,
        deleted_rows_count=0,
    )
    with write_manifest_list(
        2, table.io.new_output(table.current_snapshot().manifest_list), 1, None, 9, "deflate"
    ) as writer:
        writer.add_manifests([*listed, deletes])
    clear_manifest_cache()
    assert appender.append(8).manifests == 1
    assert appender.append(9).manifests == 1
    with appender.load().update_spec() as update:
        update.remove_field("id")
    appender.table.refresh()
    appender.append(10)
    assert appender.append(11).manifests == 2
    table = appender.load()
    after = table.current_snapshot().manifests(table.io)
    assert [each for each in after if each.content == ManifestContent.DELETES] == [deletes]
    assert len(after) == 1 + 1 + 3 + 1


def test_manifests_stay_whose_partition_column_was_dropped(lake):
    """PyIceberg could not write their values any more, nor read what it writes for NULL."""
    appender = Appender(lake)
    with appender.load().update_schema() as schema:
        schema.add_column("part", StringType())
    with appender.load().update_spec() as spec:
        spec.add_identity("part")
    appender.table.refresh()
    (late,) = appender.write(100)
    for number in range(MERGED_AT_ONCE):
        appender.append(number)
    with appender.load().update_spec() as spec:
        spec.remove_field("part")
    with appender.load().update_schema(allow_incompatible_changes=True) as schema:
        schema.delete_column("part")
    appender.table.refresh()
    for number in range(MERGED_AT_ONCE, 3 * MERGED_AT_ONCE):
        appender.append(number)
    assert appender.ids() == Counter(range(3 * MERGED_AT_ONCE))
    with pytest.raises(UnsupportedError, match="a column that it is of was dropped"):
        appender.table.append([late], "late", policy=RetryPolicy(), counters=CommitCounters())


def test_main_keeps_its_retention(lake):
    appender = Appender(lake)
    first = appender.append(1).snapshot_id
    retention = {"min_snapshots_to_keep": 7, "max_snapshot_age_ms": 90}
    appender.load().manage_snapshots().create_branch(first, "main", **retention).commit()
    appender.append(2)
    staging = StagingTable(lake.profile, appender.load())
    staging.append(appender.write(3), {})
    main = appender.load().metadata.refs["main"]
    assert main.snapshot_id == staging.main_id != first
    assert (main.min_snapshots_to_keep, main.max_snapshot_age_ms) == (7, 90)


@pytest.mark.parametrize(
    "key",
    [
        "write.summary.partition-limit",
        "write.avro.compression-codec",
        "write.metadata.metrics.default",
    ],
)
def test_a_property_that_cannot_be_used_is_said(lake, key):
    appender = Appender(lake)
    with appender.load().transaction() as change:
        change.set_properties({key: "odd"})
    appender.table.refresh()
    with pytest.raises(UnsupportedError, match="odd"):
        appender.append(1)


def test_a_table_of_format_version_3_is_refused(lake):
    appender = Appender(lake)
    path = Path(appender.load().metadata_location.removeprefix("file://"))
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "format-version": 3, "next-row-id": 0}))
    with pytest.raises(UnsupportedError, match=r"ns\.t has format version 3"):
        Appender(lake)


def test_a_table_that_was_created_again_is_not_appended_to(lake):
    appender = Appender(lake)
    appender.append(1)
    lake.catalog().drop_table("ns.t")
    Appender(lake)
    with pytest.raises(NotFoundError, match="created again"):
        appender.append(2)


def test_a_clock_that_is_late_does_not_go_back_in_the_history(lake, monkeypatch):
    appender = Appender(lake)
    appender.append(1)
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now - HOUR)
    appender.append(2)
    times = [entry.timestamp_ms for entry in appender.load().metadata.snapshot_log]
    assert times == sorted(times)
