"""A buffer knows which streams are its own, and which of them it dropped. On every store."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from neve import failpoints
from neve.buffer.dead_letters import DeadRequest, remove_dead_letters, set_aside
from neve.buffer.identity import ensure_identity, read_identity
from neve.buffer.layout import IDENTITY, buffer_id_of
from neve.buffer.reader import BufferReader, StreamState
from neve.errors import CorruptionError
from tests.support.buffer_stores import disk, memory, payloads
from tests.support.requests import buffered

OLD_STREAM = "logs/20260101T000000Z-0123456789ab"
FOREIGN_STREAM = "logs/0123456789abcdef-20260101T000000Z-0123456789ab"


@pytest.fixture(params=["disk", "objects"])
def open_store(request, tmp_path):
    return disk(tmp_path / "buffer") if request.param == "disk" else memory()


@pytest.fixture
def reader(open_store):
    """A consumer that keeps no hashes, so that a stream can be dropped at once."""
    return BufferReader(open_store(), dedup_seconds=-1)


def consumed_stream(open_store, reader) -> str:
    """Return a stream that has ended and whose segments are all retired."""
    log = open_store().begin("logs")
    log.commit([buffered(b"a")])
    log.close()
    reader.retire(log.stream, 2)
    return log.stream


def test_an_identity_is_made_once_by_whoever_is_first(open_store):
    assert read_identity(open_store()) is None
    with ThreadPoolExecutor(8) as pool:
        identities = set(pool.map(lambda _: ensure_identity(open_store()), range(8)))
    assert identities == {read_identity(open_store())}
    [identity] = identities
    assert len(identity) == 16
    assert int(identity, 16) >= 0


@pytest.mark.parametrize("content", [b"", b"0123456789abcde", b"0123456789ABCDEF", b"\xff" * 16])
def test_a_damaged_identity_is_reported_and_never_made_anew(open_store, reader, content):
    store = open_store()
    store.put_new(IDENTITY, content)
    uses = (
        lambda: read_identity(store),
        lambda: ensure_identity(store),
        lambda: store.begin("logs"),
        lambda: reader.buffer_id,
    )
    for use in uses:
        with pytest.raises(CorruptionError, match="identity is damaged"):
            use()
    assert store.read(IDENTITY) == content


def test_the_names_of_streams_carry_the_identity(open_store, reader):
    stream = open_store().begin("logs").stream
    assert buffer_id_of(stream) == reader.buffer_id
    assert reader.owns(stream)
    assert buffer_id_of(OLD_STREAM) is None
    assert buffer_id_of("logs/replay-20260101T000000Z-0123456789ab") is None
    assert buffer_id_of("logs/none") is None


def test_a_dropped_stream_leaves_a_note(open_store, reader):
    stream = consumed_stream(open_store, reader)
    missing = stream.replace("logs/", "logs/x")
    states = reader.stream_states([stream, missing, FOREIGN_STREAM])
    assert states == {
        stream: StreamState.PRESENT,
        missing: StreamState.MISSING,
        FOREIGN_STREAM: StreamState.MISSING,
    }
    assert reader.drop(stream)
    assert reader.streams() == []
    assert reader.stream_states([stream]) == {stream: StreamState.DROPPED}
    assert reader.dropped_streams("logs") == [stream]
    assert reader.dropped_streams("traces") == []
    reader.remove_drop_note(stream)
    reader.remove_drop_note(stream)
    assert reader.dropped_streams("logs") == []
    assert reader.stream_states([stream]) == {stream: StreamState.MISSING}
    assert reader.owns(stream)


def test_a_stream_of_the_old_naming_is_ours_while_it_is_here_or_noted(open_store, reader):
    store = open_store()
    store.put_new(f"{OLD_STREAM}/000000000001.segment", b"")
    assert reader.owns(OLD_STREAM)
    assert not reader.owns(OLD_STREAM.replace("ab", "cd"))
    assert not reader.owns(FOREIGN_STREAM)
    store.delete([f"{OLD_STREAM}/000000000001.segment"])
    assert not reader.owns(OLD_STREAM)
    store.put_new(f"dropped/{OLD_STREAM}", b"{}")
    assert reader.owns(OLD_STREAM)


def test_a_drop_that_is_cut_off_is_finished_by_the_next(open_store, reader):
    stream = consumed_stream(open_store, reader)
    with failpoints.armed("buffer.drop_noted"), pytest.raises(failpoints.PowerCut):
        reader.drop(stream)
    assert reader.stream_states([stream]) == {stream: StreamState.DROPPED}
    assert payloads(open_store()) == []
    reader.remove_drop_note(stream)
    assert reader.dropped_streams("logs") == [stream], "its files are still there"
    assert reader.drop(stream)
    assert reader.streams() == []
    reader.remove_drop_note(stream)
    assert reader.dropped_streams("logs") == []


def test_a_note_stays_while_there_are_dead_letters_of_the_stream(open_store, reader):
    store = open_store()
    stream = consumed_stream(open_store, reader)
    dead = DeadRequest(stream, 1, 0, 1, (("", "why"),), b"payload")
    set_aside(store, dead)
    reader.drop(stream)
    reader.remove_drop_note(stream)
    assert reader.dropped_streams("logs") == [stream]
    remove_dead_letters(store, [dead.path])
    reader.remove_drop_note(stream)
    assert reader.dropped_streams("logs") == []


def test_only_a_declaration_or_a_note_makes_a_segment_retired(open_store, reader):
    store = open_store()
    log = store.begin("logs")
    log.commit([buffered(b"a")])
    log.close()
    first, closing = reader.segments(log.stream)
    files = {file.path: store.read(file.path) for file in store.files(log.stream)}
    store.delete(list(files))
    assert not reader.is_retired(first)
    for path, data in files.items():
        store.put_new(path, data)
    reader.retire(log.stream, 1)
    assert reader.is_retired(first)
    assert not reader.is_retired(closing)
    reader.retire(log.stream, 2)
    assert reader.drop(log.stream)
    assert reader.is_retired(first)
    assert reader.is_retired(closing)
    # Of several workers, the others find that it was retired.
    reader.retire(log.stream, 2)
    assert not reader.drop(log.stream)
