"""Dead letters: kept, listed, limited, and no part of what is buffered."""

from __future__ import annotations

import base64
import json
import logging
import os
import time

import pytest

from neve.buffer.dead_letter_limit import LOOK_SECONDS, DeadLetterLimit, RemovedLetters
from neve.buffer.dead_letters import (
    PREFIX,
    DeadRequest,
    check_file_name,
    list_dead_letters,
    read_dead_letter,
    read_dead_letters,
    remove_dead_letters,
    set_aside,
    set_segment_aside,
    stored_request,
)
from neve.buffer.disk import DiskStore
from neve.buffer.objects import ObjectStore
from neve.buffer.payload import NO_SENDER
from neve.buffer.reader import BufferReader, Segment
from neve.buffer.spec import BufferSpec
from neve.errors import CorruptionError, StorageError, UsageError
from tests.support.buffer_stores import disk, memory
from tests.support.requests import buffered


@pytest.fixture(params=["disk", "objects"])
def store(request, tmp_path):
    return (disk(tmp_path / "buffer") if request.param == "disk" else memory())()


def letter(position=0, payload=b"payload", **changes) -> DeadRequest:
    values = {
        "stream": "logs/20260101T000000Z-0123456789ab",
        "segment": 1,
        "position": position,
        "received_unix_nano": 17,
        "reasons": (("resource_logs[0]", "why"),),
        "payload": payload,
        "sender": b"s" * 16,
        "sender_name": "shop",
    }
    return DeadRequest(**{**values, **changes})


def test_what_is_set_aside_comes_back_whole(store):
    dead = letter(payload=b"large" * 1000)
    set_aside(store, dead)
    set_aside(store, dead)
    assert [file.path for file in list_dead_letters(store)] == [dead.path]
    assert stored_request(read_dead_letter(store, dead.path)) == dead
    [listed] = read_dead_letters(store)
    assert "payload" not in listed
    assert (listed["file"], listed["sender_name"]) == (dead.path, "shop")


def test_dead_letters_of_the_first_version_are_read(store):
    document = {
        "stream": "logs/20260101T000000Z-0123456789ab",
        "segment": 1,
        "position": 0,
        "received_unix_nano": 17,
        "reasons": [{"path": "", "reason": "why"}],
        "codec": "identity",
        "payload": base64.b64encode(b"old").decode(),
        "payload_bytes": 3,
    }
    path = letter().path
    store.put_new(path, json.dumps(document).encode())
    dead = stored_request(read_dead_letter(store, path))
    assert (dead.payload, dead.sender, dead.sender_name) == (b"old", NO_SENDER, "")
    assert dead.path == path


def test_what_is_no_dead_letter_is_refused(store):
    for name in ("../neve.yaml", f"{PREFIX}/../x.json", f"{PREFIX}/logs/s/1.json", "logs/s/x"):
        with pytest.raises(UsageError, match="not a dead letter"):
            check_file_name(name)
    path = letter().path
    check_file_name(path)
    store.put_new(path, b"{")
    with pytest.raises(CorruptionError):
        read_dead_letter(store, path)
    with pytest.raises(CorruptionError):
        stored_request({"position": 1})


def test_a_damaged_segment_is_removed_with_its_letter(store):
    segment = Segment("logs/20260101T000000Z-0123456789ab", 3, 4, "path")
    set_segment_aside(store, segment, b"data", "damaged")
    set_aside(store, letter())
    [request, damaged] = list_dead_letters(store)
    assert stored_request(read_dead_letter(store, damaged.path)) is None
    remove_dead_letters(store, [damaged.path])
    remove_dead_letters(store, [damaged.path])
    assert [file.path for file in store.files(PREFIX)] == [request.path]


