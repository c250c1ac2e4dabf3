"""How full the buffer is, between measurements and across them."""

from __future__ import annotations

import os

import pytest

from neve.buffer.disk import DiskStore
from neve.buffer.quota import RESERVE_BYTES, Quota
from neve.errors import StorageError, UnavailableError
from tests.support.wait import until

LONG = 3600.0


@pytest.fixture
def store(tmp_path):
    return DiskStore(tmp_path / "buffer")


def put(store, path, size):
    store.put_new(path, os.urandom(size))


def test_what_is_claimed_counts_before_it_is_measured(store):
    quota = Quota(1000, store, LONG)
    quota.claim(600)
    quota.commit(600)
    quota.claim(300)
    assert quota.used_bytes == 900
    with pytest.raises(UnavailableError, match="900 of at most 1000"):
        quota.claim(200)
    assert quota.used_bytes == 900
    quota.release(300)
    quota.claim(200)
    assert quota.used_bytes == 800


def test_what_is_committed_while_a_listing_runs_counts_until_the_next(store):
    quota = Quota(1000, store, LONG)
    quota.claim(400)
    quota.commit(400)
    files = store.files

    def slow(prefix):
        if prefix == "logs":
            quota.claim(300)
            quota.commit(300)
        return files(prefix)

    put(store, "logs/stream/000000000001.segment", 400)
    store.files = slow
    quota.refresh()
    assert quota.used_bytes == 700
    store.files = files
    put(store, "logs/stream/000000000002.segment", 300)
    quota.refresh()
    assert quota.used_bytes == 700


def test_what_waits_for_its_commit_counts_across_a_measurement(store):
    quota = Quota(1000, store, LONG)
    quota.claim(400)
    quota.refresh()
    assert quota.used_bytes == 400


def test_it_is_full_from_a_refusal_until_there_is_room_for_that_request(store):
    put(store, "logs/stream/000000000001.segment", 900)
    quota = Quota(1000, store, LONG)
    assert quota.full is None
    with pytest.raises(UnavailableError):
        quota.check(150)
    assert "900 of at most 1000" in quota.full.message
    quota.refresh()
    assert quota.full is not None
    store.delete(["logs/stream/000000000001.segment"])
    assert quota.full is not None, "only a measurement shows that there is room"
    quota.refresh()
    assert quota.full is None


def test_a_request_that_could_never_fit_does_not_make_it_full(store):
    quota = Quota(1000, store, LONG)
    with pytest.raises(UnavailableError):
        quota.claim(1001)
    assert quota.full is None


def test_it_is_full_without_a_byte_left_also_before_a_refusal(store):
    put(store, "logs/stream/000000000001.segment", 1000)
    assert Quota(1000, store, LONG).full is not None


def test_a_disk_without_space_is_full(store, monkeypatch):
    monkeypatch.setattr(store, "free_bytes", lambda: RESERVE_BYTES)
    quota = Quota(1000, store, LONG)
    assert "bytes left" in quota.full.message


def test_dead_letters_do_not_count(store):
    put(store, "dead-letters/logs/stream/000000000001-000000.json", 5000)
    quota = Quota(1000, store, LONG)
    assert quota.used_bytes == 0
    quota.claim(900)


def test_a_listing_that_fails_is_tried_again(store, caplog):
    quota = Quota(1000, store, 0.01)
    files = store.files
    failures = [StorageError("the store does not answer"), RuntimeError("a defect")]

    def failing(prefix):
        if failures:
            raise failures.pop(0)
        return files(prefix)

    store.files = failing
    put(store, "logs/stream/000000000001.segment", 700)
    quota.start()
    until(lambda: quota.used_bytes == 700)
    quota.stop()
    assert "the store does not answer" in caplog.text
