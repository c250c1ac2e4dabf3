"""The service around a worker without Spark: health, metrics, stopping."""

import json
import os
import signal
import sys
import threading
import urllib.error
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import neve
from neve.config import Settings
from neve.consolidate import watch as watching
from neve.errors import CatalogError, InternalError
from neve.observe.metrics import Registry, common_labels
from neve.service.consolidation import Consolidation
from neve.service.merging import Merging
from neve.service.run import Service
from neve.service.supervise import Backoff, Supervisor
from neve.service.workers import Workers
from neve.signals import Signal
from tests.support.consolidation import Bench, run_inline
from tests.support.lakes import sqlite_settings
from tests.support.mergers import ListedMerger
from tests.support.silent import running_silent_server
from tests.support.wait import until

# A receiver's stand-in: its own /metrics, which counts SIGHUPs as well, and /readyz.
STAND_IN = """
import select, signal, sys
from neve.observe.http import Pages, serving
from neve.service.supervise import announce
reloads = []
signal.signal(signal.SIGHUP, lambda *_: reloads.append("reload"))
name = b"neve_receive_accepted_requests_total"
text = b"# TYPE %b counter\\n%b 7.0\\n" % (name, name)
reloaded = b"# TYPE reloads gauge\\nreloads %d\\n"
pages = Pages(lambda: text + reloaded % len(reloads), lambda: None)
with serving("127.0.0.1:0", pages) as address:
    announce(int(sys.argv[-1]), {"http": "h", "grpc": "g", "observe": str(address)})
    # Signals are handled on this thread alone, and if another took one, when it wakes.
    while not select.select([sys.stdin], [], [], 0.05)[0]:
        pass
"""


@pytest.fixture
def settings(tmp_path):
    parts = sqlite_settings(tmp_path).model_dump()
    return Settings.model_validate(
        {
            **parts,
            "buffer": {"location": str(tmp_path / "buffer")},
            "consolidate": {"trigger_seconds": 0.001},
            "observe": {"http": "127.0.0.1:0"},
        }
    )


class Running:
    """A service whose loop runs on the main thread while `during` watches it from another."""

    def __init__(self, settings, monkeypatch):
        self.settings = settings
        self.reports = []
        self.mergers = []
        self.merged = []
        self.on_merged = self.merged.append
        monkeypatch.setattr(watching, "POLL_SECONDS", 0.01)
        monkeypatch.setattr(watching, "FIRST_PAUSE_SECONDS", 0.01)

    def run(self, during, *, stopped_by_itself=False):
        """Run until `during` is done, then stop as an operator would; raise what it raised."""
        running = threading.Event()

        def stop(done):
            # A service that ended by itself has given the signals back, to those who run the tests.
            if running.is_set() and not (stopped_by_itself and not done.exception()):
                os.kill(os.getpid(), signal.SIGTERM)

        def ready(started):
            self.started = started
            self.watching = pool.submit(during, self)
            self.watching.add_done_callback(stop)

        with ThreadPoolExecutor(1) as pool, neve.open(self.settings) as lake:
            command = [sys.executable, "-c", STAND_IN]
            self.supervisor = Supervisor("receiver", command, {}, Backoff(first_seconds=1))
            receiver = Workers([self.supervisor])
            self.bench = Bench(lake, Path(self.settings.buffer.location).parent)
            registry = Registry(common_labels(self.settings))
            consolidation = Consolidation(lake, registry, self.reports.append)
            self.worker = consolidation.worker
            self.worker.runner = run_inline
            merging = Merging(self.mergers, 0.01, registry, self.on_merged)
            self.service = Service(self.settings, registry, [consolidation, merging], receiver)
            running.set()
            try:
                self.service.run(ready)
            finally:
                running.clear()
            self.watching.result()
            self.names = self.bench.names("logs") if self.published else Counter()

    @property
    def published(self):
        return any(report.rows for report in self.reports)

    def get(self, path):
        try:
            with urllib.request.urlopen(
                f"http://{self.started.observe}{path}", timeout=10
            ) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


@pytest.fixture
def running(settings, monkeypatch):
    return Running(settings, monkeypatch)


def test_one_scrape_has_the_receiver_and_consolidation(running):
    def during(service):
        service.bench.send(Signal.LOGS, "a")
        until(lambda: service.published)
        _, text = service.get("/metrics")
        assert "neve_receive_accepted_requests_total 7.0" in text
        assert 'neve_consolidate_rows_total{environment="dev"' in text
        assert service.get("/readyz")[0] == 200
        assert (service.started.http, service.started.grpc) == ("h", "g")

    running.run(during)
    assert running.names == Counter(["a 0", "a 1"])


def test_a_failing_consolidation_is_told_survived_and_caught_up(running):
    down = threading.Event()

    def runner(job):
        if down.is_set():
            raise CatalogError("the catalog is down")
        return run_inline(job)

    def during(service):
        down.set()
        service.worker.runner = runner
        service.bench.send(Signal.LOGS, "a")
        until(lambda: service.get("/readyz")[0] == 503)
        assert "the catalog is down" in service.get("/readyz")[1]
        assert service.get("/healthz")[0] == 200
        until(lambda: sample(service, "neve_consolidate_failures_total") >= 2)
        assert sample(service, "neve_consolidate_oldest_age_seconds") > 0
        down.clear()
        until(lambda: service.get("/readyz")[0] == 200)

    running.run(during)
    assert running.names == Counter(["a 0", "a 1"])


