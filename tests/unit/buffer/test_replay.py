"""A replay stores each record once: cut off, repeated, in doubt, or done by two at once."""

from __future__ import annotations

import json
import threading

import pytest
from obstore.store import MemoryStore

from neve.buffer import replay as replaying
from neve.buffer.dead_letters import (
    DeadRequest,
    list_dead_letters,
    read_dead_letter,
    read_dead_letters,
    set_aside,
    set_segment_aside,
)
from neve.buffer.reader import BufferReader, Segment
from neve.buffer.replay import PREFIX, RECORDS_PREFIX, replay
from neve.errors import ConflictError, CorruptionError, StorageError
from neve.signals import Signal
from tests.support.buffer_stores import DoubtfulStore, disk, memory, payloads
from tests.support.dead_letters import set_one_aside, stored
from tests.support.otlp_bodies import message
from tests.support.power_cut import power_cut
from tests.support.requests import buffered

POINTS = ["replay.intended", "replay.put", "replay.closed", "replay.removed"]


@pytest.fixture(params=["disk", "objects"])
def store(request, tmp_path):
    return (disk(tmp_path / "buffer") if request.param == "disk" else memory())()


def assert_clean(store):
    assert list_dead_letters(store) == []
    assert store.files(PREFIX) == []


def test_only_what_was_set_aside_is_stored_with_its_time_and_sender(store):
    dead = set_one_aside(store, "a", paths=(2, 0))
    done = replay(store)
    assert (done.requests, done.records, len(done.streams), done.skipped) == (1, 2, 1, ())
    assert stored(store) == ["a 0", "a 2"]
    assert_clean(store)
    reader = BufferReader(store, dedup_seconds=300)
    [status] = reader.streams()
    assert status.closed
    [batch] = reader.read(reader.segments(done.streams[0])[0])
    [request] = batch.to_pylist()
    assert (request["received_unix_nano"], request["sender_name"]) == (17, "shop")
    assert request["sender"] == dead.sender
    assert request["records"] == 2


def test_an_empty_path_is_the_whole_request(store):
    set_one_aside(store, "a", paths=())
    assert replay(store).records == 3
    assert stored(store) == ["a 0", "a 1", "a 2"]


@pytest.mark.parametrize(
    "odd",
    [
        b"[]",
        b"null",
        b"\xff",
        {"stream": "weird/x"},
        {"stream": 7},
        {"segment": "1"},
        {"segment": -1},
        {"position": 1.5},
        {"received_unix_nano": "now"},
        {"received_unix_nano": 2**63},
        {"sender": "ab"},
        {"sender_name": 7},
        {"reasons": [{"path": None, "reason": "why"}]},
        {"reasons": [{"path": "nope[7]", "reason": "why"}]},
        {"payload": "!"},
        {"codec": 7},
        {"reasons": "why"},
        {"reasons": ["why"]},
        b"{}",
    ],
    ids=str,
)
def test_an_odd_letter_costs_no_other_its_turn(odd):
    store = memory()()
    dead = set_one_aside(store, "a")
    document = odd
    if isinstance(odd, dict):
        document = json.dumps({**read_dead_letter(store, dead.path), **odd}).encode()
    path = dead.path.replace("000000.json", "000001.json")
    store.put_new(path, document)
    shown = list(read_dead_letters(store))
    assert [letter["file"] for letter in shown] == [dead.path, path]
    done = replay(store)
    assert (done.requests, [file for file, _ in done.skipped]) == (1, [path])
    assert stored(store) == ["a 1"]
    assert [file.path for file in list_dead_letters(store)] == [path]


@pytest.mark.parametrize("prefix", [PREFIX, RECORDS_PREFIX])
def test_a_damaged_note_of_a_replay_is_named(store, prefix):
    """What it was about may be stored already, so nothing is replayed."""
    set_one_aside(store, "a")
    store.put_new(f"{prefix}/logs-x.json", b"{}")
    with pytest.raises(CorruptionError, match=f"{prefix}/logs-x.json is damaged"):
        replay(store)
    assert stored(store) == []