@pytest.mark.parametrize("kind", [DiskStore, ObjectStore])
def test_a_look_for_work_lists_no_dead_letters(kind, tmp_path, monkeypatch):
    store = disk(tmp_path)() if kind is DiskStore else memory()()
    log = store.begin("logs")
    log.commit([buffered(b"a")])
    log.close()
    set_aside(store, letter())
    files, listed = kind.files, []

    def recorded(self, prefix):
        listed.append(prefix)
        return files(self, prefix)

    monkeypatch.setattr(kind, "files", recorded)
    reader = BufferReader(store, dedup_seconds=300)
    reader.close_abandoned()
    assert [stream.stream for stream in reader.streams()] == [log.stream]
    assert listed
    assert not any("dead-letters".startswith(prefix) for prefix in listed), listed


class TestLimit:
    """What is removed, and what is told of it."""

    NOW = 1_800_000_000.0

    @pytest.fixture
    def store(self, tmp_path):
        return DiskStore(tmp_path / "buffer")

    def limit(self, store, max_bytes=10**9, retain_seconds=1000.0, clock=None):
        spec = BufferSpec(
            location="unused",
            dead_letters_max_bytes=max_bytes,
            dead_letters_retain_seconds=retain_seconds,
        )
        return DeadLetterLimit(store, spec, clock or (lambda: self.NOW))

    def put(self, store, position, age_seconds):
        dead = letter(position, payload=bytes(400))
        set_aside(store, dead)
        modified = self.NOW - age_seconds
        os.utime(store._root / dead.path, (modified, modified))
        return dead.path

    def left(self, store):
        return [file.path for file in list_dead_letters(store)]

    def test_past_the_retention_they_go(self, store, caplog):
        caplog.set_level(logging.INFO, "neve")
        self.put(store, 0, age_seconds=1001)
        young = self.put(store, 1, age_seconds=999)
        assert self.limit(store).enforce() == RemovedLetters(expired=1)
        assert self.left(store) == [young]
        assert [record.levelname for record in caplog.records] == ["INFO"]

    def test_past_the_limit_the_oldest_go_with_a_warning(self, store, caplog):
        paths = [self.put(store, n, age_seconds=100 - n) for n in range(5)]
        size = store.files(PREFIX)[0].size
        assert self.limit(store, 3 * size).enforce() == RemovedLetters(over_limit=2)
        assert self.left(store) == paths[2:]
        assert "removed the 2 oldest dead letters" in caplog.text
        assert caplog.records[0].levelname == "WARNING"
        assert self.limit(store, 3 * size).enforce() == RemovedLetters()

    def test_those_past_the_retention_go_first(self, store):
        self.put(store, 0, age_seconds=2000)
        left = [self.put(store, n, age_seconds=100) for n in (1, 2)]
        size = store.files(PREFIX)[0].size
        assert self.limit(store, 2 * size).enforce() == RemovedLetters(expired=1)
        assert self.left(store) == left

    def test_a_damaged_segment_counts_and_goes_with_its_letter(self, store):
        segment = Segment("logs/20260101T000000Z-0123456789ab", 3, 4, "path")
        set_segment_aside(store, segment, bytes(5000), "damaged")
        limit = self.limit(store, 4000, clock=time.time)
        assert limit.enforce() == RemovedLetters(over_limit=1)
        assert store.files(PREFIX) == []

    def test_they_are_listed_when_some_were_added_or_now_and_then(self, store, monkeypatch):
        now = [self.NOW]
        limit = self.limit(store, clock=lambda: now[0])
        looks = []
        files = store.files
        monkeypatch.setattr(store, "files", lambda prefix: looks.append(prefix) or files(prefix))
        limit.enforce_when_due(added=False)
        assert len(looks) == 1
        limit.enforce_when_due(added=False)
        assert len(looks) == 1
        now[0] += LOOK_SECONDS / 2
        limit.enforce_when_due(added=True)
        assert len(looks) == 2
        now[0] += LOOK_SECONDS + 1
        limit.enforce_when_due(added=False)
        assert len(looks) == 3

    def test_a_store_that_does_not_answer_fails_nothing(self, store, monkeypatch, caplog):
        def fail(prefix):
            raise StorageError("no answer")

        monkeypatch.setattr(store, "files", fail)
        assert self.limit(store).enforce_when_due(added=True) == RemovedLetters()
        assert "no answer" in caplog.text
