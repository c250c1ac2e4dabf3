"""Several workers, one buffer: work is done once where a lease can be had, and is right anyway."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

import neve
from neve.buffer.disk import DiskStore
from neve.consolidate.kept_lease import KeptLease
from neve.consolidate.report import Report
from neve.errors import StorageError
from neve.signals import Signal
from tests.support.consolidation import Bench
from tests.support.lakes import sqlite_settings
from tests.support.wait import until

ROWS = Counter(["a 0", "a 1"])
SHORT = 0.3


@pytest.fixture
def bench(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        yield Bench(lake, tmp_path)


class Decoding:
    """A runner that remembers what it read, and lets the first job wait."""

    def __init__(self, inline, meanwhile=lambda: None):
        self.inline = inline
        self.meanwhile = meanwhile
        self.read = []

    def __call__(self, job):
        first = not self.read
        self.read += [segment.path for task in job.tasks for segment in task]
        rows = list(self.inline(job))
        if first:
            self.meanwhile()
        return rows


def test_a_second_worker_leaves_the_segments_to_the_first(bench):
    bench.send(Signal.LOGS, "a")
    second, reports = bench.worker(), []
    second.runner = Decoding(bench.runner)
    bench.runner = first = Decoding(bench.runner, lambda: reports.append(second.run_once()))
    report = bench.run()
    assert first.read
    assert second.runner.read == []
    assert (report.left_to_others, reports[0].left_to_others) == ([], ["logs"])
    assert bench.names("logs") == ROWS
    assert bench.waiting_segments() == 0


def test_signals_are_shared_among_workers(bench):
    bench.send(Signal.LOGS, "a")
    bench.send(Signal.TRACES, "a")
    second = bench.worker()
    bench.runner = Decoding(bench.runner, second.run_once)
    report = bench.run()
    assert {result.table for result in report.results} == {"otel.logs"}
    assert bench.names("traces") == bench.names("logs") == ROWS


def test_one_that_is_to_wait_comes_after_the_first_and_finds_all_done(bench):
    bench.send(Signal.LOGS, "a")
    second = bench.worker()
    second.runner = Decoding(bench.runner)
    with ThreadPoolExecutor(1) as pool:
        later = []
        bench.runner = Decoding(
            bench.runner, lambda: later.append(pool.submit(second.run_once, wait=True))
        )
        bench.run()
        report = later[0].result(10)
    assert second.runner.read == []
    assert report.left_to_others == []


def test_a_dead_holder_is_taken_over_by_one_that_waits(bench):
    bench.send(Signal.LOGS, "a")
    bench.spec = replace(bench.spec, lease_seconds=SHORT)
    # Its process hangs: the lock is held, and nobody renews the lease.
    assert DiskStore(bench.directory / "buffer").lease("logs", SHORT).hold()
    assert bench.run().left_to_others == ["logs"]
    assert bench.waiting_segments() > 0
    stop = threading.Event()
    timeout = threading.Timer(30, stop.set)
    timeout.start()
    assert bench.worker().run_once(stop=stop, wait=True).rows == 2
    timeout.cancel()
    assert bench.names("logs") == ROWS


def test_who_waits_can_be_stopped(bench):
    bench.send(Signal.LOGS, "a")
    DiskStore(bench.directory / "buffer").lease("logs", 60).hold()
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(bench.worker().run_once, stop=stop, wait=True)
        stop.set()
        assert waiting.result(10).left_to_others == ["logs"]


def lose_turn(bench, worker):
    """Take the lease over while its holder works, and work with it."""
    (path,) = (bench.directory / "buffer" / "leases").iterdir()
    path.unlink()
    worker.run_once()


@pytest.mark.parametrize("wait", [False, True])
def test_a_lost_lease_changes_no_result(bench, wait):
    for name in "ab":
        bench.send(Signal.LOGS, name)
    # Two batches: it notices in between that its turn is over.
    bench.spec = replace(bench.spec, batch_bytes=1, lease_seconds=SHORT)
    other, worker = bench.worker(), bench.worker()

    def meanwhile():
        (keeper,) = (one for one in threading.enumerate() if one.name == "neve-lease-logs")
        lose_turn(bench, other)
        until(lambda: not keeper.is_alive())

    worker.runner = Decoding(bench.runner, meanwhile)
    report = worker.run_once(wait=wait)
    assert not report.failed
    assert bench.names("logs") == Counter(f"{name} {n}" for name in "ab" for n in range(2))
    assert bench.waiting_segments() == 0


class Failing:
    """A lease whose store is down, for taking it or for keeping it."""

    def __init__(self, calm):
        self.calm = calm

    def hold(self, _listed=None):
        self.calm -= 1
        if self.calm < 0:
            raise StorageError("the store is down", retryable=True)
        return True

    def release(self):
        raise StorageError("the store is down", retryable=True)


@pytest.mark.parametrize("calm", [0, 1])
def test_a_lease_store_that_fails_stops_nothing(bench, calm, monkeypatch, caplog):
    bench.send(Signal.LOGS, "a")
    bench.spec = replace(bench.spec, lease_seconds=0.03)
    monkeypatch.setattr(DiskStore, "lease", lambda *_: Failing(calm))
    bench.runner = Decoding(
        bench.runner, lambda: until(lambda: "working without a lease" in caplog.text)
    )
    report = bench.run()
    assert not report.failed
    assert bench.names("logs") == ROWS
    assert bench.waiting_segments() == 0


def test_a_worker_that_hangs_does_not_keep_its_lease_for_ever():
    class Counted:
        held = 0

        def hold(self, _listed=None):
            self.held += 1
            return True

        def release(self):
            pass

    lease = Counted()
    with KeptLease("logs", lease, 0.03, keep_seconds=0.1) as turn:
        assert turn.begin()
        until(lambda: turn.is_lost)
        until(lambda: not turn._keeper.is_alive())
    assert lease.held > 1


def test_without_leases_each_row_is_there_once_too(bench):
    bench.send(Signal.LOGS, "a")
    bench.spec = replace(bench.spec, lease_seconds=0)
    second = bench.worker()
    second.runner = Decoding(bench.runner)
    bench.runner = Decoding(bench.runner, second.run_once)
    bench.run()
    assert second.runner.read
    assert bench.names("logs") == ROWS


def test_a_lease_is_not_taken_by_an_old_look(bench, monkeypatch):
    """In an object store it put a number that the holder had removed by then: two held it."""
    bench.send(Signal.LOGS, "a")
    bench.send(Signal.TRACES, "a")
    worker, given = bench.worker(), []
    begin = KeptLease.begin

    def recorded(self, listed=None):
        given.append(listed)
        return begin(self, listed)

    monkeypatch.setattr(KeptLease, "begin", recorded)
    looks = worker.look_at_all(Report())
    looks["logs"][0].began -= worker.spec.lease_seconds / 2
    worker.run_once(looks=looks)
    assert given[0] is not looks["logs"][0].files
    assert given[1] is looks["traces"][0].files
    assert bench.names("logs") == bench.names("traces") == ROWS
