"""An index in a bucket of a real server: range reads, one read for small shards, damage noticed."""

from __future__ import annotations

import numpy as np
import pytest
from pyiceberg.io import load_file_io

from neve.errors import CorruptionError
from neve.index.cache import BucketCache
from neve.index.compaction import add_delta, plan_compaction, write_entries
from neve.index.entries import SequenceType, make_entries
from neve.index.files import list_files
from neve.index.maintain import unreferenced
from neve.index.root import KeyColumn, Root, index_location, new_path, read_root, write_root
from neve.index.search import IndexReader, lookup
from neve.index.splitmix import splitmix64
from tests.support.indexed import compact
from tests.support.servers import REGION

COUNT = 50_000
KEYS = np.arange(COUNT)


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


@pytest.mark.parametrize("whole_bytes", [0, 1 << 30])
def test_keys_are_found(root, properties, monkeypatch, whole_bytes):
    monkeypatch.setattr("neve.index.search._WHOLE_SHARD_BYTES", whole_bytes)
    cache = BucketCache()
    for _ in range(2):
        found = lookup(root.to_json(), properties, splitmix64(KEYS[::100]), cache=cache)
        assert found.position.tolist() == KEYS[::100].tolist()
    assert cache.hits > 0
    assert cache.bytes >= 22 * COUNT


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


@pytest.mark.parametrize("whole_bytes", [0, 1 << 30])
def test_damage_is_noticed(root, properties, location, monkeypatch, whole_bytes):
    monkeypatch.setattr("neve.index.search._WHOLE_SHARD_BYTES", whole_bytes)
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
