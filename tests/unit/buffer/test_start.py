"""What a receiver reads before it listens: the hashes of what waits, and no more."""

from __future__ import annotations

import os
import time
from collections import Counter

import pytest

from neve.buffer.buffer import open_buffer, open_reader, open_store
from neve.buffer.disk import DiskStore
from neve.buffer.frame import (
    FIRST_READ_BYTES,
    LARGEST_READ_BYTES,
    NEXT_READ_BYTES,
    frame_parts,
    preamble,
    read_heads,
)
from neve.buffer.layout import Kind, part_path
from neve.buffer.retire import recent_keys
from neve.buffer.spec import BufferSpec
from neve.errors import ConfigError, NotFoundError
from tests.support.buffer_stores import disk, memory
from tests.support.requests import buffered

SALT = b"saltsalt"
SEGMENTS, FRAMES = 10, 10_000
# Wanted: two seconds from the start of the process until it listens. Measured: 0.7 s of it here.
MOST_SECONDS = 1.5


def segment(first: int, frames: int) -> bytes:
    parts = [preamble(SALT)]
    for number in range(first, first + frames):
        parts += frame_parts([buffered(b"request %d" % number * 20)], SALT)
    return b"".join(parts)


def test_a_hundred_thousand_waiting_requests_do_not_delay_the_start(tmp_path, monkeypatch):
    store = DiskStore(tmp_path)
    for number in range(1, SEGMENTS + 1):
        data = segment(number * FRAMES, FRAMES)
        store.put_new(part_path("logs/stream", number, Kind.SEGMENT, len(data)), data)
    opened = Counter()
    open_file = DiskStore.open_file

    def counted(self, path):
        opened[path] += 1
        return open_file(self, path)

    monkeypatch.setattr(DiskStore, "open_file", counted)
    # Of the processor: what other processes do meanwhile does not count.
    started = time.process_time()
    buffer = open_buffer(BufferSpec(location=str(tmp_path)), ["logs", "traces", "metrics"])
    took = time.process_time() - started
    assert buffer.append("logs", buffered(b"request %d" % FRAMES * 20)).duplicate
    assert buffer.close(10)
    assert set(opened.values()) == {1}
    assert len(opened) == SEGMENTS
    assert took < MOST_SECONDS


def reads_of(data: bytes) -> list[tuple[int, int]]:
    reads = []

    def read(start, length):
        reads.append((start, length))
        return data[start : start + length]

    assert sum(len(head.entries) for head in read_heads(read, len(data))) > 0
    return reads


def test_small_frames_are_read_many_at_a_time():
    data = segment(0, 10_000)
    reads = reads_of(data)
    assert len(reads) < 20
    assert max(length for _, length in reads) <= LARGEST_READ_BYTES


def test_large_payloads_are_not_read():
    parts = [preamble(SALT)]
    for _ in range(50):
        parts += frame_parts([buffered(os.urandom(100_000))], SALT)
    reads = reads_of(b"".join(parts))
    assert sum(length for _, length in reads) <= FIRST_READ_BYTES + 50 * NEXT_READ_BYTES


@pytest.mark.parametrize("open_store", ["disk", "objects"])
def test_segments_that_are_retired_while_a_receiver_starts(open_store, tmp_path, monkeypatch):
    opener = disk(tmp_path) if open_store == "disk" else memory()
    store = opener()
    log = store.begin("logs")
    request = buffered(b"a")
    log.commit([request])
    log.close()
    open_file = type(store).open_file
    calls = []

    def gone_once(self, path):
        calls.append(path)
        if len(calls) == 1:
            raise NotFoundError(f"{path} was retired")
        return open_file(self, path)

    monkeypatch.setattr(type(store), "open_file", gone_once)
    since = request.received_unix_nano - 10**9
    assert list(recent_keys(store, "logs", since)) == [(request.received_unix_nano, request.key)]


def test_a_location_that_cannot_be_a_buffer_is_named_with_the_reason(tmp_path):
    file = tmp_path / "file"
    file.touch()
    for location, writes, said in (
        (file, True, f"buffer.location {file} is a file"),
        (file, False, f"buffer.location {file} is a file"),
        (file / "deep" / "buffer", True, f"cannot be used: {file}: File exists"),
        # Where not even root may make a directory.
        ("/proc/buffer", True, "cannot be used: /proc/buffer: No such file or directory"),
    ):
        with pytest.raises(ConfigError) as caught:
            open_store(BufferSpec(str(location)), check=writes)
        assert said in caught.value.message
        assert "buffer.location" in caught.value.hint


def test_reading_a_buffer_makes_no_directory(tmp_path):
    open_reader(BufferSpec(str(tmp_path / "buffer"))).streams()
    assert not list(tmp_path.iterdir())
