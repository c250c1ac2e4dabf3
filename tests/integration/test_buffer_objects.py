"""The buffer in the buckets of real servers: one to be trusted, one to be refused."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from neve.buffer.buffer import open_buffer, open_reader, open_store
from neve.buffer.dead_letters import list_dead_letters
from neve.buffer.replay import replay
from neve.buffer.spec import BufferSpec, ObjectStorage
from neve.buffer.store import LostStreamError
from neve.errors import StorageError, UnsupportedError
from tests.support.buffer_stores import payloads
from tests.support.dead_letters import set_one_aside, stored
from tests.support.power_cut import power_cut
from tests.support.process import Process, accepts_connections, free_port
from tests.support.requests import buffered
from tests.support.servers import REGION

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


def test_a_server_that_is_not_there_is_said_so():
    storage = ObjectStorage(f"http://127.0.0.1:{free_port()}", REGION, "key", "secretsecret")
    with pytest.raises(StorageError, match="cannot"):
        open_buffer(BufferSpec("s3://bucket/buffer", storage=storage), ["logs"])
