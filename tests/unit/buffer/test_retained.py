"""Consumed segments are kept for `buffer.retain_seconds`. On every store."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from neve import failpoints
from neve.buffer.quota import Quota
from neve.buffer.reader import BufferReader, StreamState
from neve.buffer.retained import RetentionLimit
from tests.support.buffer_stores import disk, memory, payloads
from tests.support.requests import buffered

DAY = 86_400.0


@pytest.fixture(params=["disk", "objects"])
def open_store(request, tmp_path):
    return disk(tmp_path / "buffer") if request.param == "disk" else memory()


@pytest.fixture
def reader(open_store):
    return BufferReader(open_store(), dedup_seconds=-1, retain_seconds=DAY)


@pytest.fixture
def stream(open_store):
    log = open_store().begin("logs")
    log.commit([buffered(b"a" * 1000)])
    log.seal()
    log.commit([buffered(b"b")])
    log.close()
    return log.stream


def retained_payloads(reader):
    return [
        payload
        for kept in reader.retained("logs")
        for batch in reader.read(kept.segment)
        for payload in batch["payload"].to_pylist()
    ]


def test_what_is_retired_can_be_read_and_is_out_of_the_way(open_store, reader, stream):
    before = time.time_ns()
    reader.retire(stream, 1)
    reader.retire(stream, 1)
    assert [s.number for s in reader.segments(stream)] == [2, 3]
    [kept] = reader.retained(stream)
    assert (kept.segment.stream, kept.segment.number) == (stream, 1)
    assert before - 10**9 < kept.consumed_unix_nano <= time.time_ns()
    assert retained_payloads(reader) == [b"a" * 1000]
    assert reader.retained("traces") == []
    assert payloads(open_store()) == [b"b"]
    assert Quota(10**9, open_store(), 1.0).used_bytes < 1000


@pytest.mark.parametrize("point", ["buffer.retire_declared", "buffer.retire_removed"])
@pytest.mark.parametrize("again", ["retire", "finish"])
def test_what_a_kill_left_behind_is_retained_by_the_next_call(reader, stream, point, again):
    with failpoints.armed(point), pytest.raises(failpoints.PowerCut):
        reader.retire(stream, 2)
    if again == "retire":
        reader.retire(stream, 3)
    else:
        reader.finish_retiring("logs")
    assert retained_payloads(reader) == [b"a" * 1000, b"b"]


def test_retained_segments_go_when_their_time_is_over(open_store, reader, stream):
    reader.retire(stream, 2)
    limit = RetentionLimit(open_store(), DAY, clock=lambda: time.time() + DAY - 60)
    assert limit.enforce() == 0
    assert len(reader.retained()) == 2
    late = replace(limit, clock=lambda: time.time() + DAY + 60)
    assert late.enforce_when_due() == 2
    assert late.enforce_when_due() == 0
    assert reader.retained() == []
    assert [s.number for s in reader.segments(stream)] == [3]


def test_without_a_retention_what_an_earlier_setting_kept_is_removed(open_store, reader, stream):
    reader.retire(stream, 1)
    now = BufferReader(open_store(), dedup_seconds=-1)
    now.retire(stream, 2)
    assert [kept.segment.number for kept in now.retained()] == [1]
    RetentionLimit(open_store(), 0.0).enforce_when_due()
    assert now.retained() == []


def test_a_stream_is_dropped_after_its_retained_segments(open_store, reader, stream):
    reader.retire(stream, 3)
    assert not reader.drop(stream)
    now = BufferReader(open_store(), dedup_seconds=-1)
    assert now.drop(stream)
    assert now.retained() == []
    assert open_store().files("retained") == []
    assert now.stream_states([stream]) == {stream: StreamState.DROPPED}
