"""The index against a dict: whatever was put in, in whatever order, and however it collides."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.io import load_file_io

from neve.index import compaction
from neve.index.cache import BucketCache
from neve.index.compaction import add_delta, plan_compaction, write_entries
from neve.index.entries import ABSENT, SEVERAL, TOMBSTONE, SequenceType, make_entries
from neve.index.root import KeyColumn, Root, new_path, read_root, write_root
from neve.index.search import IndexReader
from tests.support.indexed import compact

# Few hashes, so that keys meet; some at the ends, some that share a bucket.
FIRST = [0, 1, 2, 1 << 62, (1 << 62) + 1, (1 << 64) - 2, (1 << 64) - 1]
FILES = [0, 1, 2, 3]

keys = st.tuples(st.sampled_from(FIRST), st.integers(0, 4))
changes = st.lists(
    st.tuples(keys, st.sampled_from([*FILES, TOMBSTONE, ABSENT, SEVERAL]), st.integers(0, 2**40)),
    max_size=30,
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("delta"), changes),
        st.tuples(st.just("compact"), st.booleans()),
        st.tuples(st.just("forget"), st.none()),
        st.tuples(st.just("remove"), st.sampled_from(FILES)),
        st.tuples(st.just("reload"), st.none()),
    ),
    max_size=12,
)
kinds = st.sampled_from(SequenceType)


def new_root(kind, has_second_hash, bits, **more):
    return Root(
        table_uuid="u",
        snapshot_id=0,
        key_columns=(KeyColumn("k", 1),),
        sequence_columns=("s",),
        sequence_type=kind,
        has_second_hash=has_second_hash,
        bits=bits,
        **more,
    )


class Machine:
    """An index and the dict it must equal."""

    def __init__(self, location, kind, has_second_hash):
        self.location, self.kind, self.has_second_hash = location, kind, has_second_hash
        self.io = load_file_io({}, location)
        self.truth = {}
        self.moment = 0
        files = tuple(f"f{number}" for number in FILES)
        self.root = new_root(kind, has_second_hash, 2, files=files)

    def sequence(self, number):
        return number if self.kind is SequenceType.INTEGER else b"%020d" % number

    def delta(self, found):
        alive = {path: number for number, path in enumerate(self.root.files)}
        rows = []
        for (first, second), file, position in found:
            self.moment += 1
            key = (first, second if self.has_second_hash else 0)
            # A file that left the table may have no new entries; it comes back under a new number.
            if file >= 0:
                self.root, alive = self.root.with_files([f"f{file}"])
            ordinal = alive[f"f{file}"] if file >= 0 else file
            rows.append((*key, ordinal, position, self.sequence(self.moment)))
            self.truth[key] = (file, position, self.sequence(self.moment))
        columns = list(zip(*rows, strict=True)) or [[]] * 5
        entries = make_entries(
            np.array(columns[0], np.uint64),
            np.array(columns[1], np.uint64) if self.has_second_hash else None,
            np.array(columns[2], np.int32),
            np.array(columns[3], np.int64),
            pa.array(columns[4], self.kind.arrow),
        )
        self.root = add_delta(self.io, self.root, self.location, entries, self.moment)

    def compact(self, force):
        if plan := plan_compaction(self.root, force=force):
            self.root = compact(self.io, self.root, plan, self.location)

    def forget(self, _):
        """Merge all deltas, as when many files have left; the base stays as it is."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compaction, "_choose", lambda _: None)
            patch.setattr(compaction, "MOST_REMOVED_FILES", 0)
            if plan := plan_compaction(self.root):
                assert not plan.is_full
                self.root = compact(self.io, self.root, plan, self.location)
                assert all(number < self.root.base_files for number in self.root.removed_files)

    def remove(self, file):
        self.root = self.root.without_files([f"f{file}"])
        self.truth = {key: value for key, value in self.truth.items() if value[0] != file}

    def reload(self, _):
        path = new_path(self.location, "root")
        write_root(self.io, path, self.root)
        self.root = read_root(self.io, path)

    def check(self):
        asked = [(first, second) for first in FIRST for second in range(5)]
        first = np.array([one for one, _ in asked], np.uint64)
        second = np.array([one for _, one in asked], np.uint64) if self.has_second_hash else None
        found = IndexReader(self.root, self.io, BucketCache()).search_values(first, second)
        for number, (one, two) in enumerate(asked):
            expected = self.truth.get((one, two if self.has_second_hash else 0))
            if expected is None or expected[0] == ABSENT:
                assert not found.has_entry[number]
                continue
            assert found.has_entry[number]
            ordinal = int(found.file[number])
            name = self.root.files[ordinal] if ordinal >= 0 else ordinal
            assert name == (f"f{expected[0]}" if expected[0] >= 0 else expected[0])
            assert found.sequence[number].as_py() == expected[2]
            assert found.position[number] == expected[1]


@settings(derandomize=True, deadline=None, max_examples=150)
@given(kind=kinds, has_second_hash=st.booleans(), todo=steps)
def test_as_a_dict(tmp_path_factory, kind, has_second_hash, todo):
    machine = Machine(str(tmp_path_factory.mktemp("index")), kind, has_second_hash)
    for name, what in todo:
        getattr(machine, name)(what)
        machine.check()


@settings(derandomize=True, deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**32), bits=st.integers(0, 9), narrow=st.sampled_from([12, 30, 64]))
def test_many_keys_of_a_narrow_hash(tmp_path_factory, seed, bits, narrow):
    """A hash of few bits makes collisions by the hundred; none is ever lost or merged."""
    rng = np.random.default_rng(seed)
    count = 4000
    first = rng.integers(0, 2**64, count, dtype=np.uint64) >> np.uint64(64 - narrow)
    first <<= np.uint64(64 - narrow)
    second = rng.permutation(count).astype(np.uint64)
    location = str(tmp_path_factory.mktemp("index"))
    io = load_file_io({}, location)
    entries = make_entries(first, second, 0, np.arange(count), np.arange(count))
    shard = write_entries(io, location, entries, 1, bits)
    root = new_root(SequenceType.INTEGER, True, bits, shards=(shard,))
    found = IndexReader(root, io, BucketCache()).search_values(first, second)
    assert found.position.tolist() == list(range(count))
