"""Mirrors kept by the installed command until SIGTERM, which finishes the commit in progress."""

from __future__ import annotations

import json
import os
import signal
import threading

import pytest

import neve
from tests.support.command import NEVE
from tests.support.lakes import rest_settings
from tests.support.merging import Mirrored, event
from tests.support.process import Process, accepts_connections, free_port
from tests.support.proxy import running_proxy
from tests.support.scraping import Scraped
from tests.support.servers import SHORT_LIVED_JAVA
from tests.support.wait import until

# From an event to its row; the first time Spark starts within it.
ARRIVAL_SECONDS = 90
LABELS = {"project": "e2e", "environment": "test", "version": "1.2.3"}


class HeldCommit:
    """A gate that holds the commit that moves a mirror's `main`, once it is asked to."""

    def __init__(self):
        self.asked, self.arrived, self.released = (threading.Event() for _ in range(3))

    def __call__(self, request, forward):
        if self.asked.is_set() and moves_main(request):
            self.arrived.set()
            assert self.released.wait(ARRIVAL_SECONDS)
        return forward(request)


def moves_main(request):
    if request.method != "POST" or not request.path.endswith("/tables/rows"):
        return False
    return any(
        (update["action"], update.get("ref-name")) == ("set-snapshot-ref", "main")
        for update in json.loads(request.body)["updates"]
    )


@pytest.fixture
def commit():
    held = HeldCommit()
    yield held
    held.released.set()


@pytest.fixture
def mirrored(rest_catalog, s3):
    """A changelog as others write it: past the gate, and without Spark."""
    with neve.open(rest_settings(rest_catalog.uri, s3)) as lake:
        yield Mirrored(lake)


class Keeping:
    """A command that keeps the mirror, with its log and its metrics."""

    def __init__(self, command, mirrored, directory, catalog_uri, secret_key):
        self.observed = Scraped(free_port())
        self.otlp_port = free_port()
        config = mirrored.write_config(
            directory / "neve.yaml",
            catalog={"type": "rest", "uri": catalog_uri},
            merge={"interval": 0.2},
            buffer={"location": str(directory / "buffer")},
            receive={"http": f"127.0.0.1:{self.otlp_port}", "grpc": f"127.0.0.1:{free_port()}"},
            observe={"http": f"127.0.0.1:{self.observed.port}"},
            project=LABELS["project"],
            environment=LABELS["environment"],
        )
        self.process = Process(
            f"neve {command}",
            [NEVE, "--config", config, command],
            directory / "log",
            environment={
                **SHORT_LIVED_JAVA,
                "NEVE_STORAGE__SECRET_ACCESS_KEY": secret_key,
                "APP_VERSION": LABELS["version"],
            },
        )
        self.process.wait_until(lambda: self.observed.is_ready)

    def sample(self, name, **labels):
        return self.observed.sample(f"merger_{name}", **LABELS, **labels)


@pytest.fixture(params=["run", pytest.param("merge", marks=pytest.mark.soak)])
def keeping(request, mirrored, commit, tmp_path, rest_catalog, s3):
    with running_proxy(rest_catalog.port, [commit]) as proxy:
        service = Keeping(request.param, mirrored, tmp_path, proxy.uri, s3.secret_key)
        try:
            yield service
        finally:
            service.process.kill()


def test_events_arrive_while_it_runs_and_a_stop_finishes_the_commit(keeping, mirrored, commit):
    table = mirrored.mirror
    arrived = 0
    for wave in (
        [event("I", 5, 1, "a"), event("I", 5, 2, "b"), event("U", 6, 2, "c"), event("?", 5, 3)],
        [event("U", 4, 1, "late"), event("D", 7, 2), event("I", 7, 3, "d")],
    ):
        mirrored.append(*wave)
        arrived += len(wave)
        keeping.process.wait_until(
            lambda: keeping.sample("rows_scanned_total", table=table) == arrived,  # noqa: B023
            ARRIVAL_SECONDS,
        )
        mirrored.check()
    assert keeping.sample("rows_deduplicated_total", table=table) == 1
    assert keeping.sample("rows_late_dropped_total", table=table) == 1
    assert keeping.sample("rows_set_aside_total", table=table) == 1
    assert keeping.sample("table_success_total", table=table) >= 2
    assert keeping.sample("table_failure_total", table=table) == 0
    assert keeping.sample("conflicts_total", table=table) == 0
    assert keeping.sample("lag_snapshots", table=table) == 0
    assert keeping.sample("lag_seconds", table=table) == 0
    assert keeping.sample("cycle_completed_total") >= 2
    assert keeping.sample("cycle_duration_seconds_count") >= 2
    assert keeping.sample("table_duration_seconds_count", table=table) >= 2
    assert keeping.sample("merge_duration_seconds_count", table=table) == 2
    assert keeping.observed.sample("process_resident_memory_bytes") > 0

    commit.asked.set()
    mirrored.append(event("U", 9, 1, "last"), event("D", 9, 3))
    until(commit.arrived.is_set, seconds=ARRIVAL_SECONDS)
    os.kill(keeping.process.pid, signal.SIGTERM)
    # The receiver, where there is one, goes at once: the signal has been taken.
    until(lambda: not accepts_connections(keeping.otlp_port), seconds=30)
    assert keeping.observed.get("/metrics")[0] == 200
    assert mirrored.found() != mirrored.wanted()
    commit.released.set()
    assert keeping.process.wait(30) == 0, keeping.process.tail()
    mirrored.check()
    log = keeping.process.log.read_text()
    # It has heard what became of its commit, and of each one before.
    assert log.count(f"{table}: batch 1") == 3
    assert "Traceback" not in log
