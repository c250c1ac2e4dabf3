"""A writer that fails unexpectedly: nothing is lost, doubled or left waiting, and it goes on."""

from __future__ import annotations

import threading

import pytest
from obstore.store import MemoryStore

from neve.buffer import buffer as buffers
from neve.buffer.buffer import Buffer, open_buffer
from neve.buffer.disk import DiskStore
from neve.buffer.objects import ObjectStore
from neve.buffer.restarts import MAX_RESTARTS, WITHIN_SECONDS, RestartLimit
from neve.buffer.spec import BufferSpec
from neve.errors import StorageError, UnavailableError
from tests.support.buffer_stores import payloads
from tests.support.requests import buffered
from tests.support.wait import until

SIGNALS = ("logs", "traces")
SECONDS = 10


class Defects:
    """A store whose logs raise what no store should: before a commit, after it, or while sealing.

    Also counts, and can fail, the attempts to end a stream.
    """

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.before = self.after = self.sealing = 0
        self.broken = threading.Event()
        self.attempts_to_end = 0

    def begin(self, signal):
        log = super().begin(signal)
        commit, seal = log.commit, log.seal

        def defective_commit(requests):
            if self.before:
                self.before -= 1
                raise ZeroDivisionError("before the commit")
            commit(requests)
            if self.after:
                self.after -= 1
                raise ZeroDivisionError("after the commit")

        def defective_seal():
            if self.sealing:
                self.sealing -= 1
                raise ZeroDivisionError("while sealing")
            seal()

        log.commit, log.seal = defective_commit, defective_seal
        return log

    def end_stream(self, stream):
        self.attempts_to_end += 1
        if self.broken.is_set():
            raise StorageError("the disk does not answer", retryable=True)
        super().end_stream(stream)


class DefectiveDisk(Defects, DiskStore):
    pass


class DefectiveObjects(Defects, ObjectStore):
    pass


@pytest.fixture
def spec(tmp_path):
    return BufferSpec(location=str(tmp_path / "buffer"), put_interval_seconds=0)


@pytest.fixture(params=["disk", "objects"])
def store(request, tmp_path):
    if request.param == "disk":
        return DefectiveDisk(tmp_path / "buffer")
    return DefectiveObjects(MemoryStore())


def send(buffer, content):
    """Append once; return the receipt if it was acknowledged."""
    try:
        receipt = buffer.append("logs", buffered(content))
        receipt.durable.result(SECONDS)
    except UnavailableError:
        return None
    return receipt


def send_until_acknowledged(buffer, content):
    receipts = []
    until(lambda: receipts.append(send(buffer, content)) or receipts[-1])
    return receipts[-1]


@pytest.mark.parametrize("stored_before", [0, 2])
def test_a_request_that_was_not_stored_is_refused_and_its_retry_stored(spec, store, stored_before):
    buffer = Buffer(spec, store, SIGNALS)
    before = [b"%d" % n for n in range(stored_before)]
    for content in before:
        assert send(buffer, content)
    store.before = 1
    assert send(buffer, b"a") is None
    assert not send_until_acknowledged(buffer, b"a").duplicate
    assert buffer.is_alive
    assert buffer.trouble is None
    assert buffer.close(SECONDS)
    assert sorted(payloads(store)) == [*before, b"a"]


@pytest.mark.parametrize("stored_before", [0, 2])
def test_a_request_that_was_stored_is_refused_and_its_retry_a_duplicate(spec, store, stored_before):
    buffer = Buffer(spec, store, SIGNALS)
    before = [b"%d" % n for n in range(stored_before)]
    for content in before:
        assert send(buffer, content)
    store.after = 1
    assert send(buffer, b"a") is None
    assert send_until_acknowledged(buffer, b"a").duplicate
    assert not send_until_acknowledged(buffer, b"b").duplicate
    assert buffer.close(SECONDS)
    assert sorted(payloads(store)) == [*before, b"a", b"b"]


def test_a_retry_is_refused_until_it_is_known_what_became_of_the_first(spec, store):
    buffer = Buffer(spec, store, SIGNALS)
    store.broken.set()
    store.after = 1
    assert send(buffer, b"a") is None
    until(lambda: store.attempts_to_end >= 2)
    assert send(buffer, b"a") is None
    assert send(buffer, b"b") is None
    assert buffer.trouble is not None
    assert buffer.is_alive, "it tries again"
    store.broken.clear()
    assert send_until_acknowledged(buffer, b"a").duplicate
    assert buffer.close(SECONDS)
    assert payloads(store) == [b"a"]


