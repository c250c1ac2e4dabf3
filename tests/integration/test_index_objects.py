"""An index in a bucket of a real server: range requests, the disk cache, damage noticed."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context

import numpy as np
import pytest
from pyiceberg.io import load_file_io

from neve.errors import CorruptionError
from neve.index.cache import BucketCache
from neve.index.compaction import add_delta, plan_compaction, write_entries
from neve.index.disk_cache import BYTES_PROPERTY, DIRECTORY_PROPERTY
from neve.index.entries import SequenceType, make_entries
from neve.index.files import list_files
from neve.index.hash_bucket import BLOCK_ROWS
from neve.index.maintain import unreferenced
from neve.index.remote_shards import KEY_BYTES
from neve.index.root import KeyColumn, Root, index_location, new_path, read_root, write_root
from neve.index.search import IndexReader, lookup
from neve.index.splitmix import splitmix64
from tests.support.indexed import compact
from tests.support.proxy import running_proxy
from tests.support.servers import REGION

COUNT = 50_000
KEYS = np.arange(COUNT)
MANY = np.arange(1_000_000)
# Of one integer as the key: its hash, sequence, file and position.
BLOCK_BYTES = 22 * BLOCK_ROWS


@pytest.fixture
def properties(s3):
    return {
        "s3.endpoint": s3.endpoint,
        "s3.access-key-id": s3.access_key,
        "s3.secret-access-key": s3.secret_key,
        "s3.region": REGION,
    }


@pytest.fixture
def location(s3, tmp_path):
    return index_location(f"s3://{s3.bucket}/{tmp_path.name}/ns/t", "uuid")


def entries(keys, file):
    return make_entries(splitmix64(keys), None, file, keys, keys)


@pytest.fixture
def root(properties, location):
    io = load_file_io(properties, location)
    shard = write_entries(io, location, entries(KEYS, 1), 1, bits=4)
    return Root(
        table_uuid="uuid",
        snapshot_id=1,
        key_columns=(KeyColumn("id", 1),),
        sequence_columns=("s",),
        sequence_type=SequenceType.INTEGER,
        has_second_hash=False,
        bits=4,
        files=("a", "b"),
        shards=(shard,),
    )


def test_keys_are_found(root, properties):
    cache = BucketCache()
    for _ in range(2):
        found = lookup(root.to_json(), properties, splitmix64(KEYS[::100]), cache=cache)
        assert found.position.tolist() == KEYS[::100].tolist()
    assert cache.hits > 0


@pytest.fixture
def large_root(root, properties, location):
    """An index with a base of a million keys and deltas that are too large to be read whole."""
    io = load_file_io(properties, location)
    root = replace(root, shards=(write_entries(io, location, entries(MANY, 1), 1),))
    for number in range(5):
        root = add_delta(io, root, location, entries(MANY[number::50], 0), number + 2)
    return root


@pytest.mark.parametrize("count", [1, 10, 110, 1100])
def test_few_bytes_and_requests_for_each_key(large_root, properties, s3, tmp_path, count):
    """Counted in front of the server: directories and what lies between blocks, too."""
    root, keys, answers = large_root, MANY[11 :: len(MANY) // count][:count], []

    def counting(request, forward):
        answer = forward(request)
        answers.append((request.method, len(answer.body)))
        return answer

    cached = {DIRECTORY_PROPERTY: str(tmp_path / "cache"), BYTES_PROPERTY: str(1 << 30)}
    with running_proxy(int(s3.endpoint.rpartition(":")[2]), [counting]) as proxy:
        near = properties | cached | {"s3.endpoint": proxy.uri}
        found = lookup(root.to_json(), near, splitmix64(keys), cache=BucketCache())
        assert found.position.tolist() == keys.tolist()
        requests = len(answers)
        # The disk has it all now, for any process.
        lookup(root.to_json(), near, splitmix64(keys), cache=BucketCache())
        assert len(answers) == requests
    assert {method for method, _ in answers} == {"GET"}
    # Of each generation its directory, and a block for each key until it has no more.
    directories = sum(shard.directory_length for shard in root.shards)
    blocks = sum(min(count * BLOCK_BYTES, shard.size) for shard in root.shards)
    size = sum(size for _, size in answers)
    assert size <= directories + max(blocks, count * KEY_BYTES)
    assert count < 100 or size <= 64 * 1024 * count
    assert len(answers) <= 2 * len(root.shards) + count * (1 if count > 100 else len(root.shards))


def test_processes_share_a_cache_that_is_too_small(root, properties, tmp_path):
    limit = root.size // 3
    cached = {DIRECTORY_PROPERTY: str(tmp_path / "cache"), BYTES_PROPERTY: str(limit)}
    work = partial(_look_up, root.to_json(), properties | cached)
    with ProcessPoolExecutor(3, get_context("spawn")) as pool:
        assert list(pool.map(work, range(6))) == [True] * 6
    files = (tmp_path / "cache").iterdir()
    assert sum(file.stat().st_blocks * 512 for file in files) <= limit


def _look_up(root_json, properties, number):
    """Look all keys up a few times, each time as a new process would."""
    for step in range(5):
        keys = KEYS[(number + step) % 7 :: 7]
        found = lookup(root_json, properties, splitmix64(keys), cache=BucketCache())
        if found.position.tolist() != keys.tolist():
            return False
    return True


def test_the_life_of_an_index(root, properties, location):
    io = load_file_io(properties, location)
    for number in range(4):
        root = add_delta(io, root, location, entries(KEYS[number::10_000], 0), number + 2)
    before = root
    root = compact(io, root, plan_compaction(root, force=True), location)
    path = new_path(location, "root")
    write_root(io, path, root)
    assert read_root(io, path) == root
    found = IndexReader(root, io, BucketCache()).search_values(splitmix64(KEYS))
    assert np.flatnonzero(found.file == 0).tolist() == [n for n in KEYS if n % 10_000 < 4]

    files = list_files(io, location)
    stale = unreferenced(files, {path: [one.path for one in root.shards]}, max(files.values()) + 1)
    assert set(stale) == {shard.path for shard in before.shards}
    for one in stale:
        io.delete(one)
    assert IndexReader(root, io, BucketCache()).search_values(splitmix64(KEYS)).has_entry.all()


def test_damage_is_noticed(root, properties, location):
    io = load_file_io(properties, location)
    path = root.shards[0].path
    with io.new_input(path).open() as stream:
        data = stream.read()
    middle = len(data) // 2
    for damaged in (data[:middle], data[:middle] + b"\xa5\x5a\xa5" + data[middle + 3 :]):
        with io.new_output(path).create(overwrite=True) as stream:
            stream.write(damaged)
        with pytest.raises(CorruptionError, match=path):
            lookup(root.to_json(), properties, splitmix64(KEYS), cache=BucketCache())
    io.delete(path)
    with pytest.raises(CorruptionError, match="missing"):
        lookup(root.to_json(), properties, splitmix64(KEYS), cache=BucketCache())
