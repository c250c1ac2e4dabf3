"""A receiver of several processes on the same ports, as `neve serve` runs it."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
from collections import Counter
from contextlib import closing, contextmanager
from pathlib import Path

import grpc
import pytest
import yaml

import neve
from neve.buffer.buffer import open_reader
from neve.buffer.disk import DiskStore
from neve.buffer.layout import IDENTITY
from neve.buffer.spec import BufferSpec
from neve.signals import Signal
from tests.support.buffer_stores import payloads
from tests.support.command import NEVE, neve_serve
from tests.support.consolidation import Bench
from tests.support.lakes import sqlite_settings
from tests.support.otlp_bodies import protobuf
from tests.support.process import free_port
from tests.support.scraping import Scraped
from tests.support.wait import until

WORKERS = 2
START_SECONDS = 30
ACCEPTED = "neve_receive_accepted_requests_total"


class Receiver:
    """A receiver with two workers, and what tests do with it."""

    def __init__(self, serving, observed):
        self.serving = serving
        self.observed = observed
        self.process = serving.process

    def post(self, body, path=Signal.LOGS.http_path):
        """Send on a connection of its own; None where no answer came."""
        headers = {"content-type": "application/x-protobuf"}
        with closing(http.client.HTTPConnection(self.serving.http, timeout=10)) as connection:
            try:
                connection.request("POST", path, body, headers)
                return connection.getresponse().status
            except (OSError, http.client.HTTPException):
                return None

    def export(self, body, sent_as):
        with grpc.insecure_channel(self.serving.grpc) as channel:
            channel.unary_unary(sent_as.grpc_method)(body, timeout=10)

    @property
    def workers(self):
        """The processes that are children of `neve serve`."""
        # Listed by the thread that started them.
        lists = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [int(pid) for children in lists for pid in children.read_text().split()]

    def streams(self, sent_as=Signal.LOGS):
        reader = open_reader(BufferSpec(str(self.serving.buffer)))
        return {stream.stream: stream.closed for stream in reader.streams(sent_as.value)}

    def send_until_all_have_some(self, name):
        """Send different requests until each worker has a stream; return them."""
        sent = []
        while len(self.streams()) < WORKERS:
            sent.append(protobuf(Signal.LOGS, f"{name}-{len(sent)}", 2))
            assert self.post(sent[-1]) == 200
        return sent


@contextmanager
def two_workers(directory):
    observed = Scraped(free_port())
    configuration = {
        "receive": {"workers": WORKERS},
        "buffer": {"location": str(directory / "buffer"), "seal_seconds": 0.05},
        "observe": {"http": f"127.0.0.1:{observed.port}"},
    }
    # As agents do that are loaded into every process.
    (directory / "agent").mkdir()
    (directory / "agent" / "sitecustomize.py").write_text("print('an agent is here', flush=True)")
    with neve_serve(directory, configuration, PYTHONPATH=str(directory / "agent")) as serving:
        receiver = Receiver(serving, observed)
        until(lambda: observed.is_ready, seconds=START_SECONDS)
        yield receiver


@pytest.fixture
def receiver(tmp_path):
    with two_workers(tmp_path) as running:
        yield running


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One receiver for all tests that leave it as they found it."""
    with two_workers(tmp_path_factory.mktemp("shared")) as running:
        yield running


def is_alive(pid):
    try:
        # A zombie is dead: nobody has asked for its status yet.
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


def test_workers_share_both_ports_and_their_metrics_add_up(shared):
    assert len(shared.workers) == WORKERS
    logs = shared.send_until_all_have_some("http")
    traces = 0
    while len(shared.streams(Signal.TRACES)) < WORKERS:
        shared.export(protobuf(Signal.TRACES, f"grpc-{traces}"), Signal.TRACES)
        traces += 1
    sample = shared.observed.sample
    assert sample(ACCEPTED, signal="logs") == len(logs)
    assert sample(ACCEPTED, signal="traces") == traces
    assert sample("neve_receive_acknowledgement_seconds_count") == len(logs) + traces
    assert sample("neve_buffer_fsync_seconds_count", signal="logs") >= WORKERS
    assert sample("neve_receive_up") == 1
    until(lambda: sample("neve_receive_connections", protocol="http") == 0)
    host, port = shared.serving.http.split(":")
    with (
        socket.create_connection((host, int(port))),
        socket.create_connection((host, int(port))),
    ):
        until(lambda: sample("neve_receive_connections", protocol="http") == 2)
    until(lambda: sample("neve_receive_connections", protocol="http") == 0)
    # Each worker measures all of the buffer, which is there once.
    files = DiskStore(shared.serving.buffer).files("")
    size = sum(file.size for file in files if file.path != IDENTITY)
    until(lambda: sample("neve_buffer_bytes") == size)


