"""One behaviour suite over every store."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest

from neve.buffer import listing as listing_module
from neve.buffer.frame import heads_only
from neve.buffer.reader import REQUESTS, BufferReader
from neve.buffer.retire import recent_keys
from neve.errors import NotFoundError, StorageError, UsageError
from tests.support.buffer_stores import disk, memory, payloads
from tests.support.requests import buffered


@pytest.fixture(params=["disk", "objects"])
def open_store(request, tmp_path):
    return disk(tmp_path / "buffer") if request.param == "disk" else memory()


@pytest.fixture
def reader(open_store):
    return BufferReader(open_store(), dedup_seconds=300)


def fill(log, *contents: bytes) -> None:
    """Put each content into a segment of its own."""
    for content in contents:
        log.commit([buffered(content)])
        log.seal()


def test_a_buffer_that_was_never_written_is_empty(reader):
    assert reader.streams() == []
    assert reader.segments("logs/none") == []
    assert reader.close_abandoned() == []


def test_requests_come_back_whole_and_in_order(open_store, reader):
    requests = [
        buffered(b"small", sender=b"s" * 16, sender_name="shop", received_unix_nano=17),
        buffered(b"large" * 1000),
        buffered(b""),
    ]
    log = open_store().begin("traces")
    log.commit(requests)
    log.seal()
    [segment] = reader.segments(log.stream)
    table = pa.Table.from_batches(reader.read(segment))
    assert table.schema == REQUESTS
    assert table.column("payload").to_pylist() == [b"small", b"large" * 1000, b""]
    assert table.column("position").to_pylist() == [0, 1, 2]
    assert set(table.column("signal").to_pylist()) == {"traces"}
    assert set(table.column("segment").to_pylist()) == {1}
    assert table.column("sender_name").to_pylist() == ["shop", None, None]
    first = table.slice(0, 1).to_pylist()[0]
    assert (first["received_unix_nano"], first["sender"], first["records"]) == (17, b"s" * 16, 1)
    assert first["content_hash"] == requests[0].content_hash


def test_large_segments_come_in_several_batches(open_store, reader, monkeypatch):
    monkeypatch.setattr("neve.buffer.request_batches.BATCH_BYTES", 1000)
    log = open_store().begin("logs")
    log.commit([buffered(b"%d" % n * 400) for n in range(9)])
    log.seal()
    [segment] = reader.segments(log.stream)
    assert [batch.num_rows for batch in reader.read(segment)] == [3, 3, 3]


def test_segments_are_listed_after_a_number(open_store, reader):
    log = open_store().begin("logs")
    fill(log, b"a", b"b", b"c")
    assert [s.number for s in reader.segments(log.stream)] == [1, 2, 3]
    assert [s.number for s in reader.segments(log.stream, after=2)] == [3]
    assert reader.segments(log.stream, after=3) == []


def test_a_gap_is_waited_for(open_store, reader):
    store = open_store()
    log = store.begin("logs")
    fill(log, b"a", b"b", b"c")
    [second] = [f for f in store.files(log.stream) if "000000000002" in f.path]
    held = store.read(second.path)
    store.delete([second.path])
    assert [s.number for s in reader.segments(log.stream)] == [1]
    assert reader.segments(log.stream, after=1) == []
    assert reader.streams()[0].missing == 2
    store.put_new(second.path, held)
    assert [s.number for s in reader.segments(log.stream)] == [1, 2, 3]
    assert reader.streams()[0].missing is None


def test_the_first_segment_missing_is_a_gap_not_a_retirement(open_store, reader):
    store = open_store()
    log = store.begin("logs")
    fill(log, b"a", b"b")
    store.delete([f.path for f in store.files(log.stream) if "000000000001" in f.path])
    assert reader.segments(log.stream) == []
    assert reader.streams()[0].missing == 1


def test_streams_of_two_receivers_never_mix(open_store, reader):
    logs = [open_store().begin("logs") for _ in range(2)]
    assert logs[0].stream != logs[1].stream
    fill(logs[0], b"a")
    fill(logs[1], b"b")
    assert sorted(payloads(open_store())) == [b"a", b"b"]


def test_a_closed_stream_says_so_and_ends(open_store, reader):
    log = open_store().begin("logs")
    log.commit([buffered(b"a")])
    log.close()
    [stream] = reader.streams()
    assert (stream.closed, stream.segments) == (True, 2)
    assert payloads(open_store()) == [b"a"]
    assert reader.close_abandoned() == []


def test_a_stream_whose_receiver_is_gone_is_closed_once(open_store, reader):
    log = open_store().begin("logs")
    fill(log, b"a")
    log.commit([buffered(b"b")])
    log.abandon()
    assert reader.close_abandoned() == [log.stream]
    assert reader.close_abandoned() == []
    assert payloads(open_store()) == [b"a", b"b"]
    assert reader.streams()[0].closed


def test_retiring_removes_and_is_remembered(open_store, reader):
    log = open_store().begin("logs")
    fill(log, b"a", b"b", b"c")
    reader.retire(log.stream, 2)
    reader.retire(log.stream, 2)
    reader.retire(log.stream, 1)
    assert [s.number for s in reader.segments(log.stream)] == [3]
    [stream] = reader.streams()
    assert (stream.retired_through, stream.segments, stream.missing) == (2, 1, None)
    [segment] = reader.segments(log.stream)
    reader.retire(log.stream, 3)
    with pytest.raises(NotFoundError):
        list(reader.read(segment))


def test_numbers_go_on_after_everything_was_retired(open_store, reader):
    log = open_store().begin("logs")
    fill(log, b"a", b"b")
    reader.retire(log.stream, 2)
    fill(log, b"c")
    assert [s.number for s in reader.segments(log.stream, after=2)] == [3]


def test_a_restart_after_everything_was_retired_reuses_no_number(open_store, reader):
    log = open_store().begin("logs")
    fill(log, b"a", b"b")
    reader.retire(log.stream, 2)
    log.abandon()
    assert reader.close_abandoned() == [log.stream]
    again = open_store().begin("logs")
    fill(again, b"c")
    assert again.stream != log.stream
    # The closing segment of the old stream has the number after the last retired.
    assert [s.number for s in reader.segments(log.stream, after=2)] == [3]
    assert payloads(open_store()) == [b"c"]


def test_only_what_was_there_can_be_retired(open_store, reader):
    log = open_store().begin("logs")
    fill(log, b"a")
    with pytest.raises(UsageError):
        reader.retire(log.stream, 2)
    with pytest.raises(StorageError, match="logs/none is not in the buffer"):
        reader.retire("logs/none", 1)


def known(store, since_unix_nano=0):
    return set(recent_keys(store, "logs", since_unix_nano))


def test_hashes_outlive_their_segments(open_store, reader):
    log = open_store().begin("logs")
    now = time.time_ns()
    old = buffered(b"old", received_unix_nano=now - 400 * 10**9)
    log.commit([old])
    log.seal()
    young = [buffered(b"%d" % n, received_unix_nano=now + n) for n in range(3)]
    for request in young:
        log.commit([request])
        log.seal()
    reader.retire(log.stream, 2)
    reader.retire(log.stream, 4)
    since = now - 300 * 10**9
    assert known(open_store(), since) == {(now + n, young[n].key) for n in range(3)}
    assert list(recent_keys(open_store(), "traces", since)) == []
    assert known(open_store(), now + 2) == {(now + 2, young[2].key)}


def test_hashes_of_many_batches_are_kept_in_few_files_and_copied_few_times(open_store, reader):
    """Each batch copied the hashes of the whole window before."""
    store, batches = open_store(), 64
    log = store.begin("logs")
    written = []
    put_new = reader._store.put_new
    reader._store.put_new = lambda path, data: written.append(len(data)) or put_new(path, data)
    for number in range(1, batches + 1):
        fill(log, b"%d" % number)
        reader.retire(log.stream, number)
        assert len(store.files(log.stream)) <= 10
    assert len(known(store)) == batches
    assert reader.streams()[0].retired_through == batches
    # Each hash is copied at most once for each doubling; copying all each time takes 160 kB.
    assert sum(written) < 120 * batches * 7


def test_declarations_past_the_window_go_but_for_the_highest(open_store):
    log = open_store().begin("logs")
    fill(log, b"a", b"b", b"c")
    reader = BufferReader(open_store(), dedup_seconds=300)
    late = BufferReader(open_store(), dedup_seconds=-1)
    log.commit([buffered(b"%d" % n) for n in range(100)])
    log.seal()
    reader.retire(log.stream, 4)
    fill(log, b"d")
    reader.retire(log.stream, 5)
    assert len(known(open_store())) == 104
    late.retire(log.stream, 5)
    [stream] = late.streams()
    assert (stream.retired_through, stream.segments) == (5, 0)
    assert {key for _, key in known(open_store())} == {buffered(b"d").key}


def test_of_two_declarations_of_a_number_the_second_removes_no_hashes(open_store, reader):
    """It cannot know which hashes the first has taken over."""
    store = open_store()
    log = store.begin("logs")
    fill(log, b"a", b"b")
    reader.retire(log.stream, 1)
    [segment] = reader.segments(log.stream)
    keys = known(store)
    other = heads_only(list(reader.entries(segment)), closing=False)
    put_new = reader._store.put_new

    def put_second(path, data):
        store.put_new(path, other)
        return put_new(path, data)

    reader._store.put_new = put_second
    reader.retire(log.stream, 2)
    assert known(store) == keys
    assert len(keys) == 2


def test_a_part_is_read_once_while_it_is_listed(open_store, reader):
    log = open_store().begin("logs")
    fill(log, b"a", b"b")
    reader.retire(log.stream, 1)
    opened = []
    open_file = reader._store.open_file
    reader._store.open_file = lambda path: opened.append(path) or open_file(path)
    for _ in range(3):
        known = reader.known_requests("logs")
    assert [(part.number, part.is_retired) for part in known] == [(1, True), (2, False)]
    # The declaration was put by this very process.
    assert opened == [reader.segments(log.stream)[0].path]
    opened.clear()
    other = BufferReader(reader._store, dedup_seconds=300)
    for _ in range(3):
        other.known_requests("logs")
    assert len(opened) == 2
    reader.retire(log.stream, 2)
    # The file of two hashes that took the place of both is another one.
    [part] = reader.known_requests("logs")
    assert len(part.index.hashes) == 2


def test_a_stream_is_described_anew_when_its_listing_changes(open_store, reader, monkeypatch):
    log, other = open_store().begin("logs"), open_store().begin("logs")
    fill(log, b"a", b"b")
    fill(other, b"c")
    described = []
    status = listing_module._status

    def counting(stream, *others):
        described.append(stream.name)
        return status(stream, *others)

    monkeypatch.setattr(listing_module, "_status", counting)
    listing, streams = reader.look("logs")
    assert sorted(described) == sorted([log.stream, other.stream])
    assert reader.describe(listing) == streams
    assert len(described) == 2
    described.clear()
    reader.retire(log.stream, 1, listing)
    counts = {stream.stream: stream.segments for stream in reader.describe(listing)}
    assert counts == {log.stream: 1, other.stream: 1}
    assert described == [log.stream]
    fill(log, b"d")
    assert {s.stream: s.segments for s in reader.look("logs")[1]} == {
        log.stream: 2,
        other.stream: 1,
    }


def test_a_stream_is_dropped_when_closed_retired_and_past_its_window(open_store, reader):
    log = open_store().begin("logs")
    fill(log, b"a")
    assert not reader.drop(log.stream)
    log.close()
    reader.retire(log.stream, 1)
    assert not reader.drop(log.stream)
    reader.retire(log.stream, 2)
    assert reader.streams()[0].closed
    assert not reader.drop(log.stream), "its hashes are still needed"
    later = BufferReader(open_store(), dedup_seconds=-1)
    assert later.drop(log.stream)
    assert reader.streams() == []


def test_status_tells_what_waits(open_store, reader):
    log = open_store().begin("metrics")
    log.commit([buffered(b"a", received_unix_nano=5)])
    log.seal()
    log.commit([buffered(b"b", received_unix_nano=6)])
    log.seal()
    [stream] = reader.streams()
    assert (stream.signal, stream.segments, stream.closed) == ("metrics", 2, False)
    assert stream.oldest_received_unix_nano == 5
    assert stream.bytes > 0
    reader.retire(stream.stream, 1)
    assert reader.streams()[0].oldest_received_unix_nano == 6


def test_a_file_is_put_whole_and_once(open_store):
    store = open_store()
    log = store.begin("logs")
    path = f"{log.stream}/000000000009.retired"
    assert store.put_new(path, b"first")
    assert not store.put_new(path, b"second")
    assert store.read(path) == b"first"
    assert store.read(path, 1, 2) == b"ir"
    store.delete([path])
    store.delete([path])
    store.delete([])
    with pytest.raises(NotFoundError):
        store.read(path)
