"""A receiver tells the truth about its buffer: not ready while it is full, ready again after."""

from __future__ import annotations

import os

from neve.buffer.disk import DiskStore
from neve.buffer.reader import BufferReader
from neve.signals import Signal
from tests.support.otlp_bodies import message
from tests.support.receivers import receiver
from tests.support.wait import until


def send(running) -> int:
    request = message(Signal.LOGS)
    # Random, so that it does not become small in the buffer.
    request.resource_logs[0].scope_logs[0].log_records[0].body.bytes_value = os.urandom(4000)
    status, _, _ = running.post("/v1/logs", request.SerializeToString())
    return status


def is_ready(running) -> bool:
    status, _, body = running.request("GET", "/readyz")
    assert status in (200, 503)
    assert (status == 200) == (b"unavailable" not in body)
    return status == 200


def test_a_full_buffer_is_not_ready_until_something_is_retired(tmp_path):
    with receiver(tmp_path, buffer={"max_bytes": 100_000, "seal_bytes": 1}) as running:
        assert is_ready(running)
        until(lambda: send(running) == 503)
        assert not is_ready(running)
        assert running.request("GET", "/healthz")[0] == 200, "a restart would not help"
        reader = BufferReader(DiskStore(tmp_path), dedup_seconds=0)
        for stream in reader.streams("logs"):
            reader.retire(stream.stream, reader.segments(stream.stream)[-1].number)
        until(lambda: is_ready(running))
        assert send(running) == 200