def test_a_request_that_reached_two_workers_becomes_rows_once(receiver, tmp_path):
    body = protobuf(Signal.LOGS, "again", 2)
    accepted = 0
    while accepted < WORKERS:
        # A sender that repeats itself; each worker knows only what came to it.
        assert receiver.post(body) == 200
        accepted = receiver.observed.sample(ACCEPTED, signal="logs")
    workers = receiver.workers
    assert receiver.process.stop() == 0, receiver.process.tail()
    assert not any(is_alive(pid) for pid in workers)
    assert all(receiver.streams().values()), "every stream is closed"
    assert len(payloads(DiskStore(receiver.serving.buffer), "logs")) == WORKERS
    with neve.open(sqlite_settings(tmp_path)) as lake:
        bench = Bench(lake, tmp_path)
        report = bench.run()
        assert report.duplicate_records == 2
        assert bench.names("logs") == Counter(["again 0", "again 1"])


def test_a_worker_that_dies_comes_back_while_the_other_goes_on(receiver):
    sent = receiver.send_until_all_have_some("before")
    before = receiver.observed.sample(ACCEPTED, signal="logs")
    streams = set(receiver.streams())
    os.kill(receiver.workers[0], signal.SIGKILL)
    until(lambda: "1 of 2 workers of the receiver is down" in receiver.observed.get("/readyz")[1])
    assert receiver.observed.sample(ACCEPTED, signal="logs") == before
    sent.append(protobuf(Signal.LOGS, "meanwhile", 2))
    # A connection that the dead worker had not accepted is reset; senders try again.
    until(lambda: receiver.post(sent[-1]) == 200)
    until(lambda: receiver.observed.is_ready, seconds=START_SECONDS)
    assert receiver.observed.sample("neve_receive_restarts_total") == 1
    # The worker that came back ended the stream of the dead one, and no other.
    closed = receiver.streams()
    assert sorted(closed[stream] for stream in streams) == [False, True]
    for number in range(20):
        sent.append(protobuf(Signal.LOGS, f"after-{number}", 2))
        assert receiver.post(sent[-1]) == 200
    assert receiver.observed.sample(ACCEPTED, signal="logs") == len(sent)
    assert receiver.process.stop() == 0, receiver.process.tail()
    assert sorted(payloads(DiskStore(receiver.serving.buffer), "logs")) == sorted(sent)


def test_workers_end_with_the_process_that_started_them(receiver):
    workers = receiver.workers
    assert len(workers) == WORKERS
    receiver.process.kill()
    try:
        until(lambda: not any(is_alive(pid) for pid in workers), seconds=START_SECONDS)
    finally:
        for pid in filter(is_alive, workers):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("workers", [1, WORKERS])
def test_a_second_receiver_on_the_same_port_is_refused(shared, tmp_path, workers):
    taken = shared.serving.http
    second = {"receive": {"workers": workers, "http": taken, "grpc": "127.0.0.1:0"}}
    [line] = run_refused(tmp_path, second)
    assert line.startswith(f"neve: cannot listen on {taken}")
    assert shared.observed.is_ready


def test_a_configuration_that_workers_refuse_is_said_once(tmp_path):
    address = {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0"}
    missing = str(tmp_path / "missing.pem")
    tls = {"cert": missing, "key": missing}
    refused = run_refused(tmp_path, {"receive": {"workers": 3, "tls": tls, **address}})
    first, second = refused
    assert first.startswith("neve: receive.tls cannot be used")
    assert second.startswith("neve: the receiver's worker 1 cannot start with this configuration")


def run_refused(directory, configuration):
    """Run `neve serve`, which has to end by itself; return what it says."""
    config = directory / "neve.yaml"
    config.write_text(yaml.safe_dump(configuration))
    told = subprocess.run(
        [NEVE, "-c", config, "serve"],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        timeout=START_SECONDS,
    )
    assert told.returncode == 2, told.stderr
    return told.stderr.splitlines()
