"""`neve consolidate --replay`: retained segments become rows of a table that lacks them, once."""

import time
from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

import neve
from neve import failpoints
from neve.buffer.buffer import open_buffer
from neve.buffer.retained import RetentionLimit
from neve.consolidate.replay import replay_table
from neve.errors import StorageError, UsageError
from neve.lake.staging import StagingTable
from neve.publish.batch import HELD_PREFIX, STAGED_PREFIX
from neve.publish.contains import contained_in
from neve.publish.publisher import Publisher
from neve.publish.ranges import Range, read_marks
from neve.signals import Signal
from tests.support.consolidation import Bench, run_inline
from tests.support.lakes import sqlite_settings
from tests.support.otlp_bodies import protobuf
from tests.support.requests import buffered


@pytest.fixture
def bench(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        bench = Bench(lake, tmp_path)
        bench.buffer = replace(bench.buffer, retain_seconds=3600)
        bench.spec = replace(bench.spec, buffer=bench.buffer)
        yield bench


def table(bench):
    return bench.lake.catalog().load_table("otel.logs")


def consolidate(bench, *names):
    for name in names:
        bench.send(Signal.LOGS, name, records=1)
        bench.run()


def roll_back(bench, snapshot_id):
    table(bench).manage_snapshots().rollback_to_snapshot(snapshot_id).commit()


def rolled_back(bench):
    """Consolidate three batches, and roll the table back to the first."""
    consolidate(bench, "a")
    first = table(bench).current_snapshot().snapshot_id
    consolidate(bench, "b", "c")
    assert bench.names("logs") == Counter(["a 0", "b 0", "c 0"])
    roll_back(bench, first)
    assert bench.names("logs") == Counter(["a 0"])


def replay(bench, **options):
    return replay_table(bench.worker(), "otel.logs", **options)


def test_a_table_that_was_rolled_back_gets_what_it_lacks_once(bench):
    rolled_back(bench)
    report = replay(bench)
    assert bench.names("logs") == Counter(["a 0", "b 0", "c 0"])
    # Each stream has a segment of requests, and one that closes it.
    assert (report.segments, report.segments_contained) == (4, 2)
    assert (report.requests, report.rows, report.retained_segments) == (2, 2, 6)
    assert not report.unavailable.expired
    again = replay(bench)
    assert (again.segments, again.rows, again.segments_contained) == (0, 0, 6)
    consolidate(bench, "d")
    assert bench.names("logs") == Counter(["a 0", "b 0", "c 0", "d 0"])
    assert replay(bench).segments == 0


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("consolidate.written", marks=pytest.mark.soak),
        "publish.staged",
        pytest.param("publish.ready", marks=pytest.mark.soak),
        "publish.published",
    ],
)
def test_a_replay_that_is_cut_off_is_run_again(bench, point):
    rolled_back(bench)
    with failpoints.armed(point), pytest.raises(failpoints.PowerCut):
        replay(bench)
    bench.run()
    replay(bench)
    assert bench.names("logs") == Counter(["a 0", "b 0", "c 0"])
    assert [ref for ref in table(bench).metadata.refs if ref != "main"] == []
    assert replay(bench).segments == 0


@pytest.mark.parametrize("is_consolidated_first", [False, True])
def test_a_table_that_was_dropped_is_made_anew(bench, is_consolidated_first):
    log = open_buffer(bench.buffer, ["logs"])
    for name in ("a", "b", "c"):
        if name == "c":
            bench.lake.catalog().drop_table("otel.logs")
        request = buffered(protobuf(Signal.LOGS, name, 1))
        log.append("logs", request).durable.result(10)
        # One stream, which goes on after the drop: a number below is not in the new table.
        while not bench.waiting_segments():
            time.sleep(0.01)
        if name != "c" or is_consolidated_first:
            bench.run()
    replay(bench)
    # Raised where it was lower, never lowered.
    assert set(read_marks(table(bench).properties).values()) == {3 if is_consolidated_first else 2}
    log.close(10)
    bench.run()
    assert bench.names("logs") == Counter(["a 0", "b 0", "c 0"])
    assert replay(bench).rows == 0
    assert bench.names("logs") == Counter(["a 0", "b 0", "c 0"])


def test_consolidation_goes_on_between_rollback_and_replay(bench):
    rolled_back(bench)
    consolidate(bench, "d")
    # A commit of somebody else, such as a compaction, states nothing.
    table(bench).append(table(bench).scan().to_arrow().slice(0, 0))
    assert bench.names("logs") == Counter(["a 0", "d 0"])
    marks = read_marks(table(bench).properties)
    assert replay(bench).rows == 2
    assert bench.names("logs") == Counter(["a 0", "b 0", "c 0", "d 0"])
    assert read_marks(table(bench).properties) == marks


def test_a_batch_staged_before_a_replay_is_published_after_it(bench):
    rolled_back(bench)
    bench.send(Signal.LOGS, "d", records=1)
    with failpoints.armed("publish.staged"), pytest.raises(failpoints.PowerCut):
        bench.run()
    assert replay(bench).rows == 2
    bench.run()
    assert bench.names("logs") == Counter(["a 0", "b 0", "c 0", "d 0"])
    assert replay(bench).segments == 0