def test_chosen_letters_only(store):
    first = set_one_aside(store, "a", position=0)
    second = set_one_aside(store, "b", position=1)
    done = replay(store, [second.path, second.path.replace("000001.json", "000009.json")])
    assert done.requests == 1
    assert done.skipped[0][1] == "there is no such file"
    assert stored(store) == ["b 1"]
    assert [file.path for file in list_dead_letters(store)] == [first.path]


def test_each_signal_has_a_stream_of_its_own_and_large_replays_several(store, monkeypatch):
    monkeypatch.setattr(replaying, "MAX_REPLAY_LETTERS", 2)
    for position in range(3):
        set_one_aside(store, f"log {position}", position=position)
    set_one_aside(store, "span", Signal.TRACES)
    done = replay(store)
    assert (done.requests, len(done.streams)) == (4, 3)
    assert len(stored(store)) == 3
    assert len(payloads(store, "traces")) == 1
    assert_clean(store)


def test_what_cannot_be_replayed_stays_and_is_told(store):
    set_segment_aside(store, Segment("logs/stream", 1, 4, "path"), b"data", "damaged")
    dead = set_one_aside(store, "a")
    broken = DeadRequest(dead.stream, 1, 7, 17, (("resource_logs[0]", "why"),), b"\xff\xff")
    set_aside(store, broken)
    done = replay(store)
    reasons = dict(done.skipped)
    assert "cannot read" in reasons[broken.path]
    assert len(reasons) == 2
    assert stored(store) == ["a 1"]
    assert len(list_dead_letters(store)) == 2


def test_a_segment_that_may_be_consolidated_again_is_not_replayed_yet(store):
    log = store.begin("logs")
    log.commit([buffered(message(Signal.LOGS, "a", 1).SerializeToString())])
    log.close()
    dead = DeadRequest(log.stream, 1, 0, 17, (("", "why"),), b"")
    set_aside(store, dead)
    [(file, reason)] = replay(store).skipped
    assert file == dead.path
    assert "being consolidated" in reason
    BufferReader(store, dedup_seconds=300).retire(log.stream, 1)
    assert replay(store).skipped == ()


@pytest.mark.parametrize("point", POINTS)
def test_a_replay_that_was_cut_off_is_finished_once(store, point):
    set_one_aside(store, "a")
    with power_cut(point):
        replay(store)
    done = replay(store)
    assert len(done.finished) == (0 if point == "replay.intended" else 1)
    assert stored(store) == ["a 1"]
    assert_clean(store)
    assert replay(store).requests == 0


@pytest.mark.parametrize("point", POINTS[1:])
def test_it_is_finished_once_also_when_it_was_consumed_meanwhile(store, point, monkeypatch):
    monkeypatch.setattr(replaying, "KEEP_SECONDS", 0.0)
    set_one_aside(store, "a")
    with power_cut(point):
        replay(store)
    reader = BufferReader(store, dedup_seconds=0)
    [stream] = reader.streams()
    assert stored(store) == ["a 1"]
    reader.retire(stream.stream, stream.segments)
    assert not reader.drop(stream.stream), "the next replay must be able to see what was put"
    assert replay(store).requests == 0
    assert stored(store) == []
    assert_clean(store)
    remaining = reader.segments(stream.stream)
    if remaining:
        reader.retire(stream.stream, remaining[-1].number)
    assert reader.drop(stream.stream)


def test_a_retired_replay_is_not_forgotten_at_once(store):
    set_one_aside(store, "a")
    [stream] = replay(store).streams
    reader = BufferReader(store, dedup_seconds=0)
    reader.retire(stream, 2)
    assert not reader.drop(stream)


