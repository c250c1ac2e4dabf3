"""The buffer in the buckets of real servers: one to be trusted, one to be refused."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import pytest

from neve.buffer.buffer import open_buffer, open_reader, open_store
from neve.buffer.dead_letters import list_dead_letters
from neve.buffer.replay import replay
from neve.buffer.spec import BufferSpec, ObjectStorage
from neve.buffer.store import LostStreamError
from neve.errors import StorageError, UnavailableError, UnsupportedError
from neve.limits import MIB
from tests.support.buffer_stores import payloads
from tests.support.dead_letters import set_one_aside, stored
from tests.support.power_cut import power_cut
from tests.support.process import Process, accepts_connections, free_port
from tests.support.requests import buffered
from tests.support.servers import REGION
from tests.support.silent import running_silent_server
from tests.support.wait import until

CONTENTS = [b"request %d" % n for n in range(6)]


@pytest.fixture
def spec(s3, tmp_path):
    return BufferSpec(
        location=f"s3://{s3.bucket}/{tmp_path.name}",
        storage=ObjectStorage(s3.endpoint, REGION, s3.access_key, s3.secret_key),
        put_interval_seconds=0,
    )


def test_requests_come_back_and_are_known_after_they_were_retired(spec):
    with open_buffer(spec, ["logs"]) as buffer:
        for content in CONTENTS:
            buffer.append("logs", buffered(content)).durable.result(30)
    reader = open_reader(replace(spec, retain_seconds=3600))
    [stream] = reader.streams()
    assert stream.closed
    assert payloads(open_store(spec)) == CONTENTS
    reader.retire(stream.stream, stream.segments)
    assert reader.segments(stream.stream) == []
    assert [
        payload
        for kept in reader.retained("logs")
        for batch in reader.read(kept.segment)
        for payload in batch["payload"].to_pylist()
    ] == CONTENTS
    with open_buffer(spec, ["logs"]) as buffer:
        assert buffer.append("logs", buffered(CONTENTS[0])).duplicate


def test_a_lease_is_kept_and_released(spec):
    """How one is taken over: tests/integration/test_consolidate_objects.py."""
    first, second = (open_store(spec).lease("logs", 60) for _ in range(2))
    for _ in range(2):
        assert first.hold()
        assert not second.hold()
    first.release()
    assert second.hold()
    second.release()
    assert open_store(spec).files("") == []


@pytest.mark.parametrize("point", ["replay.intended", "replay.put", "replay.closed"])
def test_a_replay_that_was_cut_off_is_finished_once(spec, point):
    store = open_store(spec)
    set_one_aside(store, "a")
    with power_cut(point):
        replay(store)
    replay(store)
    assert stored(store) == ["a 1"]
    assert list_dead_letters(store) == []
    assert replay(store).requests == 0


def test_a_stream_is_ended_so_that_nothing_can_follow(spec):
    store = open_store(spec)
    log = store.begin("logs")
    log.commit([buffered(b"a")])
    store.end_stream(log.stream)
    store.end_stream(log.stream)
    with pytest.raises(LostStreamError):
        log.commit([buffered(b"b")])
    assert payloads(store) == [b"a"]


def test_a_server_that_ignores_the_condition_is_refused(tmp_path):
    port = free_port()
    (tmp_path / "root" / "bucket").mkdir(parents=True)
    rclone = Path(sys.executable).with_name("rclone")
    options = ("--addr", f"127.0.0.1:{port}", "--auth-key", "key,secretsecret")
    command = [rclone, "serve", "s3", *options, tmp_path / "root"]
    server = Process("rclone", command, tmp_path / "rclone.log")
    try:
        server.wait_until(lambda: accepts_connections(port))
        storage = ObjectStorage(f"http://127.0.0.1:{port}", REGION, "key", "secretsecret")
        with pytest.raises(UnsupportedError, match="If-None-Match"):
            open_buffer(BufferSpec("s3://bucket/buffer", storage=storage), ["logs"])
    finally:
        server.stop()


def behind(server, spec, timeout_seconds):
    storage = replace(spec.storage, endpoint=server.uri, timeout_seconds=timeout_seconds)
    return replace(spec, storage=storage)


def test_a_slow_line_is_not_silent(spec, s3):
    content = Random(7).randbytes(2 * MIB)
    with running_silent_server(urlsplit(s3.endpoint).port) as server:
        slow = behind(server, spec, timeout_seconds=0.7)
        store = open_store(slow)
        server.bytes_per_second = 2 * MIB
        log = store.begin("logs")
        log.commit([buffered(content)])
        assert log.fsync_seconds > slow.storage.timeout_seconds
        assert payloads(store) == [content]


@pytest.mark.parametrize("arrives", [True, False])
def test_a_put_that_is_given_up_for_silence_is_settled(spec, s3, arrives):
    request = buffered(b"in doubt")
    with (
        running_silent_server(urlsplit(s3.endpoint).port) as server,
        open_buffer(behind(server, spec, timeout_seconds=1), ["logs"]) as buffer,
    ):
        if arrives:
            server.silent_after = request.payload
        else:
            server.silent.set()
        began = time.monotonic()
        with pytest.raises(UnavailableError):
            buffer.append("logs", request).durable.result(30)
        # Less than any time-out but the one that is configured.
        assert time.monotonic() - began < 9
        server.silent_after = None
        server.silent.clear()

        def is_taken():
            try:
                buffer.append("logs", request).durable.result(30)
            except UnavailableError:
                return False
            return True

        until(is_taken, seconds=30)
    assert payloads(open_store(spec)) == [b"in doubt"]


def test_a_server_that_is_not_there_is_said_so():
    storage = ObjectStorage(f"http://127.0.0.1:{free_port()}", REGION, "key", "secretsecret")
    with pytest.raises(StorageError, match="cannot"):
        open_buffer(BufferSpec("s3://bucket/buffer", storage=storage), ["logs"])
