"""Puts in doubt, and stores not to be trusted."""

from __future__ import annotations

import pytest
from obstore.store import MemoryStore

from neve.buffer.objects import ObjectStore
from neve.buffer.store import LostStreamError
from neve.errors import StorageError, UnsupportedError
from tests.support.buffer_stores import DoubtfulStore, payloads
from tests.support.power_cut import power_cut
from tests.support.requests import buffered


@pytest.fixture
def store():
    return DoubtfulStore(MemoryStore())


def test_a_store_with_conditions_is_accepted_and_left_clean():
    bucket = MemoryStore()
    ObjectStore(bucket).check_conditions()
    assert ObjectStore(bucket).files("") == []


def test_a_store_that_ignores_the_condition_is_refused():
    class Overwriting(ObjectStore):
        def put_new(self, path, data):
            self.delete([path])
            return super().put_new(path, data)

    with pytest.raises(UnsupportedError, match="If-None-Match"):
        Overwriting(MemoryStore()).check_conditions()


def test_a_lost_response_is_settled_by_reading_back(store):
    log = store.begin("logs")
    store.lose_responses = 1
    with pytest.raises(StorageError):
        log.commit([buffered(b"a")])
    assert log.settle() is True
    log.commit([buffered(b"b")])
    assert payloads(store) == [b"a", b"b"]


def test_a_lost_request_is_settled_by_an_empty_segment(store):
    log = store.begin("logs")
    store.lose_requests = 1
    with pytest.raises(StorageError):
        log.commit([buffered(b"a")])
    assert log.settle() is False
    # The put that was thought lost arrives now: too late.
    assert store.deliver() == [False]
    log.commit([buffered(b"b")])
    assert payloads(store) == [b"b"]


def test_a_request_that_arrives_before_it_is_settled_counts(store):
    log = store.begin("logs")
    store.lose_requests = 1
    with pytest.raises(StorageError):
        log.commit([buffered(b"a")])
    assert store.deliver() == [True]
    assert log.settle() is True
    assert payloads(store) == [b"a"]


def test_the_settling_put_may_be_in_doubt_too(store):
    log = store.begin("logs")
    store.lose_requests = 1
    with pytest.raises(StorageError):
        log.commit([buffered(b"a")])
    store.lose_responses = 1
    with pytest.raises(StorageError):
        log.settle()
    assert log.settle() is False
    assert store.deliver() == [False]
    log.commit([buffered(b"b")])
    assert payloads(store) == [b"b"]


def test_a_put_repeated_by_the_client_finds_its_own(store, monkeypatch):
    log = store.begin("logs")
    put_new = store.put_new
    # A 500 after the store had taken it; the client's own retry then meets the condition.
    monkeypatch.setattr(store, "put_new", lambda path, data: put_new(path, data) and False)
    log.commit([buffered(b"a")])
    monkeypatch.undo()
    log.commit([buffered(b"b")])
    assert payloads(store) == [b"a", b"b"]


def test_a_receiver_thought_dead_is_shut_out(store):
    log = store.begin("logs")
    log.commit([buffered(b"a")])
    closer = ObjectStore(store._bucket, idle_seconds=-1)
    assert closer.close_abandoned() == [log.stream]
    with pytest.raises(LostStreamError):
        log.commit([buffered(b"b")])
    assert payloads(store) == [b"a"]


def test_a_receiver_in_doubt_is_shut_out(store):
    log = store.begin("logs")
    log.commit([buffered(b"a")])
    store.lose_requests = 1
    with pytest.raises(StorageError):
        log.commit([buffered(b"b")])
    assert ObjectStore(store._bucket, idle_seconds=-1).close_abandoned() == [log.stream]
    with pytest.raises(LostStreamError):
        log.settle()
    assert store.deliver() == [False]


def test_a_receiver_that_puts_in_time_is_not_closed(store):
    log = store.begin("logs")
    log.commit([buffered(b"a")])
    assert store.close_abandoned() == [], "it is not idle for long enough"


@pytest.mark.parametrize("point", ["buffer.put_begun", "buffer.put_done"])
def test_a_power_cut_around_a_put(store, point):
    log = store.begin("logs")
    log.commit([buffered(b"a")])
    with power_cut(point):
        log.commit([buffered(b"b")])
    assert payloads(store) == ([b"a"] if point == "buffer.put_begun" else [b"a", b"b"])


def test_a_power_cut_after_settling(store):
    log = store.begin("logs")
    store.lose_requests = 1
    with pytest.raises(StorageError):
        log.commit([buffered(b"a")])
    with power_cut("buffer.settled"):
        log.settle()
    assert log.settle() is False
    assert store.deliver() == [False]


def test_looking_for_abandoned_streams_again_and_again_lists_once(store, monkeypatch):
    # Each listing costs money, and streams are closed after an hour.
    listed = []
    files = store.files
    monkeypatch.setattr(store, "files", lambda prefix: listed.append(prefix) or files(prefix))
    for _ in range(10):
        store.close_abandoned()
    assert sorted(listed) == ["logs", "metrics", "traces"]
