"""What was staged, and what nobody can publish any more: told, and cleaned up after a time."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import replace

import pytest

import neve
from neve import failpoints
from neve.consolidate.watch import look
from neve.lake.catalog import load_table
from neve.lake.staging import StagingTable
from neve.publish.publisher import STAGED_PREFIX, Publisher
from neve.publish.ranges import BATCH_ID, RANGES, Range, encode_ranges
from neve.publish.staged_batches import list_staged
from neve.signals import Signal
from tests.support.consolidation import Bench
from tests.support.lakes import sqlite_settings

HOUR, DAY = 3600, 86_400


@pytest.fixture
def bench(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        yield Bench(lake, tmp_path)


def stage(bench, stream, first=1, table="logs"):
    """Stage what the table has, as a worker does that is then killed."""
    loaded = load_table(bench.lake.profile, bench.lake.catalog(), ("otel", table))
    staging = StagingTable(bench.lake.profile, loaded)
    summary = {BATCH_ID: "left", RANGES: encode_ranges({stream: Range(first, first)})}
    staging.stage(staging.added_files(staging.main_id), summary, f"{STAGED_PREFIX}left")


def look_after(bench, seconds_later):
    """Look at an idle buffer, as the service does; return what the report says was abandoned."""

    class Listener:
        def looked(self, streams):
            assert not any(one.segments for one in streams)

        def ended(self, report, trouble):
            assert trouble is None
            self.report = report

    listener, worker = Listener(), bench.worker()
    worker.upkeep.clock = lambda: time.time() + seconds_later
    look(worker, threading.Event(), listener)
    return listener.report.abandoned


def drop_all_streams(bench):
    """Let the hashes of consumed requests expire, so that the next run drops their streams."""
    bench.buffer = replace(bench.buffer, dedup_seconds=0)
    bench.spec = replace(bench.spec, buffer=bench.buffer)
    (stream,) = bench.worker().reader.streams("logs")
    bench.run()
    assert bench.worker().reader.dropped_streams("logs") == [stream.stream]
    return stream.stream


def test_of_a_dropped_stream_it_is_kept_for_a_day_and_then_cleaned_up(bench, caplog):
    bench.send(Signal.LOGS, "a")
    bench.run()
    stage(bench, drop_all_streams(bench))
    assert look_after(bench, DAY - HOUR) == 0
    (left,) = list_staged(bench.lake)
    assert (left.state, left.rows, left.batch_id) == ("staged", 2, "left")
    assert abs(left.staged_at.timestamp() - time.time()) < 60
    assert look_after(bench, DAY + HOUR) == 1
    assert "neve-staged-left, of 2 rows, lost against another" in caplog.text
    assert list_staged(bench.lake) == []
    assert bench.names("logs") == Counter(["a 0", "a 1"])


@pytest.mark.parametrize("stream", ["logs/old", "logs/00000000deadbeef-20260101T000000Z-1"])
def test_the_staging_of_another_or_a_lost_buffer_is_never_discarded(bench, stream):
    bench.send(Signal.LOGS, "a")
    bench.run()
    stage(bench, stream)
    bench.send(Signal.LOGS, "b")
    bench.run()
    assert look_after(bench, 365 * DAY) == 0
    (left,) = list_staged(bench.lake)
    assert left.batch_id == "left"


def test_what_lies_behind_a_mark_goes_too(bench):
    bench.send(Signal.LOGS, "a")
    bench.run()
    (stream,) = bench.worker().reader.streams("logs")
    stage(bench, stream.stream, first=1)
    assert look_after(bench, DAY + HOUR) == 1
    assert list_staged(bench.lake) == []


def test_what_can_still_be_published_is_left_to_the_next_run_however_old(bench):
    bench.send(Signal.LOGS, "a")
    with pytest.raises(failpoints.PowerCut), failpoints.armed("publish.staged"):
        bench.run()
    worker = bench.worker()
    worker.upkeep.clock = lambda: time.time() + 30 * DAY
    assert worker.upkeep.run_when_due().abandoned == 0
    report = bench.run()
    assert report.rows == 2
    assert bench.names("logs") == Counter(["a 0", "a 1"])


def test_a_look_that_fails_stops_nothing(bench, monkeypatch, caplog):
    from neve.errors import CatalogError

    bench.send(Signal.LOGS, "a")

    def fail(*_):
        raise CatalogError("it is down")

    monkeypatch.setattr(Publisher, "abandoned", fail)
    assert bench.run().rows == 2
    assert "not looked after: it is down" in caplog.text
