"""One bad table never stops the others: they go on, it is named, and its data waits."""

import json
import threading
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest

import neve
from neve.cli.app import run
from neve.consolidate import consolidator as consolidation
from neve.consolidate.memory import SignalMemory
from neve.consolidate.watch import look, watch
from neve.publish.audited_publisher import AuditedPublisher
from neve.publish.publisher import Publisher
from neve.signals import Signal
from tests.support.consolidation import Bench, run_inline
from tests.support.lakes import sqlite_settings
from tests.support.observers import Listening
from tests.support.wait import until


@pytest.fixture
def bench(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        yield Bench(lake, tmp_path)


def put_foreign_table(bench, name):
    catalog = bench.lake.catalog()
    catalog.create_namespace_if_not_exists("otel")
    catalog.create_table(name, pa.schema([("metric_name", pa.int64()), ("body", pa.int64())]))


def test_a_foreign_table_in_the_way_stops_no_other_signal(bench):
    put_foreign_table(bench, "otel.logs")
    bench.send(Signal.LOGS, "a")
    bench.send(Signal.TRACES, "t")
    bench.send(Signal.METRICS, "m")
    report = bench.run()
    assert report.failed
    assert report.trouble.startswith("otel.logs: table otel.logs is in the way")
    assert [result.table for result in report.failures] == ["otel.logs"]
    assert bench.names("traces").total() == bench.names("metrics_gauge").total() == 2
    ledger = bench.lake.catalog().load_table("neve.batches").scan().to_arrow()
    assert set(ledger["table"].to_pylist()) == {"otel.traces", "otel.metrics_gauge"}
    waiting = {stream.signal for stream in bench.worker().reader.streams() if stream.segments}
    assert waiting == {"logs"}
    bench.lake.catalog().drop_table("otel.logs")
    bench.run()
    assert bench.names("logs") == Counter(["a 0", "a 1"])
    assert bench.waiting_segments() == 0


def fail_at(monkeypatch, owner, method, table, error):
    """Let one step fail for one table, until the returned event is set."""
    is_well = threading.Event()
    original = getattr(owner, method)

    def step(self, *arguments, **more):
        publisher = getattr(self, "publisher", self)
        if publisher.table.name == table and not is_well.is_set():
            raise error
        return original(self, *arguments, **more)

    monkeypatch.setattr(owner, method, step)
    return is_well


@pytest.mark.parametrize(
    ("owner", "method"),
    [
        (Publisher, "waiting"),
        (Publisher, "marks"),
        (Publisher, "stage"),
        (AuditedPublisher, "audit_and_publish"),
        (Publisher, "publish"),
    ],
)
def test_a_table_that_fails_at_any_step_keeps_its_segments_and_the_others_go_on(
    bench, monkeypatch, owner, method
):
    is_well = fail_at(monkeypatch, owner, method, "otel.metrics_sum", KeyError("anything"))
    for name in "abc":
        bench.send_gauge_and_sum(name)
        report = bench.run()
        assert report.trouble == "otel.metrics_sum: internal error: KeyError"
    assert bench.names("metrics_gauge") == Counter("abc")
    assert bench.names("metrics_sum") == Counter()
    assert bench.waiting_segments() > 0
    is_well.set()
    assert not bench.run().failed
    assert bench.names("metrics_gauge") == bench.names("metrics_sum") == Counter("abc")
    assert bench.waiting_segments() == 0


def test_a_table_whose_files_cannot_be_written_is_found_and_the_others_go_on(bench):
    def run_job(job):
        if any(target.table == "metrics_sum" for target in job.targets):
            raise OSError("its bucket is away")
        return run_inline(job)

    bench.runner = run_job
    bench.send_gauge_and_sum("a")
    assert [result.table for result in bench.run().failures] == ["otel.metrics_sum"]
    assert bench.names("metrics_gauge") == Counter("a")


def test_a_table_that_is_far_behind_catches_up_and_nobody_waits_for_it(bench, monkeypatch):
    bench.spec = replace(bench.spec, batch_bytes=1)
    is_well = fail_at(monkeypatch, Publisher, "stage", "otel.metrics_sum", KeyError("x"))
    worker, now = bench.worker(), 0.0
    worker.memories[Signal.METRICS] = SignalMemory(clock=lambda: now)
    for name in "abcd":
        bench.send_gauge_and_sum(name)
    worker.run_once()
    is_well.set()
    now = 60.0
    bench.send_gauge_and_sum("e")
    report = worker.run_once()
    order = [(result.table, result.rows) for result in report.results]
    assert order[0] == ("otel.metrics_gauge", 1)
    assert order.count(("otel.metrics_sum", 1)) == 5
    assert bench.names("metrics_gauge") == bench.names("metrics_sum") == Counter("abcde")
    assert bench.waiting_segments() == 0


def test_tables_at_the_same_position_are_decoded_once(bench):
    jobs = []

    def count(job):
        jobs.append(job)
        return run_inline(job)

    bench.runner = count
    for name in "ab":
        bench.send_gauge_and_sum(name)
        bench.run()
    assert [len(job.targets) for job in jobs] == [5, 5]


def test_a_failed_table_is_tried_later_each_time_while_others_keep_their_pace(bench, monkeypatch):
    is_well = fail_at(monkeypatch, Publisher, "stage", "otel.metrics_sum", KeyError("x"))
    worker, now, tries = bench.worker(), 0.0, []
    worker.memories[Signal.METRICS] = SignalMemory(clock=lambda: now)
    while now < 200:
        bench.send_gauge_and_sum(f"{now}")
        if worker.run_once().failures:
            tries.append(now)
        now += 1
        assert bench.names("metrics_gauge").total() == now
        if len(tries) == 3:
            break
    assert tries == [0, 1, 3]
    assert worker.failing_tables == {"otel.metrics_sum": "internal error: KeyError"}
    is_well.set()
    now += 100
    worker.run_once()
    assert worker.failing_tables == {}
    assert bench.names("metrics_sum") == bench.names("metrics_gauge")


def test_pauses_double_up_to_a_minute():
    now = 0.0
    memory = SignalMemory(clock=lambda: now)
    pauses = []
    for _ in range(8):
        memory.pause("t", "down")
        pauses.append(memory.pauses["t"].seconds)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    assert memory.is_paused("t")
    now = 60.0
    assert not memory.is_paused("t")


def test_a_table_in_trouble_is_told_at_each_look_and_costs_nothing_meanwhile(bench, monkeypatch):
    fail_at(monkeypatch, Publisher, "stage", "otel.logs", KeyError("x"))
    bench.send(Signal.LOGS, "a")
    worker, listener = bench.worker(), Listening()
    worker.memories[Signal.LOGS] = SignalMemory(clock=lambda: 0.0)
    look(worker, threading.Event(), listener)
    turns = []
    monkeypatch.setattr(worker, "_take_turn", lambda *_, **__: turns.append(1) or True)
    for _ in range(3):
        assert look(worker, threading.Event(), listener).failures == []
    assert listener.troubles == ["otel.logs: internal error: KeyError"] * 4
    assert turns == []


def test_a_table_that_another_worker_got_past_is_in_no_trouble_any_more(bench, monkeypatch):
    is_well = fail_at(monkeypatch, Publisher, "stage", "otel.logs", KeyError("x"))
    bench.send(Signal.LOGS, "a")
    worker, listener = bench.worker(), Listening()
    look(worker, threading.Event(), listener)
    is_well.set()
    bench.run()
    assert bench.waiting_segments() == 0
    look(worker, threading.Event(), listener)
    assert listener.troubles == ["otel.logs: internal error: KeyError", None]


def test_the_worker_does_not_pause_for_one_table(bench, monkeypatch):
    fail_at(monkeypatch, Publisher, "stage", "otel.logs", KeyError("x"))
    monkeypatch.setattr("neve.consolidate.watch.FIRST_PAUSE_SECONDS", 3600.0)
    monkeypatch.setattr("neve.consolidate.watch.POLL_SECONDS", 0.01)
    bench.spec = replace(bench.spec, trigger_seconds=0.0)
    bench.send(Signal.LOGS, "a")
    worker, stop, listener = bench.worker(), threading.Event(), Listening()
    thread = threading.Thread(target=watch, args=(worker, stop, listener))
    thread.start()
    try:
        until(lambda: any(listener.troubles))
        bench.send(Signal.TRACES, "t")
        until(lambda: ("otel", "traces") in bench.lake.catalog().list_tables("otel"))
        until(lambda: bench.names("traces").total() == 2)
    finally:
        stop.set()
        thread.join()


def test_the_command_names_the_table_and_ends_with_status_3(bench, tmp_path, monkeypatch, capsys):
    put_foreign_table(bench, "otel.logs")
    bench.send(Signal.LOGS, "a")
    bench.send(Signal.TRACES, "t")
    settings = bench.lake.settings
    monkeypatch.setenv("NEVE_BUFFER__LOCATION", bench.buffer.location)
    monkeypatch.setenv("NEVE_CATALOG__URI", settings.catalog.uri)
    monkeypatch.setenv("NEVE_CATALOG__WAREHOUSE", settings.catalog.warehouse)
    monkeypatch.setattr(consolidation, "SparkRunner", lambda _: run_inline)
    monkeypatch.setattr(consolidation.Consolidator, "prepare", lambda _: None)
    monkeypatch.chdir(tmp_path)
    assert run(["--json", "consolidate", "--once"]) == 3
    out, err = capsys.readouterr()
    outcomes = {result["table"]: result["outcome"] for result in json.loads(out)}
    assert outcomes == {"otel.logs": "failed", "otel.traces": "published"}
    assert "neve: otel.logs failed: table otel.logs is in the way" in err