def test_of_two_replays_at_once_at_most_one_stores(store, monkeypatch):
    set_one_aside(store, "a")
    # Both looked for interrupted replays before the other had begun.
    monkeypatch.setattr(replaying, "finish_interrupted", lambda _: ())
    put_new, put_requests = store.put_new, replaying._put_requests
    reached, go_on = threading.Event(), threading.Event()
    others = []

    def replay_beside():
        try:
            replay(store)
        except ConflictError as error:
            others.append(error)
        finally:
            reached.set()

    beside = threading.Thread(target=replay_beside)

    def put_and_let_the_other_begin(path, data):
        put = put_new(path, data)
        if path.startswith(PREFIX) and not beside.ident:
            beside.start()
            assert reached.wait(10)
        return put

    def put_requests_last(of_store, stream, requests):
        if threading.current_thread() is beside:
            reached.set()
            assert go_on.wait(10)
        put_requests(of_store, stream, requests)

    monkeypatch.setattr(store, "put_new", put_and_let_the_other_begin)
    monkeypatch.setattr(replaying, "_put_requests", put_requests_last)
    assert replay(store).requests == 1
    go_on.set()
    beside.join(10)
    assert stored(store) == ["a 1"]
    assert len(others) == 1
    assert_clean(store)


def test_a_replay_that_hung_while_another_withdrew_it_adds_nothing(store, monkeypatch):
    set_one_aside(store, "a")
    put_requests = replaying._put_requests

    def hang(of_store, stream, requests):
        monkeypatch.setattr(replaying, "_put_requests", put_requests)
        assert replay(of_store).requests == 1
        put_requests(of_store, stream, requests)

    monkeypatch.setattr(replaying, "_put_requests", hang)
    with pytest.raises(ConflictError, match="withdrawn"):
        replay(store)
    assert stored(store) == ["a 1"]


def test_it_adds_nothing_also_when_its_place_is_retired_already(store, monkeypatch):
    set_one_aside(store, "a")
    put_requests = replaying._put_requests

    def hang(of_store, stream, requests):
        monkeypatch.setattr(replaying, "_put_requests", put_requests)
        replaying.finish_interrupted(of_store)
        BufferReader(of_store, dedup_seconds=0).retire(stream, 1)
        put_requests(of_store, stream, requests)

    monkeypatch.setattr(replaying, "_put_requests", hang)
    with pytest.raises(ConflictError, match="withdrawn"):
        replay(store)
    assert len(list_dead_letters(store)) == 1
    assert stored(store) == []
    assert replay(store).requests == 1
    assert stored(store) == ["a 1"]


@pytest.mark.parametrize("point", [None, *POINTS[1:]])
def test_a_dead_letter_that_is_written_again_after_its_replay_is_not_replayed(store, point):
    # By a consolidation worker that hung, while another did its batch.
    dead = set_one_aside(store, "a")
    if point is None:
        replay(store)
    else:
        with power_cut(point):
            replay(store)
    set_aside(store, dead)
    assert replay(store).requests == 0
    set_aside(store, dead)
    assert replay(store).requests == 0
    assert stored(store) == ["a 1"]
    assert_clean(store)


def test_records_of_replays_are_not_kept_for_ever(store, monkeypatch):
    set_one_aside(store, "a")
    replay(store)
    assert len(store.files(RECORDS_PREFIX)) == 1
    replay(store)
    assert len(store.files(RECORDS_PREFIX)) == 1
    monkeypatch.setattr(replaying, "KEEP_RECORDS_SECONDS", -10.0)
    replay(store)
    assert store.files(RECORDS_PREFIX) == []


class Doubtful(DoubtfulStore):
    """Loses the put of the requests, or only the answer to it."""

    losing = ""

    def put_new(self, path, data):
        if "-replay-" in path and "000000000001" in path and self.losing:
            setattr(self, self.losing, 1)
            self.losing = ""
        return super().put_new(path, data)


@pytest.mark.parametrize("losing", ["lose_requests", "lose_responses"])
def test_a_put_in_doubt_is_stored_once(losing):
    store = Doubtful(MemoryStore())
    set_one_aside(store, "a")
    store.losing = losing
    with pytest.raises(StorageError):
        replay(store)
    replay(store)
    # The put that was thought lost arrives now: too late.
    assert not any(store.deliver())
    assert stored(store) == ["a 1"]
    assert_clean(store)
