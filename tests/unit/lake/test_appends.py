"""Appends without Spark: exactly once, and at the same cost after many of them."""

import json
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.manifest import (
    ManifestContent,
    ManifestFile,
    clear_manifest_cache,
    write_manifest_list,
)
from pyiceberg.types import StringType

import neve
from neve.errors import ConflictError, NotFoundError, UnknownOutcomeError, UnsupportedError
from neve.lake import append_snapshot
from neve.lake.append_snapshot import MERGED_AT_ONCE
from neve.lake.commit_loop import CommitCounters, RetryPolicy
from neve.lake.follower_tags import TAG_PREFIX
from neve.lake.kept_moments import RECORD
from neve.lake.snapshot_limit import SnapshotLimit
from neve.lake.staging import StagingTable
from tests.support.appending import Appender
from tests.support.lakes import sqlite_settings
from tests.support.wait import until

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


class SwapGate:
    """Does something to each swap of metadata, by its number."""

    def __init__(self, monkeypatch, lake):
        self.plan, self.count, self.lock = {}, 0, threading.Lock()
        swap = type(lake.catalog()).swap_metadata

        def gated(catalog, *arguments):
            with self.lock:
                self.count += 1
                action = self.plan.get(self.count)
            if action is None:
                return swap(catalog, *arguments)
            return action(lambda: swap(catalog, *arguments))

        monkeypatch.setattr(type(lake.catalog()), "swap_metadata", gated)


@pytest.fixture
def gate(monkeypatch, lake):
    return SwapGate(monkeypatch, lake)


def lost_after(swap):
    swap()
    raise CommitStateUnknownException("the connection was lost")


def lost_before(swap):
    raise CommitStateUnknownException("the connection was lost")


def refused(swap):
    raise CommitFailedException("another writer was first")


@pytest.mark.parametrize("fault", [lost_after, lost_before, refused])
def test_an_attempt_that_goes_wrong_adds_the_files_once(lake, gate, tmp_path, fault):
    appender = Appender(lake)
    appender.append(1)
    gate.plan = {gate.count + 1: fault, gate.count + 2: fault}
    appender.append(2)
    assert appender.ids() == Counter([1, 2])
    left = stored_manifests(tmp_path) - as_uris(appender.reachable())
    # Nothing is deleted of an attempt whose outcome was unknown; what was refused is.
    assert len(left) == (4 if fault is lost_before else 0)


def test_a_deadline_leaves_the_outcome_unknown_and_all_files_in_place(lake, gate, tmp_path):
    appender = Appender(lake)
    gate.plan = dict.fromkeys(range(1, 1000), lost_before)
    policy = RetryPolicy(first_seconds=0.01, most_seconds=0.02, deadline_seconds=0.2)
    (file,) = appender.write(1)
    with pytest.raises(UnknownOutcomeError):
        appender.table.append([file], "x", policy=policy, counters=appender.counters)
    assert appender.counters.attempts > 2
    assert len(stored_manifests(tmp_path)) == 2 * appender.counters.attempts
    assert Path(file.file_path.removeprefix("file://")).exists()


@pytest.mark.parametrize("is_applied", [True, False])
def test_files_settle_an_append_whose_snapshot_others_may_have_removed(lake, gate, is_applied):
    """The answer is lost, and before the table is read others have removed all versions known."""
    appender, others = Appender(lake), Appender(lake, limit=SnapshotLimit(3))
    appender.append(0)

    def lost_and_pushed_out(swap):
        if is_applied:
            swap()
        for number in range(10, 20):
            others.append(number)
        raise CommitStateUnknownException("the connection was lost")

    gate.plan = {gate.count + 1: lost_and_pushed_out}
    appended = appender.append(1)
    assert appender.ids() == Counter([0, 1, *range(10, 20)])
    assert appended.snapshot_id in {each for each, *_ in appender.entries().values()}
    assert appender.counters.attempts == (2 if is_applied else 3)


def test_files_settle_an_append_that_was_compacted_since(lake, gate):
    """`main` has its rows in other files: an older retained snapshot shows that it is applied."""
    appender, others = Appender(lake), Appender(lake, limit=SnapshotLimit(3))
    appender.append(0)

    def applied_and_rewritten(swap):
        swap()
        for number in range(10, 20):
            others.append(number)
        others.load().overwrite(others.load().scan().to_arrow())
        raise CommitStateUnknownException("the connection was lost")

    gate.plan = {gate.count + 1: applied_and_rewritten}
    appender.append(1)
    assert appender.ids() == Counter([0, 1, *range(10, 20)])


