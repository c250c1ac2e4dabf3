"""From the buffer to the tables on the embedded lake, without Spark: exactly once."""

import os
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

import neve
from neve import failpoints
from neve.buffer.buffer import open_buffer, open_store
from neve.buffer.dead_letters import read_dead_letters
from neve.buffer.frame import Entry, heads_only
from neve.consolidate.consolidator import Consolidator, SparkRunner
from neve.errors import ConfigError
from neve.signals import Signal
from tests.support.consolidation import Bench
from tests.support.lakes import sqlite_settings
from tests.support.power_cut import power_cut
from tests.support.requests import buffered
from tests.support.wait import until

# The others take an audit.
POINTS = [
    *(name for name in failpoints.POINTS if name.startswith("consolidate.")),
    *("publish.staged", "publish.ready", "publish.published"),
]


@pytest.fixture
def bench(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        yield Bench(lake, tmp_path)


def test_requests_become_rows_once_and_their_segments_go(bench):
    bench.send(Signal.LOGS, "a", "b")
    bench.send(Signal.TRACES, "c")
    report = bench.run()
    assert bench.names("logs") == Counter(["a 0", "a 1", "b 0", "b 1"])
    assert bench.names("traces") == Counter(["c 0", "c 1"])
    assert report.rows == 6
    assert not report.failed
    assert bench.waiting_segments() == 0
    assert bench.run().results == []
    assert bench.names("logs").total() == 4


def test_metrics_are_split_into_their_tables(bench):
    bench.send(Signal.METRICS, "m", records=3)
    bench.run()
    assert bench.names("metrics_gauge").total() == 3
    catalog = bench.lake.catalog()
    assert catalog.load_table("otel.metrics_sum").scan().to_arrow().num_rows == 0


def test_tables_are_as_the_contract_says(bench):
    bench.send(Signal.TRACES, "c")
    bench.run()
    shown = bench.lake.table("otel.traces")
    assert shown.format_version == 2
    assert shown.partition_by == ("day(timestamp)",)
    assert [entry.split()[0] for entry in shown.sort_by] == ["service_name", "timestamp"]
    assert shown.properties["write.parquet.bloom-filter-enabled.column.trace_id"] == "true"


@pytest.mark.parametrize(
    ("point", "passes"),
    [
        *((point, 1) for point in POINTS),
        # In the second signal, or at the second table of the first.
        ("publish.ready", 2),
        *(
            pytest.param(point, 2, marks=pytest.mark.soak)
            for point in POINTS
            if point != "publish.ready"
        ),
    ],
)
def test_a_worker_cut_at_any_step_leaves_each_row_once(bench, point, passes):
    bench.send(Signal.METRICS, "m")
    bench.send(Signal.LOGS, "a")
    with power_cut(point, passes):
        bench.run()
    bench.send(Signal.LOGS, "b")
    bench.run()
    bench.run()
    assert bench.names("logs") == Counter(["a 0", "a 1", "b 0", "b 1"])
    assert bench.names("metrics_gauge") == Counter(["m 0", "m 1"])
    assert bench.waiting_segments() == 0


@pytest.fixture
def rivals(bench):
    """Workers that nothing keeps from doing the same work: what is right must be so without."""
    bench.spec = replace(bench.spec, lease_seconds=0)
    return bench


def test_two_workers_on_the_same_segments_store_them_once(rivals):
    bench = rivals
    bench.send(Signal.LOGS, "a")
    second = bench.worker()

    def interrupted(job):
        # While the first worker's tasks run, the second does all of it.
        rows = list(inline(job))
        second.run_once()
        return rows

    inline, bench.runner = bench.runner, interrupted
    bench.run()
    assert bench.names("logs") == Counter(["a 0", "a 1"])


def test_a_slower_worker_retires_nothing_that_it_did_not_store(rivals):
    bench = rivals
    bench.send(Signal.LOGS, "a")
    bench.send(Signal.LOGS, "b")
    stop = threading.Event()

    def one_batch(job):
        stop.set()
        return inline(job)

    def interrupted(job):
        # While this worker's tasks read both segments, another publishes the first of them.
        rows = list(inline(job))
        if not stop.is_set():
            Consolidator(bench.lake, replace(bench.spec, batch_bytes=1), one_batch).run_once(
                stop=stop
            )
        return rows

    inline, bench.runner = bench.runner, interrupted
    bench.run()
    assert bench.names("logs") == Counter(["a 0", "a 1", "b 0", "b 1"])
    assert bench.waiting_segments() == 0


def test_segments_that_another_worker_retires_meanwhile_are_skipped(rivals):
    bench = rivals
    bench.send(Signal.LOGS, "a")
    other = bench.worker()

    def late(job):
        other.run_once()
        return inline(job)

    inline, bench.runner = bench.runner, late
    report = bench.run()
    assert not report.failed
    assert bench.names("logs") == Counter(["a 0", "a 1"])


def test_a_segment_that_vanished_is_not_taken_for_retired(bench):
    bench.send(Signal.LOGS, "a")

    def careless(job):
        Path(bench.buffer.location, job.tasks[0][0].path).unlink()
        return inline(job)

    inline, bench.runner = bench.runner, careless
    assert "was not declared retired" in bench.run().trouble


def test_a_request_sent_to_two_receivers_is_stored_once(bench):
    bench.send(Signal.LOGS, "a")
    # Another receiver: it starts while the first one's stream is already consumed and gone.
    bench.run()
    _send_as_stranger(bench, "a")
    report = bench.run()
    assert bench.names("logs") == Counter(["a 0", "a 1"])
    assert report.duplicate_records == 2


def test_a_copy_is_dropped_whose_first_is_below_segments_without_rows_for_the_table(bench):
    """The mark of such a table stays where it is, and a later declaration takes the hashes over."""
    # Two receivers that do not know each other.
    apart = replace(bench.buffer, dedup_seconds=0)
    with open_buffer(apart, ["metrics"]) as first, open_buffer(apart, ["metrics"]) as second:
        _send_metric(bench, first, "both", "gauge", "sum")
        _send_metric(bench, first, "other", "gauge")
        _send_metric(bench, second, "both", "gauge", "sum")
    assert bench.names("metrics_gauge") == Counter(["both", "other"])
    assert bench.names("metrics_sum") == Counter(["both"])


def _send_metric(bench, buffer, name, *kinds):
    """Consolidate a request with a metric of some kinds, in a segment of its own."""
    request = Signal.METRICS.request()
    scope = request.resource_metrics.add().scope_metrics.add()
    for kind in kinds:
        getattr(scope.metrics.add(name=name), kind).data_points.add(as_double=1.0)
    buffer.append("metrics", buffered(request.SerializeToString())).durable.result(10)
    until(lambda: bench.waiting_segments() == 1)
    bench.run()


def test_copies_that_two_workers_consume_at_the_same_moment_are_stored_once(rivals, monkeypatch):
    bench = rivals
    bench.send(Signal.LOGS, "a")
    first, second = bench.worker(), bench.worker()
    (stream,) = [status.stream for status in first.reader.streams("logs")]
    _send_as_stranger(bench, "a")
    # As with a late listing, or where a batch has no room for both: each takes one of the copies.
    _list_only(first, monkeypatch, lambda name: name == stream)
    _list_only(second, monkeypatch, lambda name: name != stream)

    def interrupted(job):
        # While the first worker's tasks run, the second publishes the other copy.
        rows = list(inline(job))
        published.append(second.run_once().rows)
        return rows

    inline, first.runner, published = first.runner, interrupted, []
    report = first.run_once()
    assert published[0] == 2
    assert report.duplicate_records == 2
    assert bench.names("logs") == Counter(["a 0", "a 1"])
    assert bench.waiting_segments() == 0


def _list_only(worker, monkeypatch, is_listed):
    look = worker.reader.look

    def look_at_some(signal):
        listing, streams = look(signal)
        segments = listing.segments
        listing.segments = lambda: {s: found for s, found in segments().items() if is_listed(s)}
        return listing, streams

    monkeypatch.setattr(worker.reader, "look", look_at_some)


def test_a_copy_that_another_worker_consumed_after_the_listing_is_stored_once(rivals, monkeypatch):
    """The listing that a batch is planned with is older than the marks that it is decoded with."""
    bench = rivals
    bench.send(Signal.LOGS, "a")
    worker, other = bench.worker(), bench.worker()
    (stream,) = [status.stream for status in worker.reader.streams("logs")]
    look, looks = worker.reader.look, []

    def late(signal):
        looks.append(signal)
        listed = look(signal)
        if looks.count("logs") == 1 and signal == "logs":
            _send_as_stranger(bench, "a")
            directory = bench.directory / "buffer" / stream
            # Away for the moment, so that the other worker takes the copy alone.
            directory.rename(directory.with_name(f".{directory.name}"))
            assert other.run_once().rows == 2
            directory.with_name(f".{directory.name}").rename(directory)
        return listed

    monkeypatch.setattr(worker.reader, "look", late)
    report = worker.run_once()
    assert report.duplicate_records == 2
    assert bench.names("logs") == Counter(["a 0", "a 1"])
    assert bench.waiting_segments() == 0


def _send_as_stranger(bench, name):
    """Append past the window that a receiver takes over: as one on another machine would."""
    from tests.support.otlp_bodies import protobuf

    with open_buffer(replace(bench.buffer, dedup_seconds=0), ["logs"]) as buffer:
        request = buffered(protobuf(Signal.LOGS, name, 2))
        buffer.append("logs", request).durable.result(10)


def test_what_cannot_be_a_row_is_set_aside_once_and_blocks_nothing(bench):
    request = Signal.LOGS.request()
    scope = request.resource_logs.add().scope_logs.add()
    scope.log_records.add(time_unix_nano=2**63)
    scope.log_records.add().body.string_value = "good"
    with open_buffer(bench.buffer, ["logs"]) as buffer:
        buffer.append("logs", buffered(request.SerializeToString())).durable.result(10)
    with power_cut("consolidate.decoded"):
        bench.run()
    assert bench.run().dead_letters == 1
    assert bench.names("logs") == Counter(["good"])
    (letter,) = read_dead_letters(open_store(bench.buffer))
    assert letter["reasons"][0]["path"]
    assert "time" in letter["reasons"][0]["reason"]


def test_a_local_buffer_is_refused_on_a_cluster(bench):
    settings = bench.lake.settings
    spark = settings.spark.model_copy(update={"master": "spark://127.0.0.1:7077"})
    bench.lake.settings = settings.model_copy(update={"spark": spark})
    with pytest.raises(ConfigError, match="local path"):
        bench.worker()


def test_spark_is_started_before_the_first_data_comes(bench):
    class Lake:
        started = 0

        @property
        def spark(self):
            Lake.started += 1

    worker = bench.worker()
    worker.prepare()
    worker.runner = SparkRunner(Lake())
    worker.prepare()
    assert Lake.started == 1


def test_ten_requests_cost_the_same_with_200_000_in_the_dedup_window(bench, monkeypatch):
    """Every file of hashes was read whole a dozen times: 4 s of processor time."""
    bench.send(Signal.LOGS, "first")
    worker = bench.worker()
    worker.run_once()
    hashes = os.urandom(32 * 200_000)
    entries = [
        Entry(time.time_ns(), b"s" * 16, hashes[at : at + 32], 0, 0, 1, 1, 0)
        for at in range(0, len(hashes), 32)
    ]
    path = "logs/0123456789abcdef-20260101T000000Z-0123456789ab/000000000007.retired"
    worker.store.put_new(path, heads_only(entries, closing=True))
    bench.send(Signal.LOGS, *map(str, range(10)))
    opened = []
    open_file = worker.store.open_file
    monkeypatch.setattr(worker.store, "open_file", lambda p: opened.append(p) or open_file(p))
    started = time.process_time()
    assert worker.run_once().rows == 20
    assert time.process_time() - started < 0.5
    assert opened.count(path) == 1