def test_a_defect_while_sealing_loses_nothing(spec, store, tmp_path):
    spec = BufferSpec(location=spec.location, put_interval_seconds=0, seal_bytes=1)
    store = DefectiveDisk(tmp_path / "buffer")
    buffer = Buffer(spec, store, SIGNALS)
    store.sealing = 1
    assert send(buffer, b"a")
    assert not send_until_acknowledged(buffer, b"b").duplicate
    assert send_until_acknowledged(buffer, b"a").duplicate
    assert buffer.close(SECONDS)
    assert sorted(payloads(store)) == [b"a", b"b"]


def test_what_waits_behind_a_defect_is_refused_not_forgotten(spec, store):
    buffer = Buffer(spec, store, SIGNALS)
    store.before = 1
    receipts = [buffer.append("logs", buffered(b"%d" % n)) for n in range(20)]
    until(lambda: all(receipt.durable.done() for receipt in receipts))
    for n in range(20):
        send_until_acknowledged(buffer, b"%d" % n)
    assert buffer.close(SECONDS)
    assert sorted(payloads(store)) == sorted(b"%d" % n for n in range(20))


def test_after_too_many_defects_it_stays_stopped_and_says_so(spec, store, caplog):
    buffer = Buffer(spec, store, SIGNALS)
    assert send(buffer, b"kept")
    store.before = MAX_RESTARTS + 1
    until(lambda: send(buffer, b"a") or not buffer.is_alive)
    assert store.before == 0
    assert buffer.trouble is not None
    with pytest.raises(UnavailableError):
        buffer.check_room(1, "logs")
    buffer.check_room(1, "traces")
    assert send(buffer, b"a") is None
    assert send(buffer, b"b") is None
    assert "restart the process" in caplog.text
    assert buffer.close(SECONDS) is False
    assert not buffer.is_alive
    with Buffer(spec, store, SIGNALS) as again:
        assert send(again, b"a")
    assert sorted(payloads(store)) == [b"a", b"kept"]


def test_a_thread_that_is_killed_is_noticed(spec, store, monkeypatch):
    buffer = Buffer(spec, store, SIGNALS)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)

    def kill(*_):
        raise SystemExit

    monkeypatch.setattr(buffer._writers["logs"], "_commit", kill)
    buffer.append("logs", buffered(b"a"))
    until(lambda: not buffer.is_alive)
    assert "stopped" in buffer.trouble.message
    assert send(buffer, b"b") is None
    assert buffer.close(SECONDS) is False


def test_restarts_are_bounded_within_a_time(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("neve.buffer.restarts.time.monotonic", lambda: now[0])
    limit = RestartLimit()
    assert [limit.allow() for _ in range(MAX_RESTARTS + 1)] == [True] * MAX_RESTARTS + [False]
    now[0] = WITHIN_SECONDS + 1
    assert limit.allow()


class HangingListing(DiskStore):
    """A directory whose listing hangs once it is told to."""

    def __init__(self, root):
        super().__init__(root)
        self.hang = False
        self.hanging = threading.Event()
        self.go_on = threading.Event()

    def files(self, prefix):
        if self.hang:
            self.hanging.set()
            assert self.go_on.wait(60)
        return super().files(prefix)


def test_a_listing_that_hangs_delays_no_acknowledgement(spec, tmp_path, monkeypatch):
    monkeypatch.setattr(buffers, "MEASURE_DISK_SECONDS", 0.01)
    spec = BufferSpec(location=spec.location, seal_bytes=1)
    store = HangingListing(tmp_path / "buffer")
    buffer = Buffer(spec, store, SIGNALS)
    store.hang = True
    assert store.hanging.wait(SECONDS)
    for n in range(50):
        assert send(buffer, b"%d" % n)
    assert buffer.trouble is None
    buffer.check_room(1, "logs")
    store.hang = False
    assert len(payloads(store)) >= 49, "sealing goes on as well"
    store.go_on.set()
    assert buffer.close(SECONDS)


def test_writers_never_list(spec, tmp_path, monkeypatch):
    threads = set()
    files = DiskStore.files

    def recorded(self, prefix):
        threads.add(threading.current_thread().name)
        return files(self, prefix)

    monkeypatch.setattr(DiskStore, "files", recorded)
    monkeypatch.setattr(buffers, "MEASURE_DISK_SECONDS", 0.01)
    with open_buffer(BufferSpec(location=spec.location, seal_bytes=1), SIGNALS) as buffer:
        until(lambda: send(buffer, b"a") and "neve-buffer-quota" in threads)
    assert not any(name in threads for name in ("neve-buffer-logs", "neve-buffer-traces"))
