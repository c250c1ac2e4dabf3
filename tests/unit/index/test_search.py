"""An index on disk: entries come back, the newest wins, collisions stay apart, damage shows."""

import json
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError
from pyiceberg.table.statistics import BlobMetadata

from neve.errors import CorruptionError, UsageError
from neve.index.cache import BucketCache
from neve.index.compaction import add_delta, write_entries
from neve.index.entries import ABSENT, TOMBSTONE
from neve.index.hash_bucket import BLOCK_ROWS
from neve.index.root import ROOT_BLOB, Root, index_location, new_path, read_root, write_root
from neve.index.search import lookup
from neve.index.shard import BUCKET_BLOB, bits_for, bucket_of, split_buckets
from neve.lake.puffin import read_footer
from tests.support.indexed import as_lists
from tests.unit.index.conftest import Workshop, sequences

COUNT = 5 * BLOCK_ROWS + 17


@pytest.fixture
def keys():
    rng = np.random.default_rng(7)
    return np.unique(rng.integers(0, 2**64, COUNT, dtype=np.uint64))


def numbered(workshop, keys, file=None):
    number = np.arange(len(keys))
    return workshop.entries(keys, number % 50 if file is None else file, number, number * 1000)


def based(workshop, keys, bits=None):
    shard = write_entries(workshop.io, workshop.location, numbered(workshop, keys), 1, bits)
    return workshop.root.with_shards([shard])


@pytest.mark.parametrize("bits", [0, 3, 8])
def test_every_entry_is_found(workshop_of_any_kind, keys, bits):
    workshop = workshop_of_any_kind
    root = based(workshop, keys, bits)
    order = np.random.default_rng(1).permutation(len(keys))
    found = workshop.search(root, keys[order])
    assert found.has_entry.all()
    assert found.file.tolist() == (order % 50).tolist()
    assert found.position.tolist() == order.tolist()
    expected = sequences(order * 1000, workshop.sequence_type)
    assert found.sequence.to_pylist() == expected.to_pylist()


def test_what_is_not_there_is_not_found(workshop_of_any_kind, keys):
    root = based(workshop_of_any_kind, keys, 2)
    ends = np.array([0, 2**64 - 1], np.uint64)
    absent = np.setdiff1d(np.concatenate([keys + np.uint64(1), ends]), keys)
    found = workshop_of_any_kind.search(root, absent)
    assert not found.has_entry.any()
    assert set(found.file.tolist()) == {ABSENT}
    assert set(found.position.tolist()) == {-1}
    assert found.sequence.null_count == len(absent)


def test_an_index_without_shards_finds_nothing(workshop_of_any_kind):
    found = workshop_of_any_kind.search(workshop_of_any_kind.root, [1, 2])
    assert not found.has_entry.any()
    assert found.sequence.null_count == 2
    assert len(workshop_of_any_kind.search(workshop_of_any_kind.root, []).file) == 0


def test_the_newest_run_wins(workshop_of_any_kind, keys):
    workshop = workshop_of_any_kind
    root = based(workshop, keys)
    newer = workshop.entries(keys[:100], 7, np.arange(100), np.arange(100))
    root = add_delta(workshop.io, root, workshop.location, newer, 2)
    deleted = workshop.entries(keys[50:60], TOMBSTONE, -1, np.arange(10))
    root = add_delta(workshop.io, root, workshop.location, deleted, 3)
    forgotten = workshop.entries(keys[90:95], ABSENT, -1, np.arange(5))
    root = add_delta(workshop.io, root, workshop.location, forgotten, 4)
    assert root.snapshot_id == 4
    found = workshop.search(root, keys[:200])
    assert found.file[:50].tolist() == [7] * 50
    assert found.file[50:60].tolist() == [TOMBSTONE] * 10
    assert found.has_entry[50:60].all()
    first_sequence = sequences(np.arange(1), workshop.sequence_type)[0]
    assert found.sequence[50] == first_sequence.cast(found.sequence.type)
    assert not found.has_entry[90:95].any()
    assert found.position[100:].tolist() == list(range(100, 200))


def test_the_last_of_a_key_in_one_run_wins(workshop, keys):
    twice = workshop.entries([5, 9, 5], [1, 2, 3], [10, 20, 30], [1, 2, 3])
    root = add_delta(workshop.io, workshop.root, workshop.location, twice, 2)
    assert root.rows == 2
    assert workshop.search(root, [5]).position.tolist() == [30]


def test_collisions_keep_apart(tmp_path, sequence_type):
    """Thousands of keys of one first hash, over many blocks, and some of its neighbours."""
    workshop = Workshop(str(tmp_path), sequence_type, has_second_hash=True)
    count = 3 * BLOCK_ROWS
    first = np.full(count, 77, np.uint64)
    first[:10], first[-10:] = 76, 78
    second = np.random.default_rng(3).permutation(count).astype(np.uint64)
    entries = workshop.entries(first, 1, np.arange(count), np.arange(count), second)
    root = add_delta(workshop.io, workshop.root, workshop.location, entries, 2)
    assert root.rows == count
    found = workshop.search(root, first, second)
    assert found.has_entry.all()
    assert found.position.tolist() == list(range(count))
    absent = workshop.search(root, first, second + np.uint64(count))
    assert not absent.has_entry.any()
    # A newer entry hides its own key and none of those it collides with.
    one = workshop.entries(first[20:21], 2, 0, [9], second[20:21])
    found = workshop.search(add_delta(workshop.io, root, workshop.location, one, 3), first, second)
    assert np.flatnonzero(found.file == 2).tolist() == [20]


