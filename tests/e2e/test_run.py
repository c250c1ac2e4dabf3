"""`neve run` as it is installed: OTLP in, rows out; what dies comes back; SIGTERM loses nothing."""

import http.client
import json
import os
import signal
import socket
import subprocess
import urllib.request
from collections import Counter
from contextlib import closing

import pytest
import yaml
from pyiceberg.exceptions import NoSuchTableError

import neve
from neve.signals import Signal
from tests.support.command import NEVE
from tests.support.lakes import sqlite_settings
from tests.support.otlp_bodies import protobuf
from tests.support.process import Process, free_port
from tests.support.scraping import Scraped
from tests.support.servers import SHORT_LIVED_JAVA
from tests.support.wait import until

# From acknowledged to queryable; the first time Spark starts within it.
ARRIVAL_SECONDS = 60


class Running:
    """A lake and the service on it."""

    def __init__(self, directory, workers):
        self.directory = directory
        self.workers = workers
        self.http, self.grpc = free_port(), free_port()
        self.observed = Scraped(free_port())
        self.settings = sqlite_settings(directory)
        config = directory / "neve.yaml"
        document = {
            "catalog": self.settings.catalog.model_dump(exclude_none=True),
            "spark": self.settings.spark.model_dump(),
            "buffer": {"location": str(directory / "buffer"), "seal_seconds": 0.2},
            "consolidate": {"trigger_seconds": 0.2},
            "receive": {
                "http": f"127.0.0.1:{self.http}",
                "grpc": f"127.0.0.1:{self.grpc}",
                "workers": workers,
            },
            "observe": {"http": f"127.0.0.1:{self.observed.port}"},
        }
        config.write_text(yaml.safe_dump(document))
        self.process = Process(
            "neve run",
            [NEVE, "--config", config, "run"],
            directory / "log",
            environment={**SHORT_LIVED_JAVA, "APP_VERSION": "e2e"},
        )

    def send(self, name, signal_=Signal.LOGS):
        """Send until it is acknowledged, as a client does."""
        body = protobuf(signal_, name, 2)
        until(lambda: self._post(signal_.http_path, body) == 200, seconds=30)

    def _post(self, path, body):
        headers = {"content-type": "application/x-protobuf"}
        with closing(http.client.HTTPConnection("127.0.0.1", self.http, timeout=10)) as connection:
            try:
                connection.request("POST", path, body, headers)
                return connection.getresponse().status
            except (OSError, http.client.HTTPException):
                return None

    def names(self):
        """Count the rows of otel.logs by their body, read by PyIceberg."""
        with neve.open(self.settings) as lake:
            try:
                table = lake.catalog().load_table("otel.logs")
            except NoSuchTableError:
                return Counter()
            return Counter(table.scan().to_arrow()["body"].to_pylist())

    def wait_for(self, *names):
        expected = rows_of(*names)
        self.process.wait_until(lambda: self.names() >= expected, ARRIVAL_SECONDS)
        assert self.names() == expected

    def children(self, what):
        """Return the processes below the service whose command line holds a word."""
        listed = subprocess.run(
            ["ps", "-ww", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True
        ).stdout
        rows = [line.split(None, 2) for line in listed.splitlines()]
        return [
            int(pid)
            for pid, parent, command in rows
            if int(parent) == self.process.pid and what in command
        ]


def rows_of(*names):
    return Counter(f"{name} {n}" for name in names for n in range(2))


@pytest.fixture
def workers():
    return 1


@pytest.fixture
def running(tmp_path, workers):
    service = Running(tmp_path, workers)
    try:
        service.process.wait_until(lambda: service.observed.is_ready)
        yield service
    finally:
        service.process.kill()


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_data_arrives_once_through_kills_and_a_stop(running):
    sample = running.observed.sample
    running.send("first")
    running.wait_for("first")
    until(lambda: sample("neve_consolidate_rows_total", table="otel.logs") == 2)
    assert sample("neve_receive_accepted_records_total", signal="logs", version="e2e") == 2
    assert sample("neve_publish_commit_attempts_total") >= 2

    receivers = running.children("--supervised")
    assert len(receivers) == running.workers
    running.send("before")
    os.kill(receivers[0], signal.SIGKILL)
    running.send("after")
    running.wait_for("first", "before", "after")
    assert sample("neve_receive_restarts_total") == 1
    until(lambda: running.observed.is_ready)

    receivers = running.children("--supervised")
    running.send("last")
    assert running.process.stop(deadline_seconds=30) == 0, running.process.tail()
    assert running.names() == rows_of("first", "before", "after", "last")
    for receiver in receivers:
        with pytest.raises(ProcessLookupError):
            os.kill(receiver, 0)
    assert "Traceback" not in running.process.log.read_text()


@pytest.mark.soak
def test_a_jvm_that_died_is_replaced(running):
    running.send("first")
    running.wait_for("first")
    (java,) = running.children("java")
    os.kill(java, signal.SIGKILL)
    running.send("second")
    running.wait_for("first", "second")
    assert running.process.stop(deadline_seconds=30) == 0, running.process.tail()


def test_a_receiver_ends_with_its_supervisor_and_tells_about_itself(tmp_path):
    free = {"NEVE_RECEIVE__HTTP": "127.0.0.1:0", "NEVE_RECEIVE__GRPC": "127.0.0.1:0"}
    read, write = os.pipe()
    with subprocess.Popen(
        [NEVE, "serve", "--supervised", str(write)],
        cwd=tmp_path,
        env={**os.environ, **free, "NEVE_OBSERVE__HTTP": "127.0.0.1:0"},
        stdin=subprocess.PIPE,
        pass_fds=[write],
    ) as receiver:
        os.close(write)
        with os.fdopen(read) as announcement:
            listening = json.load(announcement)
        with urllib.request.urlopen(f"http://{listening['observe']}/metrics") as answer:
            assert b"neve_buffer_bytes{" in answer.read()
        # As when the supervisor is killed: nobody sends a signal.
        receiver.stdin.close()
        assert receiver.wait(30) == 0


def test_a_receiver_that_cannot_start_ends_it_with_the_reason(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        told = subprocess.run(
            [NEVE, "run"],
            cwd=tmp_path,
            env={**os.environ, "NEVE_RECEIVE__HTTP": address, "NEVE_RECEIVE__GRPC": "127.0.0.1:0"},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert told.returncode == 2
    first, second = told.stderr.splitlines()
    assert first.startswith(f"neve: cannot listen on {address}")
    assert second.startswith("neve: the receiver cannot start with this configuration")
