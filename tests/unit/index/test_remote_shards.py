"""Shards in an object store: what is read of them, and what stays on this machine's disk."""

import errno
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from neve.errors import CorruptionError, NotFoundError
from neve.index.cache import BucketCache
from neve.index.compaction import add_delta, write_entries
from neve.index.disk_cache import BYTES_PROPERTY, DIRECTORY_PROPERTY, DiskCache
from neve.index.entries import SequenceType
from neve.index.remote_shards import KEY_BYTES, coalesced
from neve.index.search import IndexReader
from neve.index.splitmix import splitmix64
from tests.support.indexed import as_lists
from tests.unit.index.conftest import Workshop

ROWS = 200_000
STORE = "s3://bucket"
LIMIT = 64 * 1024 * 1024


class Store:
    """An object store that is this machine's disk, and counts what is read of it."""

    def __init__(self):
        self.ranges = []

    def read_ranges(self, properties, ranges):
        for wanted in ranges:
            path = Path(wanted.path.removeprefix(STORE))
            if not path.exists():
                raise NotFoundError(f"{wanted.path} does not exist")
            self.ranges.append(wanted)
            yield wanted, path.read_bytes()[wanted.offset : wanted.offset + wanted.length]

    @property
    def bytes(self):
        return sum(part.length for part in self.ranges)


@pytest.fixture
def store(monkeypatch):
    store = Store()
    monkeypatch.setattr("neve.index.remote_shards.read_ranges", store.read_ranges)
    return store


@pytest.fixture
def keys():
    return np.sort(splitmix64(np.arange(ROWS)))


@pytest.fixture(
    params=[(SequenceType.INTEGER, False), (SequenceType.BINARY, True)], ids=["integer", "text"]
)
def root(tmp_path, request, keys):
    workshop = Workshop(str(tmp_path / "t__index"), *request.param)
    numbers = np.arange(ROWS)
    base = write_entries(
        workshop.io, workshop.location, workshop.entries(keys, numbers % 7, numbers, numbers), 1
    )
    root = replace(workshop.root, shards=(base,), bits=base.bits)
    for number in range(3):
        changed = keys[number::5000]
        delta = workshop.entries(changed, 8, 10_000, np.full(len(changed), ROWS + number))
        root = add_delta(workshop.io, root, workshop.location, delta, number + 2)
    shards = tuple(replace(shard, path=STORE + shard.path) for shard in root.shards)
    return replace(root, shards=shards)


@pytest.fixture
def cached(tmp_path):
    return {DIRECTORY_PROPERTY: str(tmp_path / "cache"), BYTES_PROPERTY: str(LIMIT)}


def search(root, keys, properties, cache=None):
    second = keys ^ np.uint64(0xFFFF) if root.has_second_hash else None
    reader = IndexReader(root, properties, cache or BucketCache())
    return reader.search_values(keys, second)


def local(root):
    shards = (replace(shard, path=shard.path.removeprefix(STORE)) for shard in root.shards)
    return replace(root, shards=tuple(shards))