def test_runs_of_equal_hashes_over_a_fence(tmp_path):
    workshop = Workshop(str(tmp_path), has_second_hash=True)
    first = np.arange(2 * BLOCK_ROWS, dtype=np.uint64)
    first[BLOCK_ROWS - 3 : BLOCK_ROWS + 3] = 5_000_000
    second = np.arange(len(first), dtype=np.uint64)[::-1].copy()
    order = np.lexsort((second, first))
    entries = workshop.entries(first, 1, np.arange(len(first)), first, second).take(order)
    root = add_delta(workshop.io, workshop.root, workshop.location, entries, 2)
    assert workshop.search(root, first, second).position.tolist() == list(range(len(first)))


def test_entries_of_dead_files_are_gone(workshop, keys):
    root = based(workshop, keys).without_files(["f3", "unknown"])
    assert root.removed_files == {3}
    found = workshop.search(root, keys)
    assert np.flatnonzero(~found.has_entry).tolist() == list(range(3, len(keys), 50))
    entries = workshop.reader(root).read_bucket(0, 0)
    assert len(entries) == found.has_entry.sum()


def test_wide_ordinals_and_positions(workshop):
    files = [0, 65_533, 65_534, 65_535, 2**31 - 1, TOMBSTONE, ABSENT]
    positions = [0, 2**31 - 1, 2**31, 2**40, 5, -1, -1]
    for some in (slice(0, 2), slice(5, 7), slice(None)):
        keys = np.arange(7)[some]
        entries = workshop.entries(keys, files[some], positions[some], keys)
        root = add_delta(workshop.io, workshop.root, workshop.location, entries, 2)
        found = workshop.search(root, keys)
        assert found.file.tolist() == files[some]
        assert found.position[found.has_entry].tolist() == [
            position
            for position, file in zip(positions[some], files[some], strict=True)
            if file != ABSENT
        ]


def test_an_integer_key_takes_at_most_24_bytes(workshop):
    rng = np.random.default_rng(5)
    count = 100_000
    keys = np.unique(rng.integers(0, 2**64, count, dtype=np.uint64))
    entries = workshop.entries(
        keys,
        rng.integers(0, 5000, len(keys)),
        rng.integers(0, 2**31, len(keys)),
        rng.integers(-(2**63), 2**63 - 1, len(keys)),
    )
    shard = write_entries(workshop.io, workshop.location, entries, 1)
    assert shard.size / len(keys) <= 24