def test_a_catalog_that_never_answers_is_told_and_stops_nothing(settings, monkeypatch):
    with running_silent_server() as silent:
        catalog = {"type": "rest", "uri": silent.uri, "timeout_seconds": 0.2}
        document = {**settings.model_dump(), "catalog": catalog}
        running = Running(Settings.model_validate(document), monkeypatch)

        def during(service):
            service.bench.send(Signal.LOGS, "a")
            until(lambda: service.get("/readyz")[0] == 503)
            assert "no answer within 0.2 s" in service.get("/readyz")[1]
            assert service.get("/healthz")[0] == 200

        # Ends by SIGTERM; `run` would hang otherwise.
        running.run(during)
    assert silent.connections >= 1
    assert running.bench.waiting_segments() > 0


def test_an_unexpected_error_is_survived_too(running, caplog):
    failed = []

    def runner(job):
        if not failed:
            failed.append(job)
            raise KeyError("a defect")
        return run_inline(job)

    def during(service):
        service.worker.runner = runner
        service.bench.send(Signal.LOGS, "a")
        until(lambda: service.published)

    running.run(during)
    assert "KeyError" in caplog.text
    assert running.names == Counter(["a 0", "a 1"])


def test_not_ready_while_the_receiver_is_down(running):
    def during(service):
        until(lambda: service.get("/readyz")[0] == 200)
        os.kill(service.supervisor.pid, signal.SIGKILL)
        until(lambda: service.get("/readyz")[0] == 503)
        assert "the receiver is down" in service.get("/readyz")[1]
        until(lambda: sample(service, "neve_receive_up") == 0)
        until(lambda: service.get("/readyz")[0] == 200)
        assert sample(service, "neve_receive_restarts_total") == 1

    running.run(during)


def test_a_hangup_is_passed_on_to_the_receiver(running):
    def during(service):
        assert "reloads 0" in service.get("/metrics")[1]
        os.kill(os.getpid(), signal.SIGHUP)
        until(lambda: "reloads 1" in service.get("/metrics")[1])

    before = signal.getsignal(signal.SIGHUP)
    running.run(during)
    assert signal.getsignal(signal.SIGHUP) is before


def test_a_batch_in_progress_is_finished_and_the_rest_if_it_is_little(running):
    began = threading.Event()

    def runner(job):
        # Stopped in the middle of its first batch, with more sealed meanwhile.
        if not began.is_set():
            os.kill(os.getpid(), signal.SIGTERM)
            until(running.supervisor._stopping.is_set)
            running.bench.send(Signal.LOGS, "late")
            began.set()
        return run_inline(job)

    def during(service):
        service.worker.runner = runner
        service.bench.send(Signal.LOGS, "a")
        assert began.wait(10)

    running.run(during, stopped_by_itself=True)
    assert len([report for report in running.reports if report.rows]) == 2
    assert running.names == Counter(["a 0", "a 1", "late 0", "late 1"])


def test_consolidation_and_merges_go_on_beside_each_other(running):
    hanging, release = threading.Event(), threading.Event()

    def hang(stop):
        hanging.set()
        assert release.wait(10)

    running.mergers = [ListedMerger("shop.a", {"rows_scanned": 5}), ListedMerger("shop.b")]
    running.mergers[0].during = hang

    def during(service):
        # A merge takes its time, and consolidation does not wait for it.
        assert hanging.wait(10)
        service.bench.send(Signal.LOGS, "a")
        until(lambda: service.published)
        assert not service.merged
        release.set()
        until(lambda: sample(service, "merger_cycle_completed_total") >= 1)
        assert sample(service, 'merger_rows_scanned_total{environment="dev"') == 5
        assert sample(service, "process_resident_memory_bytes") > 0

    running.run(during)
    assert running.names == Counter(["a 0", "a 1"])


def test_readiness_names_the_mirrors_that_fail(running):
    down = CatalogError("the catalog is down", hint="start it")
    failing = ListedMerger("shop.b", *[down] * 10_000)
    running.mergers = [ListedMerger("shop.a"), failing]

    def during(service):
        until(lambda: service.get("/readyz")[0] == 503)
        reason = "merge failed: shop.b: the catalog is down (start it)"
        assert json.loads(service.get("/readyz")[1])["reason"] == reason
        failing.turns.clear()
        until(lambda: service.get("/readyz")[0] == 200)

    running.run(during)


def test_a_merge_in_progress_is_finished_when_it_is_stopped(running):
    began = threading.Event()
    running.mergers = [ListedMerger("shop.a"), ListedMerger("shop.b")]

    def merge(stop):
        # Stopped in the middle of its commit.
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(10)
        began.set()

    running.mergers[0].during = merge

    def during(service):
        assert began.wait(10)

    running.run(during, stopped_by_itself=True)
    assert [one.table for one in running.merged] == ["shop.a"]
    assert running.mergers[1].taken == 0


def test_a_part_that_breaks_ends_the_service_with_its_error(running):
    def broken(_):
        raise KeyError("a defect of the service itself")

    running.mergers = [ListedMerger("shop.a")]
    running.on_merged = broken
    with pytest.raises(InternalError, match=r"Merging ended unexpectedly.*KeyError") as raised:
        running.run(lambda service: None, stopped_by_itself=True)
    assert raised.value.exit_status == 1
    assert running.mergers[0].taken == 1


def test_a_thread_that_breaks_ends_the_service(running, caplog):
    def during(service):
        # What supervises the receiver, and what no part waits for.
        service.supervisor._announced = None
        service.supervisor._follow = None
        os.kill(service.supervisor.pid, signal.SIGKILL)

    with pytest.raises(InternalError, match="thread neve-receiver ended unexpectedly") as raised:
        running.run(during, stopped_by_itself=True)
    assert raised.value.exit_status == 1
    assert "TypeError" in caplog.text


def sample(service, name):
    lines = service.get("/metrics")[1].splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith(name))