def test_few_bytes_for_each_key(root, keys, store):
    some = np.concatenate([keys[:: ROWS // 20], splitmix64(np.arange(ROWS, ROWS + 10))])
    found = search(root, some, {})
    assert as_lists(found) == as_lists(search(local(root), some, {}))
    assert store.bytes <= 64 * 1024 * len(some) < root.size / 2
    assert len(store.ranges) <= 2 * len(some) + 3 * len(root.shards)


def test_requests_are_known_before_they_are_made(root, keys, store, cached):
    some = keys[:: ROWS // 20]
    cache = BucketCache()
    count = IndexReader(root, cached, cache).requests(some)
    # The directories are read for it, once, and nothing else.
    assert store.bytes <= sum(max(shard.directory_length, 128 * 1024) for shard in root.shards)
    known = len(store.ranges)
    assert known <= len(root.shards)
    search(root, some, cached, cache)
    assert len(store.ranges) - known == count > 0
    assert IndexReader(root, cached, cache).requests(some) == 0
    # Another process finds them on the disk.
    assert IndexReader(root, cached, BucketCache()).requests(some) == 0
    assert IndexReader(local(root), {}, BucketCache()).requests(some) == 0


def test_what_lies_between_is_read_with_it_within_the_limit(root, keys, store):
    search(root, keys[::50], {})
    directories = sum(shard.directory_length for shard in root.shards)
    assert store.bytes <= sum(shard.size for shard in root.shards) + directories
    assert len(store.ranges) < 30


def test_the_disk_keeps_what_was_read(root, keys, store, cached):
    truth = as_lists(search(local(root), keys[::100], {}))
    assert as_lists(search(root, keys[::100], cached)) == truth
    read = len(store.ranges)
    assert read
    # Another process: nothing but the files is shared.
    assert as_lists(search(root, keys[::100], cached)) == truth
    assert len(store.ranges) == read
    files = list(Path(cached[DIRECTORY_PROPERTY]).iterdir())
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert Path(cached[DIRECTORY_PROPERTY]).stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("same_process", [False, True])
def test_a_damaged_cache_is_noticed_and_read_anew(root, keys, store, cached, same_process):
    memory = BucketCache()
    truth = as_lists(search(root, keys[::100], cached, memory))
    read = store.bytes
    for file in Path(cached[DIRECTORY_PROPERTY]).iterdir():
        data = bytearray(file.read_bytes())
        middle = slice(len(data) // 3, len(data) // 3 + 90_000)
        data[middle] = bytes(byte ^ 0x5A for byte in data[middle])
        with file.open("r+b") as stream:
            stream.write(data)
    again = search(root, keys[::100], cached, memory if same_process else None)
    assert as_lists(again) == truth
    assert store.bytes > read


def test_a_file_that_was_cut_short_is_replaced(root, keys, store, cached):
    truth = as_lists(search(root, keys[::100], cached))
    for file in Path(cached[DIRECTORY_PROPERTY]).iterdir():
        os.truncate(file, 100)
    assert as_lists(search(root, keys[::100], cached)) == truth


def test_the_cache_keeps_its_limit(root, keys, store, cached):
    limit = root.shards[0].size // 2
    small = {**cached, BYTES_PROPERTY: str(limit)}
    truth = as_lists(search(local(root), keys, {}))
    for _ in range(2):
        assert as_lists(search(root, keys, small)) == truth
    files = Path(cached[DIRECTORY_PROPERTY]).iterdir()
    assert sum(file.stat().st_blocks * 512 for file in files) <= limit


def test_the_least_recently_used_file_is_removed_first(tmp_path):
    cache = DiskCache(tmp_path / "cache", 250_000)
    for name in ("a", "b", "a", "c"):
        file = cache.open(name, 100_000)
        file.has_changed()
        file.write(0, b"x" * 100_000)
    cache.evict()
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == ["a", "c"]


def test_without_a_disk_it_works_in_memory(root, keys, store, tmp_path):
    (tmp_path / "taken").write_text("")
    for directory in (tmp_path / "taken", tmp_path / "taken" / "below"):
        properties = {DIRECTORY_PROPERTY: str(directory), BYTES_PROPERTY: str(LIMIT)}
        found = search(root, keys[::100], properties)
        assert as_lists(found) == as_lists(search(local(root), keys[::100], {}))


def test_a_full_disk_is_survived(root, keys, store, cached, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("neve.index.disk_cache.os.pwrite", full)
    found = search(root, keys[::100], cached)
    assert as_lists(found) == as_lists(search(local(root), keys[::100], {}))


def test_memory_is_limited(root, keys, store):
    memory = BucketCache(limit_bytes=root.shards[0].size // 2)
    for _ in range(2):
        assert search(root, keys, {}, memory).has_entry.all()
    assert memory.bytes <= memory.limit_bytes


@pytest.mark.parametrize("size", [0, 1000, 1_000_000])
def test_a_shard_that_was_cut_short_is_noticed(root, keys, store, size):
    path = root.shards[0].path.removeprefix(STORE)
    Path(path).write_bytes(Path(path).read_bytes()[:size])
    with pytest.raises(CorruptionError, match=path):
        search(root, keys[::100], {})


def test_a_damaged_shard_is_noticed(root, keys, store, cached):
    path = Path(root.shards[0].path.removeprefix(STORE))
    data = bytearray(path.read_bytes())
    data[100_000] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptionError, match=str(path)):
        search(root, keys, cached)
    path.unlink()
    with pytest.raises(CorruptionError, match="missing"):
        search(root, keys, {})


def test_what_is_written_to_a_store_is_kept_here(workshop, cached, tmp_path):
    """The machine that writes a shard mostly looks keys up in it next."""
    cache = DiskCache.of(cached)
    assert cache is not None
    with (tmp_path / "shard").open("wb") as stream, cache.copying("name", stream) as both:
        both.write(b"abc")
        both.write(memoryview(b"def"))
    assert (cache.directory / "name").read_bytes() == b"abcdef"
    assert (tmp_path / "shard").read_bytes() == b"abcdef"
    assert len(list(cache.directory.iterdir())) == 1


def test_a_write_that_fails_leaves_no_copy(cached):
    cache = DiskCache.of(cached)
    with pytest.raises(OSError, match="no store"), cache.copying("name", None):
        raise OSError("no store")
    assert list(cache.directory.iterdir()) == []


def test_ranges_are_joined_the_nearest_first(root):
    shard, other = root.shards[:2]
    wanted = [(shard, 0, 10), (shard, 10, 10), (shard, 50, 10), (shard, 70, 10), (other, 90, 10)]
    assert coalesced(wanted, 0) == [
        *sorted([(shard, 0, 20), (shard, 50, 10), (shard, 70, 10), (other, 90, 10)], key=_place)
    ]
    assert coalesced(wanted, 60) == [
        *sorted([(shard, 0, 20), (shard, 50, 30), (other, 90, 10)], key=_place)
    ]
    assert coalesced(wanted, KEY_BYTES) == [*sorted([(shard, 0, 80), (other, 90, 10)], key=_place)]
    assert coalesced([], 10) == []


def _place(part):
    return part[0].path, part[1]