def test_a_bucket_is_what_its_description_says(workshop, keys):
    (shard,) = based(workshop, keys, 1).shards
    data = Path(shard.path).read_bytes()
    columns = [("first", "<u8"), ("file", "<u2"), ("position", "<i4"), ("sequence", "<i8")]
    block = np.dtype([(name, kind, (1024,)) for name, kind in columns])
    read = []
    for blob in read_footer(pa.BufferReader(data), len(data), "x").blobs:
        if blob.type == BUCKET_BLOB:
            blocks = np.frombuffer(data, block, blob.length // block.itemsize, blob.offset)
            rows = int(blob.properties["rows"])
            read.append([blocks[name].ravel()[:rows] for name, _ in columns])
    first, _, position, _ = (np.concatenate(parts) for parts in zip(*read, strict=True))
    assert first.tolist() == keys.tolist()
    assert position.tolist() == list(range(len(keys)))


def test_tasks_need_only_what_can_be_pickled(workshop, keys):
    root = based(workshop, keys)
    root_json, properties, some = pickle.loads(pickle.dumps((root.to_json(), {}, keys[5:9])))
    assert json.loads(root_json)["files"] == []
    found = lookup(root_json, properties, some)
    assert found.position.tolist() == [5, 6, 7, 8]


def test_hashes_of_the_other_kind_are_refused(workshop, keys):
    with pytest.raises(UsageError, match="kind"):
        workshop.search(workshop.root, keys, keys)


@pytest.mark.parametrize("rows", [0, 1, 1 << 18, (1 << 18) + 1, 10_000_000, 10**12])
def test_buckets_are_of_bounded_size(rows):
    bits = bits_for(rows)
    assert bits == 16 or rows <= (1 << 18) << bits
    assert bits == 0 or rows > (1 << 18) << (bits - 1)


def test_buckets_are_the_top_bits(workshop, keys):
    for bits in (0, 1, 5):
        entries = numbered(workshop, keys)
        split = dict(split_buckets(entries, bits))
        assert sum(len(one) for one in split.values()) == len(keys)
        for bucket, one in split.items():
            assert set(bucket_of(one.first, bits).tolist()) == {bucket}


def test_roots_come_back(workshop, keys):
    root = replace(based(workshop, keys), removed_files=frozenset({4}), seed=99)
    path = new_path(workshop.location, "root")
    size, _ = write_root(workshop.io, path, root)
    assert read_root(workshop.io, path) == root
    assert size == Path(path).stat().st_size
    assert Root.from_json(root.to_json()) == replace(root, files=())


def test_a_root_of_another_version_is_not_used(workshop, keys, monkeypatch):
    """Version 1 had another hash; the index is then built anew, as after damage."""
    path = new_path(workshop.location, "root")
    with monkeypatch.context() as patch:
        patch.setattr("neve.index.root._VERSION", 1)
        write_root(workshop.io, path, based(workshop, keys))
    with pytest.raises(CorruptionError, match="another version"):
        read_root(workshop.io, path)


def test_pyiceberg_refuses_tables_that_name_other_blobs():
    """When this fails, the statistics entry can name the root's blobs: see decision 7."""
    blob = {"type": ROOT_BLOB, "snapshot-id": 1, "sequence-number": 1, "fields": [1]}
    with pytest.raises(ValidationError, match="deletion-vector-v1"):
        BlobMetadata.model_validate(blob)


@pytest.mark.parametrize("location", ["s3://bucket/wh/ns/t", "file:///wh/ns/t/", "/wh/ns/t"])
def test_the_index_lies_beside_the_table(location):
    found = index_location(location, "uuid")
    assert not found.startswith(location.rstrip("/") + "/")
    assert found == location.rstrip("/") + "__index/uuid"


def test_ordinals_are_only_ever_appended(workshop):
    root, ordinals = workshop.root.with_files(["f1", "new", "f2", "new"])
    assert (ordinals["f1"], ordinals["f2"], ordinals["new"]) == (1, 2, 50)
    assert root.files[50:] == ("new",)
    # A file that left and came back is another one: entries of its former life stay dead.
    root, ordinals = root.without_files(["f1"]).with_files(["f1"])
    assert ordinals["f1"] == 51


class TestDamage:
    @pytest.fixture
    def root(self, workshop_of_any_kind, keys):
        return based(workshop_of_any_kind, keys, 1)

    def test_missing(self, workshop_of_any_kind, root, keys):
        path = root.shards[0].path
        Path(path).unlink()
        with pytest.raises(CorruptionError, match=path):
            workshop_of_any_kind.search(root, keys)

    def test_truncated(self, workshop_of_any_kind, root, keys):
        path = Path(root.shards[0].path)
        data = path.read_bytes()
        for size in (0, 1, len(data) // 2, len(data) - 1):
            path.write_bytes(data[:size])
            with pytest.raises(CorruptionError, match=str(path)):
                workshop_of_any_kind.search(root, keys)

    def test_after_it_was_read_and_found_right(self, workshop_of_any_kind, root, keys):
        """A worker that lives on has the file mapped, and its blocks checked already."""
        cache, path = BucketCache(), Path(root.shards[0].path)
        data = path.read_bytes()
        for spoilt in (data[: len(data) // 3] + bytes(len(data) - len(data) // 3), data[:1000]):
            path.write_bytes(data)
            assert workshop_of_any_kind.search(root, keys, cache=cache).has_entry.all()
            path.write_bytes(spoilt)
            with pytest.raises(CorruptionError, match=str(path)):
                workshop_of_any_kind.search(root, keys, cache=cache)

    def test_any_flipped_byte(self, workshop_of_any_kind, root, keys):
        """Either nothing depends on the byte, or it is noticed; results never change."""
        path = Path(root.shards[0].path)
        data = path.read_bytes()
        rng = np.random.default_rng(11)
        truth = workshop_of_any_kind.search(root, keys)
        noticed = 0
        for place in rng.integers(0, len(data), 150).tolist():
            path.write_bytes(data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :])
            try:
                found = workshop_of_any_kind.search(root, keys)
            except CorruptionError as error:
                noticed += str(path) in str(error)
            else:
                assert as_lists(found) == as_lists(truth)
        assert noticed > 100

    def test_blocks_that_are_not_asked_for_are_not_read(self, workshop_of_any_kind, root, keys):
        path = Path(root.shards[0].path)
        data = bytearray(path.read_bytes())
        data[200] ^= 1  # in the first block of the first bucket
        path.write_bytes(data)
        assert workshop_of_any_kind.search(root, keys[-5:]).has_entry.all()
        with pytest.raises(CorruptionError):
            workshop_of_any_kind.search(root, keys[:5])

    def test_a_damaged_root(self, workshop, keys):
        root = based(workshop, keys)
        path = Path(new_path(workshop.location, "root"))
        write_root(workshop.io, str(path), root)
        data = path.read_bytes()
        noticed = 0
        for place in range(4, len(data)):
            path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
            try:
                assert read_root(workshop.io, str(path)) == root
            except CorruptionError:
                noticed += 1
        assert noticed > len(data) / 2
        path.write_bytes(data)
        assert read_root(workshop.io, str(path)) == root
        path.unlink()
        with pytest.raises(CorruptionError, match="missing"):
            read_root(workshop.io, str(path))
