"""What was staged, and what nobody can publish any more: told, and cleaned up after a time."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import neve
from neve.config import Settings
from neve.errors import CatalogError, CorruptionError, StorageError
from neve.index.root import new_path
from neve.lake.catalog import list_tables, load_table
from neve.lake.staging import StagingTable
from neve.observe.metrics import Registry
from neve.publish.batch import STAGED_PREFIX
from neve.publish.publisher import Publisher
from neve.publish.ranges import BATCH_ID, RANGES, Range, encode_ranges
from neve.publish.staged_list import list_staged
from neve.service.upkeep import TableUpkeep
from neve.signals import Signal
from neve.upkeep import upkeep as upkeep_module
from neve.upkeep.orphans import OrphanSearch
from neve.upkeep.spec import UpkeepSpec
from neve.upkeep.upkeep import Upkeep, UpkeepReport
from tests.support.appending import Appender
from tests.support.consolidation import Bench
from tests.support.lakes import sqlite_settings
from tests.support.power_cut import power_cut
from tests.support.wait import until
from tests.unit.upkeep.test_maintenance_plan import make_mirror

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


def stream_of(bench, signal):
    (stream,) = bench.worker().reader.streams(signal)
    return stream.stream


def upkeep(bench, seconds_later=0.0):
    return Upkeep(bench.lake, UpkeepSpec(bench.buffer), clock=lambda: time.time() + seconds_later)


def look_after(bench, seconds_later):
    """Look after the tables later; return how many stagings were abandoned."""
    report = upkeep(bench, seconds_later).run()
    assert report.failures == {}
    return report.abandoned


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
    with power_cut("publish.staged"):
        bench.run()
    assert look_after(bench, 30 * DAY) == 0
    report = bench.run()
    assert report.rows == 2
    assert bench.names("logs") == Counter(["a 0", "a 1"])


def test_nothing_of_a_table_expires_whose_newest_manifest_is_damaged(bench):
    settings = {"upkeep": {"retain_min": 1, "tables": {"ns.*": {"expire": True}}}}
    bench.lake.settings = Settings.model_validate({**bench.lake.settings.model_dump(), **settings})
    for namespace in ("ns", "ns.whole"):
        appender = Appender(bench.lake, namespace)
        for number in range(25):
            appender.append(number)
    table = Appender(bench.lake).load()
    newest = table.current_snapshot().manifests(table.io)[0].manifest_path
    Path(urlsplit(newest).path).write_bytes(b"damaged")
    report = upkeep(bench, 10 * DAY).run()
    assert list(report.failures) == ["ns.t"]
    assert Path(newest).name in report.failures["ns.t"]
    assert len(Appender(bench.lake).load().metadata.snapshots) == 25
    assert report.expired_snapshots >= 20


@pytest.mark.parametrize("error", [CatalogError("it is down"), KeyError("a defect")])
def test_a_table_that_fails_stops_no_other(bench, monkeypatch, caplog, error):
    bench.send(Signal.LOGS, "a")
    bench.send(Signal.TRACES, "b")
    bench.run()
    stage(bench, stream_of(bench, "logs"))
    stage(bench, stream_of(bench, "traces"), table="traces")
    abandoned = Publisher.abandoned

    def fail_for_logs(self, before_ms):
        if self.table.name == "otel.logs":
            raise error
        return abandoned(self, before_ms)

    monkeypatch.setattr(Publisher, "abandoned", fail_for_logs)
    report = upkeep(bench, DAY + HOUR).run()
    assert report.abandoned == 1
    assert [batch.table for batch in list_staged(bench.lake)] == ["otel.logs"]
    (reason,) = report.failures.values()
    assert list(report.failures) == ["otel.logs"]
    assert reason in ("it is down", "internal error: KeyError")
    assert "otel.logs was not looked after" in caplog.text


def test_a_namespace_that_cannot_be_listed_stops_no_other(bench, monkeypatch):
    bench.send(Signal.LOGS, "a")
    bench.run()
    stage(bench, stream_of(bench, "logs"))

    def fail_for_the_ledger(profile, catalog, namespace):
        if namespace == ("neve",):
            raise CatalogError("it is down")
        return list_tables(profile, catalog, namespace)

    monkeypatch.setattr(upkeep_module, "list_tables", fail_for_the_ledger)
    report = upkeep(bench, DAY + HOUR).run()
    assert report.abandoned == 1
    assert report.failures == {"neve": "it is down"}


def test_tables_are_looked_at_now_and_then_and_never_by_a_batch(bench, monkeypatch):
    bench.send(Signal.LOGS, "a")
    now = 1000.0
    looking = Upkeep(bench.lake, UpkeepSpec(bench.buffer), clock=lambda: now)
    assert looking.run_when_due() is not None
    now += 300 - 1
    assert looking.run_when_due() is None
    now += 1
    assert looking.run_when_due() is not None
    monkeypatch.setattr(Upkeep, "run", None)
    assert bench.run().rows == 2


def test_orphans_are_removed_now_and_then_and_not_at_the_start(bench):
    bench.send(Signal.LOGS, "a")
    bench.run()
    location = load_table(bench.lake.profile, bench.lake.catalog(), ("otel", "logs")).location()
    left = Path(urlsplit(location).path, "data", "killed.parquet")
    left.write_bytes(b"left")
    now = time.time() + 4 * DAY
    looking = Upkeep(bench.lake, UpkeepSpec(bench.buffer), clock=lambda: now)
    assert looking.run_when_due().orphans == 0
    now += HOUR
    report = looking.run_when_due()
    assert (report.orphans, report.orphan_bytes, report.failures) == (1, 4, {})
    assert not left.exists()
    assert bench.names("logs") == Counter(["a 0", "a 1"])


def test_the_log_says_what_goes_and_why_before_it_goes(bench):
    for name in "ab":
        bench.send(Signal.LOGS, name)
        bench.run()
    table = load_table(bench.lake.profile, bench.lake.catalog(), ("otel", "logs"))
    left = Path(urlsplit(table.location()).path, "data", "killed.parquet")
    left.write_bytes(b"left")
    keep_one = {"retain_min": 1, "keep_hourly": 0, "keep_daily": 0}
    bench.lake.settings = Settings.model_validate(
        {**bench.lake.settings.model_dump(), "upkeep": keep_one}
    )
    said = []

    def note(text):
        if text.startswith("otel.logs: "):
            said.append((text, len(table.refresh().metadata.snapshots), left.exists()))

    bench.lake.progress = note
    later = time.time() + 4 * DAY
    count = len(table.metadata.snapshots)
    looking = Upkeep(bench.lake, UpkeepSpec(bench.buffer, expire_at_once=1), lambda: later)
    assert looking.run().expired_snapshots > 0
    looking.remove_orphans(UpkeepReport())
    why = "not current for more than 1h"
    orphans = "deleting 1 files of 4 B that no snapshot names, older than 3d"
    assert said == [
        (f"otel.logs: {count - 1} of {count} snapshots expire: {why}", count, True),
        (f"otel.logs: {orphans}", 1, True),
    ]
    assert not left.exists()


def test_orphans_of_a_table_that_fails_in_any_way_stop_no_other(bench, monkeypatch):
    bench.send(Signal.LOGS, "a")
    bench.run()
    search = OrphanSearch.plan

    def fail_for_logs(self, *arguments, **options):
        if self.ref.name == "otel.logs":
            raise KeyError("a defect")
        return search(self, *arguments, **options)

    monkeypatch.setattr(OrphanSearch, "plan", fail_for_logs)
    table = load_table(bench.lake.profile, bench.lake.catalog(), ("neve", "batches"))
    left = Path(urlsplit(table.location()).path, "data", "killed.parquet")
    left.write_bytes(b"left")
    report = UpkeepReport()
    upkeep(bench, 4 * DAY).remove_orphans(report)
    assert report.failures == {"otel.logs": "internal error: KeyError"}
    assert report.orphans == 1


def test_files_of_an_index_are_left_as_long_as_orphans_are(bench):
    """They may be of a merge that is about to name them, or of a table registered twice."""
    bench.lake.catalog().create_namespace("shop")
    table, location = make_mirror(bench.lake)
    location.mkdir(parents=True)
    shards = [Path(new_path(str(location), "shard")) for _ in range(2)]
    for shard, days in zip(shards, (10, 2), strict=True):
        shard.write_bytes(b"shard")
        os.utime(shard, (time.time() - days * DAY,) * 2)
    bench.lake.settings = with_mirror_policy(bench.lake.settings)
    assert upkeep_of_orphans(bench).orphans == 1
    assert list(location.iterdir()) == [shards[1]]
    os.utime(shards[1], (0, 0))
    with table.transaction() as change:
        change.set_properties({"gc.enabled": "false"})
    report = upkeep_of_orphans(bench)
    assert (report.orphans, report.failures) == (0, {})
    assert list(location.iterdir()) == [shards[1]]


def with_mirror_policy(settings):
    policies = {"tables": {"shop.*": {"remove_orphans": True}}}
    return Settings.model_validate({**settings.model_dump(), "upkeep": policies})


def upkeep_of_orphans(bench):
    report = UpkeepReport()
    upkeep(bench).remove_orphans(report)
    return report


def test_recovery_records_are_read_once_for_a_run(bench):
    bench.send(Signal.LOGS, "a")
    bench.send(Signal.TRACES, "b")
    bench.run()
    reads = []
    looking = Upkeep(bench.lake, UpkeepSpec(bench.buffer), time.time, lambda: reads.append(1) or ())
    assert looking.run().failures == {}
    assert len(reads) == 1


def test_a_damaged_recovery_record_stops_the_removal_of_orphans(bench):
    def damaged():
        raise CorruptionError("a record is damaged")

    now = time.time()
    looking = Upkeep(bench.lake, UpkeepSpec(bench.buffer), lambda: now, damaged)
    report = UpkeepReport()
    looking.remove_orphans(report)
    assert report.failures == {"recovery records": "a record is damaged"}


@pytest.mark.parametrize("error", [CorruptionError, StorageError])
def test_no_version_expires_while_recovery_records_cannot_be_read(bench, error):
    """They name snapshots that only they can prove to be needed."""
    bench.send(Signal.LOGS, "a")
    bench.run()
    stream = stream_of(bench, "logs")
    bench.send(Signal.LOGS, "b")
    bench.run()
    stage(bench, stream)

    def unreadable():
        raise error("a record cannot be read")

    spec, later = UpkeepSpec(bench.buffer, expire_at_once=1), time.time() + DAY + HOUR
    report = Upkeep(bench.lake, spec, lambda: later, unreadable).run()
    assert report.failures == {"recovery records": "a record cannot be read"}
    assert (report.abandoned, report.expired_snapshots) == (1, 0)
    assert Upkeep(bench.lake, spec, lambda: later).run().expired_snapshots > 0


def test_the_part_of_the_service_counts_what_it_did_and_stops_when_told(bench):
    bench.send(Signal.LOGS, "a")
    bench.run()
    stage(bench, stream_of(bench, "logs"))
    settings = Settings.model_validate(
        {
            **bench.lake.settings.model_dump(),
            "buffer": {"location": bench.buffer.location},
            "observe": {"http": None},
        }
    )
    stop, registry = threading.Event(), Registry({})
    with neve.open(settings) as lake:
        part = TableUpkeep(lake, registry)
        part.upkeep.clock = lambda: time.time() + DAY + HOUR
        thread = threading.Thread(target=part.run, args=(stop,))
        thread.start()
        until(lambda: b"neve_publish_abandoned_total 1.0" in registry.text())
        stop.set()
        thread.join(30)
    assert not thread.is_alive()
    assert part.trouble is None
    assert list_staged(bench.lake) == []
