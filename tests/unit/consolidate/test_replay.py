"""What was set aside becomes rows after an upgrade: each record once, whatever is cut off."""

from __future__ import annotations

import time
from collections import Counter

import pytest

import neve
from neve.buffer import replay as replaying
from neve.buffer.buffer import open_buffer, open_store
from neve.buffer.dead_letters import (
    PREFIX,
    DeadRequest,
    list_dead_letters,
    read_dead_letters,
    set_aside,
)
from neve.buffer.replay import replay
from neve.signals import Signal
from neve.telemetry import faults
from tests.support.consolidation import Bench
from tests.support.lakes import sqlite_settings
from tests.support.otlp_bodies import message, protobuf
from tests.support.power_cut import power_cut
from tests.support.requests import buffered

# No table of this version takes the year 2262; a later one may.
TOO_LATE = faults.END_OF_TIME + 1000
POINTS = ["replay.intended", "replay.put", "replay.closed", "replay.removed"]


@pytest.fixture
def bench(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        yield Bench(lake, tmp_path)


@pytest.fixture
def store(bench):
    return open_store(bench.buffer)


def send_with_one_bad_record(bench, name="log", received_unix_nano=None):
    """Send three records of a named service, of which the second cannot be a row."""
    request = message(Signal.LOGS, name, 3)
    resource = request.resource_logs[0].resource
    resource.attributes.add(key="service.name").value.string_value = "shop"
    request.resource_logs[0].scope_logs[0].log_records[1].time_unix_nano = TOO_LATE
    with open_buffer(bench.buffer, ["logs"]) as buffer:
        stored = buffered(request.SerializeToString(), received_unix_nano=received_unix_nano)
        buffer.append("logs", stored).durable.result(10)


@pytest.fixture
def upgrade(monkeypatch):
    """Return what makes the year 2262 representable."""
    return lambda: monkeypatch.setattr(faults, "END_OF_TIME", 2**63 - 1)


def expected(name="log"):
    return Counter(f"{name} {n}" for n in range(3))


def test_a_replayed_record_is_a_row_beside_the_others_of_its_request(bench, store, upgrade):
    send_with_one_bad_record(bench)
    assert bench.run().dead_letters == 1
    assert bench.names("logs") == expected() - Counter(["log 1"])
    upgrade()
    assert replay(store).records == 1
    report = bench.run()
    assert (report.rows, report.dead_letters) == (1, 0)
    assert bench.names("logs") == expected()
    rows = bench.lake.catalog().load_table("otel.logs").scan().to_arrow()
    assert set(rows["service_name"].to_pylist()) == {"shop"}
    assert len(set(rows["received_at"].to_pylist())) == 1
    assert bench.run().rows == 0


@pytest.mark.parametrize("consolidates_meanwhile", [False, True])
@pytest.mark.parametrize("point", POINTS)
def test_a_replay_that_was_cut_off_stores_each_record_once(
    bench, store, upgrade, monkeypatch, point, consolidates_meanwhile
):
    # Of old requests no hash keeps a consumed stream from being forgotten.
    monkeypatch.setattr(replaying, "KEEP_SECONDS", 0.0)
    send_with_one_bad_record(bench, received_unix_nano=time.time_ns() - 3600 * 10**9)
    bench.run()
    upgrade()
    with power_cut(point):
        replay(store)
    if consolidates_meanwhile:
        bench.run()
        bench.send(Signal.LOGS, "other", records=1)
        bench.run()
    replay(store)
    bench.run()
    replay(store)
    bench.run()
    logs = Counter({k: n for k, n in bench.names("logs").items() if k.startswith("log")})
    assert logs == expected()
    assert list_dead_letters(store) == []
    assert store.files("replays") == []
    assert bench.waiting_segments() == 0


def test_what_is_still_not_representable_is_set_aside_again(bench, store, upgrade):
    send_with_one_bad_record(bench)
    bench.run()
    [stream] = replay(store).streams
    assert bench.run().dead_letters == 1
    [letter] = read_dead_letters(store)
    assert letter["stream"] == stream
    upgrade()
    replay(store)
    bench.run()
    assert bench.names("logs") == expected()


def test_a_batch_that_is_done_again_is_not_replayed_before_it_ends(bench, store, upgrade):
    send_with_one_bad_record(bench)
    with power_cut("consolidate.decoded"):
        bench.run()
    assert len(list_dead_letters(store)) == 1
    assert replay(store).requests == 0
    bench.run()
    upgrade()
    assert replay(store).requests == 1
    bench.run()
    assert bench.names("logs") == expected()
    assert list_dead_letters(store) == []


def test_a_whole_request_is_no_duplicate_of_the_one_it_was(bench, store):
    bench.send(Signal.LOGS, "log", records=3)
    bench.run()
    dead = DeadRequest(
        stream="logs/20260101T000000Z-0123456789ab",
        segment=1,
        position=0,
        received_unix_nano=time.time_ns(),
        reasons=(("", "too wide for the version before"),),
        payload=protobuf(Signal.LOGS, "log", 3),
    )
    set_aside(store, dead)
    assert replay(store).records == 3
    bench.run()
    assert bench.names("logs") == expected() + expected()


def test_points_of_a_metric_are_replayed_alone(bench, store, upgrade):
    request = message(Signal.METRICS, "metric", 1)
    points = request.resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points
    points.add(as_double=5, time_unix_nano=TOO_LATE)
    with open_buffer(bench.buffer, ["metrics"]) as buffer:
        stored = buffered(request.SerializeToString())
        buffer.append("metrics", stored).durable.result(10)
    bench.run()
    assert bench.names("metrics_gauge") == Counter(["metric 0"])
    upgrade()
    assert replay(store).records == 1
    bench.run()
    assert bench.names("metrics_gauge") == Counter(["metric 0"] * 2)


def test_dead_letters_past_the_limit_are_removed_and_counted(bench, store, caplog):
    send_with_one_bad_record(bench)
    worker = bench.worker()
    worker.dead_letter_limit._max_bytes = 1
    report = worker.run_once()
    assert (report.dead_letters, report.dead_letters_over_limit) == (1, 1)
    assert store.files(PREFIX) == []
    assert "before their time" in caplog.text
