"""The promise: acknowledged means kept, once. A server killed again and again, a patient client."""

from __future__ import annotations

import gzip
import http.client
import os
import random
import signal
import threading
import time

import pytest

from neve.buffer.disk import DiskStore
from neve.signals import Signal
from tests.support.buffer_stores import payloads
from tests.support.otlp_bodies import protobuf
from tests.support.receivers import receiver

CONNECTIONS = 4
PATIENCE_SECONDS = 60
FAILPOINTS = [
    "receive.checked@20",
    "receive.durable@20",
    "buffer.created@2",
    "buffer.torn@10",
    "buffer.written@10",
    "buffer.synced@10",
    "buffer.renamed@3",
    "buffer.sealed@3",
]
# Sealed often, so that every step is passed often.
BUFFER = {"seal_bytes": 5_000}


class Client:
    """Sends numbered records, each request again until it is acknowledged."""

    def __init__(self) -> None:
        self.port: int | None = None
        self.acknowledged: list[str] = []
        self.retries = 0
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._send, args=(n,), daemon=True) for n in range(CONNECTIONS)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive(), "a request was never acknowledged"

    def _send(self, connection: int) -> None:
        number = 0
        while not self._stop.is_set():
            name = f"connection {connection} request {number}"
            body = gzip.compress(protobuf(Signal.LOGS, name, records=20), mtime=0)
            while not self._attempt(body):
                self.retries += 1
                time.sleep(0.01)
            self.acknowledged.append(name)
            number += 1

    def _attempt(self, body: bytes) -> bool:
        headers = {"content-type": "application/x-protobuf", "content-encoding": "gzip"}
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port or 1, timeout=10)
            connection.request("POST", "/v1/logs", body, headers)
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
        assert status in (200, 503)
        return status == 200


def check(location, client: Client) -> None:
    found = [
        record.body.string_value
        for payload in payloads(DiskStore(location))
        for resource in Signal.LOGS.request.FromString(payload).resource_logs
        for scope in resource.scope_logs
        for record in scope.log_records
    ]
    expected = [f"{name} {n}" for name in client.acknowledged for n in range(20)]
    assert client.acknowledged
    assert len(found) == len(set(found)), "a record is there twice"
    assert set(found) == set(expected), "a record was lost, or never acknowledged"


def test_killed_at_every_step(tmp_path):
    client = Client()
    for index, failpoint in enumerate(FAILPOINTS):
        with receiver(tmp_path, failpoint=failpoint, buffer=BUFFER) as running:
            client.port = running.http
            if index == 0:
                client.start()
            assert running.process.wait(PATIENCE_SECONDS) == -signal.SIGKILL
    with receiver(tmp_path, buffer=BUFFER) as running:
        client.port = running.http
        client.finish()
        assert running.stop() == 0
    assert client.retries > 0
    check(tmp_path, client)


@pytest.mark.parametrize(
    ("kills", "seed"),
    [(3, 1), *(pytest.param(40, seed, marks=pytest.mark.soak) for seed in range(3))],
)
def test_killed_at_any_moment(tmp_path, kills, seed):
    moments = random.Random(seed)
    client = Client()
    for index in range(kills):
        with receiver(tmp_path, buffer=BUFFER) as running:
            client.port = running.http
            if index == 0:
                client.start()
            time.sleep(moments.uniform(0.05, 0.6))
            os.kill(running.process.pid, signal.SIGKILL)
            running.process.wait(PATIENCE_SECONDS)
    with receiver(tmp_path, buffer=BUFFER) as running:
        client.port = running.http
        client.finish()
        assert running.stop() == 0
    check(tmp_path, client)
