"""What identifies requests is read once, as little of it as is needed, and many parts at once."""

import os
import threading
import time

import numpy as np
import pytest
from obstore.store import MemoryStore

from neve.buffer.frame import ENTRY_BYTES, Entry, heads_only
from neve.buffer.layout import Kind, parse_part, part_path
from neve.buffer.objects import ObjectStore
from neve.buffer.part_index import BLOCK_ENTRIES, PartIndexes
from neve.buffer.reader import BufferReader
from neve.errors import NotFoundError
from tests.support.requests import buffered

STREAM = "logs/0123456789abcdef-20260101T000000Z-0123456789a{}"
ONE_STREAM = STREAM.format(0)


class CountingStore(ObjectStore):
    """Counts what is read of each object."""

    def __init__(self):
        super().__init__(MemoryStore())
        self.bytes_read = {}

    def read(self, path, start=0, length=None):
        data = super().read(path, start, length)
        self.bytes_read[path] = self.bytes_read.get(path, 0) + len(data)
        return data


@pytest.fixture
def store():
    return CountingStore()


def put_declaration(store, requests, stream=ONE_STREAM, number=7):
    """Put a declaration of so many requests and return it as a part, with its entries."""
    now = time.time_ns()
    entries = [Entry(now + at, b"s" * 16, os.urandom(32), 0, 0, 1, 1, 0) for at in range(requests)]
    store.put_new(part_path(stream, number, Kind.RETIRED), heads_only(entries, closing=False))
    [file] = store.files(stream)
    return parse_part(file), entries


def hash_of(entry):
    return int.from_bytes(entry.content_hash[:8], "little")


def find(hashes, wanted):
    positions = hashes.positions_of(np.unique(np.array([hash_of(one) for one in wanted], "<u8")))
    return hashes.entries(positions)


def test_a_search_finds_entries_as_they_are_and_reads_those_it_finds_alone(store):
    part, entries = put_declaration(store, 5 * BLOCK_ENTRIES)
    indexes = PartIndexes(store)
    [hashes] = indexes.hashes([part])
    store.bytes_read.clear()
    assert find(hashes, [entries[17]._replace(content_hash=bytes(32))]) == []
    assert store.bytes_read == {}
    wanted = [entries[0], entries[17], entries[4 * BLOCK_ENTRIES + 1]]
    assert find(hashes, wanted) == wanted
    assert store.bytes_read == {part.file.path: 19 * ENTRY_BYTES}
    assert find(hashes, entries) == entries


def test_of_more_hashes_than_are_kept_those_beyond_are_read_again_and_no_others(store):
    """All were read again for each batch, once the window had more than fits."""
    parts = [put_declaration(store, 100, STREAM.format(n))[0] for n in range(5)]
    indexes = PartIndexes(store, most_hash_bytes=4 * 100 * 12)
    indexes.hashes(parts)
    beyond = set()
    for _ in range(3):
        store.bytes_read.clear()
        assert [len(one.hashes) for one in indexes.hashes(parts)] == [100] * 5
        assert len(store.bytes_read) == 1
        beyond.update(store.bytes_read)
    assert len(beyond) == 1
    indexes.keep_only("logs", [part.file for part in parts[1:]])
    indexes.hashes(parts[1:])
    store.bytes_read.clear()
    indexes.hashes(parts[1:])
    indexes.is_closing(parts[1])
    assert store.bytes_read == {}


def test_what_was_read_is_kept_when_another_part_is_gone(store):
    parts = [put_declaration(store, 10, STREAM.format(n))[0] for n in range(3)]
    store.delete([parts[0].file.path])
    indexes = PartIndexes(store)
    for part in (parts, parts[:1]):
        with pytest.raises(NotFoundError):
            indexes.hashes(part)
    store.bytes_read.clear()
    indexes.hashes(parts[1:])
    assert store.bytes_read == {}


def test_a_look_reads_the_last_parts_of_all_streams_at_the_same_time(store, monkeypatch):
    """They were read one after the other, 30 ms each on an object store."""
    parts = [put_declaration(store, 10, STREAM.format(n))[0] for n in range(8)]
    together = threading.Barrier(len(parts))
    open_file = store.open_file

    def opened(path):
        together.wait(10)
        return open_file(path)

    monkeypatch.setattr(store, "open_file", opened)
    reader = BufferReader(store, dedup_seconds=300)
    assert [one.retired_through for one in reader.streams("logs")] == [7] * len(parts)
    monkeypatch.undo()
    store.bytes_read.clear()
    reader.streams("logs")
    reader.known_requests("logs")
    assert store.bytes_read == {}


def test_segments_behind_a_batch_are_not_read_for_it(store):
    """A backlog was read whole for each batch of it."""
    log = store.begin("logs")
    for number in range(9):
        log.commit([buffered(b"%d" % number)])
    reader = BufferReader(store, dedup_seconds=300)
    listing, _ = reader.look("logs")
    store.bytes_read.clear()
    known = reader.known_requests("logs", listing, {log.stream: 3, "logs/other": 9})
    assert [part.number for part in known] == [1, 2, 3]
    assert len(store.bytes_read) == 2, "the first was read to say since when it waits"


def test_what_was_declared_is_read_back_by_others_as_it_was(store):
    """The declarer packs entries without unpacking them."""
    log = store.begin("logs")
    requests = [
        buffered(b"%d" % n, sender_name="shop", received_unix_nano=time.time_ns() - n * 10**11)
        for n in range(5)
    ]
    log.commit(requests)
    reader = BufferReader(store, dedup_seconds=250)
    reader.retire(log.stream, 1)
    [file] = store.files(log.stream)
    [index] = PartIndexes(store).load([parse_part(file)])
    assert file.size == len(heads_only(index.entries([0, 1, 2]), closing=False))
    assert [(e.key, e.sender_name_index, e.stored_bytes) for e in index.entries([0, 1, 2])] == [
        (request.key, 0, 0) for request in requests[:3]
    ]