def test_of_two_replays_at_once_one_writes(bench):
    bench.spec = replace(bench.spec, lease_seconds=0)
    rolled_back(bench)
    reports = []

    def rival(job):
        bench.runner = run_inline
        reports.append(replay(bench))
        return run_inline(job)

    bench.runner = rival
    late = replay(bench)
    assert (reports[0].rows, late.rows, late.segments) == (2, 0, 0)
    assert late.segments_contained == 6
    assert bench.names("logs") == Counter(["a 0", "b 0", "c 0"])


def test_a_held_batch_is_left_to_the_person_who_decides_on_it(bench):
    consolidate(bench, "a")
    first = table(bench).current_snapshot().snapshot_id
    bench.send(Signal.LOGS, "b", records=1)
    with failpoints.armed("publish.staged"), pytest.raises(failpoints.PowerCut):
        bench.run()
    publisher = Publisher(StagingTable(bench.lake.profile, table(bench)), bench.worker().reader)
    [staged] = publisher.table.staged(STAGED_PREFIX)
    publisher.hold(staged)
    bench.run()
    roll_back(bench, first)
    assert replay(bench).segments == 0
    assert bench.names("logs") == Counter(["a 0"])
    publisher.table.refresh()
    [held] = publisher.table.staged(HELD_PREFIX)
    publisher.release(held)
    assert replay(bench).segments == 0
    assert bench.names("logs") == Counter(["a 0", "b 0"])


def test_requests_that_were_left_out_as_copies_do_not_come_back(bench):
    """Neither if the table has the other copy, nor if that one is no longer retained."""
    consolidate(bench, "a")
    first = table(bench).current_snapshot().snapshot_id
    send_as_stranger(bench, "a")
    # The segments are retired by a run after the one that left the copy out.
    bench.send(Signal.LOGS, "b", records=1)
    with failpoints.armed("consolidate.published"), pytest.raises(failpoints.PowerCut):
        bench.run()
    bench.run()
    roll_back(bench, first)
    # A copy of a request that only the rolled-back rows have: it was left out, so b must come.
    send_as_stranger(bench, "b")
    consolidate(bench, "c")
    assert bench.names("logs") == Counter(["a 0", "c 0"])
    report = replay(bench)
    assert bench.names("logs") == Counter(["a 0", "b 0", "c 0"])
    assert (report.requests, report.duplicate_records) == (1, 1)


def test_a_batch_of_copies_alone_has_no_rows_in_a_replay_either(bench):
    consolidate(bench, "a")
    send_as_stranger(bench, "a")
    assert bench.run().results == []
    report = replay(bench)
    assert (report.rows, report.requests, report.duplicate_records) == (0, 0, 1)
    assert bench.names("logs") == Counter(["a 0"])
    assert replay(bench).segments == 0


def send_as_stranger(bench, name):
    """Store a request in a second receiver that does not know the first one's hashes."""
    strange = replace(bench.buffer, dedup_seconds=0)
    with open_buffer(strange, ["logs"]) as buffer:
        request = buffered(protobuf(Signal.LOGS, name, 1))
        buffer.append("logs", request).durable.result(10)


def test_from_leaves_older_segments_out(bench):
    # Whole microseconds: that is what a datetime holds.
    start = time.time_ns() // 1000 * 1000
    for age, name in enumerate(("a", "b", "c")):
        received = start + age * 10**9
        bench.send(Signal.LOGS, name, records=1, received_unix_nano=received)
        bench.run()
    bench.lake.catalog().drop_table("otel.logs")
    since = datetime.fromtimestamp(0, timezone.utc) + timedelta(microseconds=start // 1000 + 10**6)
    report = replay(bench, since=since)
    assert bench.names("logs") == Counter(["b 0", "c 0"])
    assert report.segments == 2
    assert report.segments_before_from == 4
    assert replay(bench).rows == 1
    assert bench.names("logs") == Counter(["a 0", "b 0", "c 0"])


def test_what_is_no_longer_retained_is_told(bench):
    rolled_back(bench)
    RetentionLimit(bench.worker().store, 0.0).enforce()
    report = replay(bench)
    assert (report.segments, report.retained_segments) == (0, 0)
    assert list(report.unavailable.expired.values()) == [(Range(1, 2),), (Range(1, 2),)]
    assert bench.names("logs") == Counter(["a 0"])


def test_a_segment_that_vanishes_during_a_replay_fails_it(bench):
    rolled_back(bench)

    def careless(job):
        RetentionLimit(bench.worker().store, 0.0).enforce()
        return run_inline(job)

    bench.runner = careless
    with pytest.raises(StorageError, match="is not retained any more"):
        replay(bench)
    assert bench.names("logs") == Counter(["a 0"])


def test_only_telemetry_tables_can_be_replayed(bench):
    with pytest.raises(UsageError, match=r"otel\.events is not a telemetry table"):
        replay_table(bench.worker(), "otel.events")


def test_the_statement_is_bounded_by_the_marks(bench):
    """A stream that was dropped leaves the statement together with its mark."""
    bench.buffer = replace(bench.buffer, retain_seconds=0.0, dedup_seconds=0.0)
    bench.spec = replace(bench.spec, buffer=bench.buffer)
    consolidate(bench, "a", "b", "c", "d")
    staging = StagingTable(bench.lake.profile, table(bench))
    assert set(contained_in(staging)) >= set(read_marks(staging.properties))
    assert len(contained_in(staging)) <= 2
