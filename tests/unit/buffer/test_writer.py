"""Group commit, duplicates, trouble and its end; over every store where it can differ."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from concurrent.futures import Future

import obstore
import pytest
from obstore.store import MemoryStore

from neve.buffer import disk_log
from neve.buffer.buffer import Buffer, open_buffer, open_reader
from neve.buffer.disk import DiskStore
from neve.buffer.objects import ObjectStore
from neve.buffer.quota import RESERVE_BYTES
from neve.buffer.spec import BufferSpec
from neve.buffer.writer import _QueuedRequest
from neve.errors import ConfigError, UnavailableError
from tests.support.buffer_stores import DoubtfulStore, payloads
from tests.support.requests import buffered
from tests.support.wait import until

SIGNALS = ("logs", "traces")
SECONDS = 10


class SlowStore(DiskStore):
    """A disk whose commits wait to be let through."""

    def __init__(self, root):
        super().__init__(root)
        self.gate = threading.Event()
        self.groups = []

    def begin(self, signal):
        log = super().begin(signal)
        commit = log.commit

        def slow(requests):
            self.groups.append(len(requests))
            assert self.gate.wait(SECONDS)
            commit(requests)

        log.commit = slow
        return log


class Clock:
    """A time that passes only when it is told to."""

    seconds = 0.0


@pytest.fixture
def spec(tmp_path):
    return BufferSpec(location=str(tmp_path / "buffer"), put_interval_seconds=0)


@pytest.fixture
def slow(tmp_path):
    return SlowStore(tmp_path / "buffer")


def test_an_appended_request_is_durable_and_read_after_the_close(spec, tmp_path):
    with open_buffer(spec, SIGNALS) as buffer:
        receipt = buffer.append("logs", buffered(b"a"))
        receipt.durable.result(SECONDS)
        assert not receipt.duplicate
        assert buffer.trouble is None
    assert payloads(DiskStore(tmp_path / "buffer")) == [b"a"]


def test_concurrent_requests_share_a_commit(spec, slow):
    buffer = Buffer(spec, slow, SIGNALS)
    first = buffer.append("logs", buffered(b"0"))
    until(lambda: slow.groups)
    rest = [buffer.append("logs", buffered(b"%d" % n)) for n in range(1, 50)]
    assert not any(receipt.durable.done() for receipt in [first, *rest])
    slow.gate.set()
    for receipt in rest:
        receipt.durable.result(SECONDS)
    assert slow.groups == [1, 49]
    assert buffer.close(SECONDS)


def test_a_duplicate_waits_for_the_first_to_be_durable(spec, slow):
    buffer = Buffer(spec, slow, SIGNALS)
    first, second = (buffer.append("logs", buffered(b"same")) for _ in range(2))
    assert (first.duplicate, second.duplicate) == (False, True)
    until(lambda: slow.groups)
    assert not second.durable.done()
    slow.gate.set()
    second.durable.result(SECONDS)
    third = buffer.append("logs", buffered(b"same"))
    assert third.duplicate
    assert third.durable.done()
    assert buffer.close(SECONDS)
    assert payloads(slow) == [b"same"]


def test_the_end_of_a_failed_request_leaves_its_retry_in_flight(spec, slow):
    buffer = Buffer(spec, slow, SIGNALS)
    retry = buffer.append("logs", buffered(b"same"))
    failed = _QueuedRequest(buffered(b"same"), Future())
    buffer._writers["logs"]._forget_as_refused([failed])
    assert buffer.append("logs", buffered(b"same")).durable is retry.durable
    slow.gate.set()
    assert buffer.close(SECONDS)
    assert payloads(slow) == [b"same"]


def test_what_differs_in_sender_or_signal_or_time_is_not_a_duplicate(spec, tmp_path):
    with open_buffer(spec, SIGNALS) as buffer:
        requests = [
            ("logs", buffered(b"same", received_unix_nano=10**18)),
            ("logs", buffered(b"same", sender=b"x" * 16, received_unix_nano=10**18)),
            ("traces", buffered(b"same", received_unix_nano=10**18)),
            ("logs", buffered(b"same", received_unix_nano=10**18 + 301 * 10**9)),
        ]
        for signal, request in requests:
            receipt = buffer.append(signal, request)
            receipt.durable.result(SECONDS)
            assert not receipt.duplicate
    assert payloads(DiskStore(tmp_path / "buffer")) == [b"same"] * 3


def test_without_a_window_nothing_is_a_duplicate(tmp_path):
    spec = BufferSpec(location=str(tmp_path), dedup_seconds=0)
    with open_buffer(spec, SIGNALS) as buffer:
        receipts = [buffer.append("logs", buffered(b"same")) for _ in range(3)]
        for receipt in receipts:
            receipt.durable.result(SECONDS)
    assert payloads(DiskStore(tmp_path)) == [b"same"] * 3


def test_hashes_survive_a_restart_and_their_segments(spec, tmp_path):
    with open_buffer(spec, SIGNALS) as buffer:
        buffer.append("logs", buffered(b"same")).durable.result(SECONDS)
    reader = open_reader(spec)
    [stream] = reader.streams()
    reader.retire(stream.stream, 2)
    with open_buffer(spec, SIGNALS) as buffer:
        receipt = buffer.append("logs", buffered(b"same"))
        assert receipt.duplicate
        assert receipt.durable.done()
    assert payloads(DiskStore(tmp_path / "buffer")) == []


def test_a_failed_commit_fails_the_duplicates_too(spec, slow, monkeypatch):
    buffer = Buffer(spec, slow, SIGNALS)
    first, second = (buffer.append("logs", buffered(b"same")) for _ in range(2))
    monkeypatch.setattr(disk_log.os, "fdatasync", _fail)
    slow.gate.set()
    for receipt in (first, second):
        with pytest.raises(UnavailableError):
            receipt.durable.result(SECONDS)
    monkeypatch.undo()
    again = _retry(buffer, b"same")
    assert not again.duplicate
    assert buffer.close(SECONDS)
    assert payloads(slow) == [b"same"]


def _fail(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def _retry(buffer, content):
    """Send as a client does: again and again until it is acknowledged."""
    receipts = []
    until(lambda: receipts.append(_attempt(buffer, content)) or receipts[-1])
    return receipts[-1]


def _attempt(buffer, content):
    try:
        receipt = buffer.append("logs", buffered(content))
        receipt.durable.result(SECONDS)
    except UnavailableError:
        return None
    return receipt


def test_a_full_disk_refuses_and_recovers(spec, tmp_path, monkeypatch):
    buffer = open_buffer(spec, SIGNALS)
    buffer.append("logs", buffered(b"a")).durable.result(SECONDS)
    with monkeypatch.context() as full:
        full.setattr(disk_log.os, "writev", _fail)
        for n in range(3):
            with pytest.raises(UnavailableError, match="cannot store"):
                _append(buffer, b"lost %d" % n)
    _retry(buffer, b"b")
    assert buffer.close(SECONDS)
    assert payloads(DiskStore(tmp_path / "buffer")) == [b"a", b"b"]


def _append(buffer, content):
    buffer.append("logs", buffered(content)).durable.result(SECONDS)


def test_a_read_only_disk_refuses_until_it_is_settled(spec, tmp_path, monkeypatch):
    buffer = open_buffer(spec, SIGNALS)
    _append(buffer, b"a")
    with monkeypatch.context() as read_only:
        for call in ("writev", "ftruncate", "fsync", "fdatasync"):
            read_only.setattr(disk_log.os, call, _fail)
        with pytest.raises(UnavailableError):
            _append(buffer, b"b")
        until(lambda: buffer.trouble)
        with pytest.raises(UnavailableError):
            buffer.append("logs", buffered(b"c"))
        with pytest.raises(UnavailableError, match="cannot store"):
            buffer.check_room(1, "logs")
        buffer.check_room(1, "traces")
    _retry(buffer, b"b")
    assert buffer.trouble is None
    assert buffer.close(SECONDS)
    assert payloads(DiskStore(tmp_path / "buffer")) == [b"a", b"b"]


def test_a_removed_directory_begins_a_new_stream(spec, tmp_path):
    buffer = open_buffer(spec, SIGNALS)
    _append(buffer, b"gone")
    shutil.rmtree(tmp_path / "buffer")
    _append(buffer, b"b")
    assert buffer.close(SECONDS)
    assert payloads(DiskStore(tmp_path / "buffer")) == [b"b"]


@pytest.mark.parametrize("kind", ["disk", "objects"])
def test_what_a_commit_waited_for_is_counted(spec, tmp_path, monkeypatch, kind):
    clock = Clock()
    monkeypatch.setattr("time.perf_counter", lambda: clock.seconds)
    if kind == "disk":
        store, patched, name = DiskStore(tmp_path / "buffer"), os, "fdatasync"
    else:
        store, patched, name = ObjectStore(MemoryStore()), obstore, "put"
    wait = getattr(patched, name)

    def slow(*args, **options):
        clock.seconds += 0.3
        return wait(*args, **options)

    monkeypatch.setattr(patched, name, slow)
    buffer = Buffer(spec, store, SIGNALS)
    _append(buffer, b"a")
    assert buffer.close(SECONDS)
    fsyncs = buffer.fsyncs["logs"].read()
    assert dict(fsyncs.buckets)["0.25"] == 0
    assert dict(fsyncs.buckets)["0.5"] == 1
    assert fsyncs.sum_seconds == pytest.approx(0.3)
    assert buffer.fsyncs["traces"].read().sum_seconds == 0


def test_a_buffer_that_is_full_refuses_until_something_is_retired(tmp_path):
    spec = BufferSpec(location=str(tmp_path), max_bytes=20_000, seal_bytes=1)
    buffer = open_buffer(spec, SIGNALS)
    stored = 0
    while _attempt(buffer, os.urandom(1000)):
        stored += 1
    assert buffer.used_bytes > 18_000
    with pytest.raises(UnavailableError, match="at most 20000"):
        _append(buffer, os.urandom(1000))
    assert "at most 20000" in buffer.trouble.message
    assert buffer.is_alive
    with pytest.raises(UnavailableError, match="at most 20000"):
        buffer.check_room(1000, "logs")
    until(lambda: len(payloads(DiskStore(tmp_path))) == stored)
    reader = open_reader(spec)
    [stream] = reader.streams("logs")
    reader.retire(stream.stream, stream.segments)
    _retry(buffer, os.urandom(1000))
    until(lambda: buffer.trouble is None)
    assert buffer.close(SECONDS)


def test_a_disk_is_not_filled_to_the_last_byte(spec, tmp_path, monkeypatch):
    # Retiring must be able to write; otherwise a full disk would stay full for ever.
    monkeypatch.setattr(DiskStore, "free_bytes", lambda _: RESERVE_BYTES + 500)
    with open_buffer(spec, SIGNALS) as buffer:
        _append(buffer, os.urandom(400))
        with pytest.raises(UnavailableError, match="bytes left"):
            _append(buffer, os.urandom(1000))
    assert len(payloads(DiskStore(tmp_path / "buffer"))) == 1


def test_too_much_waiting_is_refused(tmp_path, slow):
    spec = BufferSpec(location=str(tmp_path), max_pending_bytes=2500)
    buffer = Buffer(spec, slow, SIGNALS)
    buffer.append("logs", buffered(os.urandom(1000)))
    until(lambda: slow.groups)
    for _ in range(2):
        buffer.append("logs", buffered(os.urandom(1000)))
    with pytest.raises(UnavailableError, match="too many"):
        buffer.append("logs", buffered(os.urandom(1000)))
    slow.gate.set()
    assert buffer.close(SECONDS)
    assert len(payloads(slow)) == 3


@pytest.mark.parametrize("limit", [{"seal_seconds": 0.05}, {"seal_bytes": 1}])
def test_segments_are_sealed_by_age_or_size(tmp_path, limit):
    store = DiskStore(tmp_path)
    with open_buffer(BufferSpec(location=str(tmp_path), **limit), SIGNALS) as buffer:
        _append(buffer, b"a")
        until(lambda: payloads(store) == [b"a"])


def test_closing_commits_what_waits_and_takes_nothing_more(spec, slow):
    buffer = Buffer(spec, slow, SIGNALS)
    receipts = [buffer.append("logs", buffered(b"%d" % n)) for n in range(10)]
    closed: Future[bool] = Future()
    closer = threading.Thread(target=lambda: closed.set_result(buffer.close(SECONDS)))
    closer.start()
    until(lambda: buffer._writers["logs"]._closing)
    with pytest.raises(UnavailableError, match="shutting down"):
        buffer.append("logs", buffered(b"late"))
    with pytest.raises(UnavailableError, match="shutting down"):
        buffer.check_room(1, "logs")
    slow.gate.set()
    assert closed.result(SECONDS) is True
    closer.join()
    assert all(receipt.durable.done() for receipt in receipts)
    assert len(payloads(slow)) == 10


def test_closing_gives_up_in_time(spec, slow):
    buffer = Buffer(spec, slow, SIGNALS)
    buffer.append("logs", buffered(b"a"))
    assert buffer.close(0.05) is False
    slow.gate.set()


def test_closing_in_trouble_leaves_the_stream_to_the_next(spec, tmp_path, monkeypatch):
    buffer = open_buffer(spec, SIGNALS)
    _append(buffer, b"a")
    with monkeypatch.context() as broken:
        for call in ("writev", "ftruncate", "fsync", "fdatasync"):
            broken.setattr(disk_log.os, call, _fail)
        with pytest.raises(UnavailableError):
            _append(buffer, b"b")
        assert buffer.close(SECONDS) is False
    with open_buffer(spec, SIGNALS) as again:
        assert again.append("logs", buffered(b"a")).duplicate
    assert payloads(DiskStore(tmp_path / "buffer")) == [b"a"]


def test_a_put_in_doubt_refuses_then_counts_when_it_was_stored(spec):
    store = DoubtfulStore(MemoryStore())
    buffer = Buffer(spec, store, SIGNALS)
    store.lose_responses = 1
    with pytest.raises(UnavailableError):
        _append(buffer, b"a")
    assert _retry(buffer, b"a").duplicate, "it had been stored after all"
    assert buffer.close(SECONDS)
    assert payloads(store) == [b"a"]


def test_a_put_in_doubt_refuses_then_is_stored_once_when_it_was_not(spec):
    store = DoubtfulStore(MemoryStore())
    buffer = Buffer(spec, store, SIGNALS)
    store.lose_requests = 1
    with pytest.raises(UnavailableError):
        _append(buffer, b"a")
    assert not _retry(buffer, b"a").duplicate
    assert store.deliver() == [False]
    assert buffer.close(SECONDS)
    assert payloads(store) == [b"a"]


def test_a_receiver_shut_out_goes_on_in_a_new_stream(spec):
    store = DoubtfulStore(MemoryStore())
    buffer = Buffer(spec, store, SIGNALS)
    _append(buffer, b"a")
    assert len(ObjectStore(store._bucket, idle_seconds=-1).close_abandoned()) == 1
    _append(buffer, b"b")
    assert buffer.close(SECONDS)
    assert sorted(payloads(store)) == [b"a", b"b"]


def test_a_location_of_an_unknown_kind():
    with pytest.raises(ConfigError, match="ftp://"):
        open_reader(BufferSpec(location="ftp://somewhere"))