def test_absence_is_no_proof_once_the_history_was_expired(lake, gate):
    """The answer is lost, and somebody has expired versions that may have had the files."""
    appender, others = Appender(lake), Appender(lake)

    def applied_and_expired(swap):
        swap()
        ids = [others.append(number).snapshot_id for number in range(10, 14)]
        old = [
            each for each in others.load().metadata.snapshots if each.snapshot_id not in ids[-2:]
        ]
        expiry = others.load().maintenance.expire_snapshots()
        expiry.by_ids([each.snapshot_id for each in old]).commit()
        raise CommitStateUnknownException("the connection was lost")

    gate.plan = {1: applied_and_expired}
    waited = []
    policy = RetryPolicy(clock=lambda: sum(waited), sleep=waited.append, deadline_seconds=5)
    with pytest.raises(UnknownOutcomeError, match="snapshots that may have it have expired"):
        appender.append(1, policy=policy)
    assert appender.ids() == Counter([1, *range(10, 14)])


def test_a_table_that_others_have_moved_far_is_read_again(lake):
    """The manifest list of what was current for us is deleted by now."""
    appender, others = Appender(lake), Appender(lake, limit=SnapshotLimit(3))
    appender.append(0)
    for number in range(1, 8):
        others.append(number)
    appender.append(8)
    assert appender.counters.conflicts == 1
    assert appender.ids() == Counter(range(9))


def test_an_append_of_an_id_that_is_applied_changes_nothing(lake):
    appender, other = Appender(lake), Appender(lake)
    first = appender.append(1, append_id="a")
    assert other.append(1, append_id="a").snapshot_id == first.snapshot_id
    assert other.table.find("a") == first.snapshot_id
    assert other.table.find("b") is None
    assert appender.ids() == Counter([1])


def test_appends_that_arrive_during_a_commit_share_the_next_one(lake, gate):
    appender = Appender(lake)
    table = appender.table
    with ThreadPoolExecutor(8) as pool:

        def hold(swap):
            until(lambda: len(table._waiting) == 6)
            swap()

        gate.plan = {1: hold}
        files = [appender.write(number) for number in range(7)]
        first = pool.submit(append_files, table, files[0], "0")
        until(lambda: gate.count == 1)
        others = [pool.submit(append_files, table, files[n], str(n)) for n in range(1, 7)]
        snapshots = {each.result().snapshot_id for each in others}
    assert len(snapshots) == 1
    assert snapshots == {table.find("3"), table.find("6")}
    assert first.result().snapshot_id not in snapshots
    assert appender.ids() == Counter(range(7))


def test_appends_that_failed_together_are_tried_alone(lake, gate):
    appender = Appender(lake)
    table = appender.table
    with ThreadPoolExecutor(8) as pool:

        def hold(swap):
            until(lambda: len(table._waiting) == 3)
            raise PermissionError("the disk is read-only")

        def fail(swap):
            raise PermissionError("the disk is read-only")

        gate.plan = {1: hold, 2: fail}
        files = [appender.write(number) for number in range(4)]
        running = [pool.submit(append_files, table, files[n], str(n)) for n in range(4)]
        failed = [each for each in running if each.exception() is not None]
    assert len(failed) == 2
    assert sum(appender.ids().values()) == 2
    assert table._waiting == []


def append_files(table, files, append_id, seconds=60.0):
    policy = RetryPolicy(first_seconds=0.01, most_seconds=0.1, deadline_seconds=seconds)
    return table.append(files, append_id, policy=policy, counters=CommitCounters())


def test_who_waits_for_other_threads_beyond_its_deadline_is_told_what_is_known(lake, gate):
    appender = Appender(lake)
    table = appender.table
    released = threading.Event()
    gate.plan = {1: lambda swap: (released.wait(60), swap())}
    files = [appender.write(number) for number in range(2)]
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(append_files, table, files[0], "0")
        until(lambda: gate.count == 1)
        with pytest.raises(ConflictError, match="other threads committed all the time"):
            append_files(table, files[1], "1", seconds=0.05)
        released.set()
        first.result()
    assert appender.ids() == Counter([0])


@pytest.mark.parametrize("shared", [True, False], ids=["one table", "a table each"])
def test_eight_writers_at_once_append_each_row_once(tmp_path, lake, shared):
    appender = Appender(lake, limit=SnapshotLimit(10))
    writers = [appender if shared else Appender(lake, limit=SnapshotLimit(10)) for _ in range(8)]
    start = threading.Barrier(8)

    def write(writer, first):
        start.wait(60)
        for number in range(first, first + 6):
            writer.append(number)

    with ThreadPoolExecutor(8) as pool:
        running = [pool.submit(write, each, 10 * n) for n, each in enumerate(writers)]
        for each in running:
            each.result()
    expected = Counter(10 * writer + number for writer in range(8) for number in range(6))
    assert appender.ids() == expected
    # Also what refused attempts wrote is gone again.
    assert stored_manifests(tmp_path) == as_uris(appender.reachable())
