"""Building an index from data files, without a catalog and without Spark."""

import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, LongType, NestedField, UUIDType

from neve.errors import StorageError, UnsupportedError
from neve.index import shuffle
from neve.index.cache import BucketCache
from neve.index.columns import IndexedColumns
from neve.index.files import list_files
from neve.index.read_keys import Kind, Part
from neve.index.search import IndexReader
from neve.index.shuffle import packed
from neve.lake.spark_tasks import LocalTasks
from tests.support.indexed import Workbench


class Tasks(LocalTasks):
    """Several tasks, each of which gets and gives nothing that cannot be pickled."""

    parallelism = 3

    def run(self, function, items):
        work = [pickle.loads(pickle.dumps((function, item))) for item in items]
        return [pickle.loads(pickle.dumps(chosen(item))) for chosen, item in work]


@pytest.fixture
def bench(tmp_path):
    return Workbench(str(tmp_path), pa.int64(), pa.int64())


def filled(bench):
    bench.add([(n, n * 10) for n in range(20)])
    bench.add([(n, n * 10) for n in range(20, 25)])
    bench.bury([(n, 1000 + n) for n in range(3, 9)])
    bench.remove(set(range(3, 9)))
    bench.add([(5, 5000)])
    bench.bury([(5, 3000), (77, 1)])
    return bench


def test_live_rows_and_the_greatest_of_their_tombstones(bench):
    root = filled(bench).build()
    assert bench.contents(root) == bench.wanted()
    assert (root.rows, len(root.files)) == (20 + 6, 3)


def test_many_tasks_and_small_runs_make_the_same(bench, monkeypatch):
    monkeypatch.setattr(shuffle, "SHUFFLE_FILE_ROWS", 4)
    monkeypatch.setattr(shuffle, "bits_for", lambda rows: 4)
    root = filled(bench).build(Tasks())
    assert len(root.shards) == 3
    assert bench.contents(root) == bench.wanted()
    # Only shards are left.
    left = list_files(bench.io, bench.source.location)
    assert left.keys() == {one.path for one in root.shards}
    before = bench.snapshot()
    bench.compact(list(bench.now.rows)[:2])
    bench.remove({5, 20})
    after = bench.refresh(root, before, Tasks())
    assert bench.contents(after) == bench.wanted()


def test_parts_have_every_row_once_and_tasks_are_alike():
    parts = [
        Part(Kind.ROWS, number, f"f{number}", rows)
        for number, rows in enumerate([10, 7_000_000, 3, 900_000, 0])
    ]
    tasks = packed(parts, 4)
    assert len(tasks) == 4
    loads = [sum(part.rows for part in task) for task in tasks]
    assert max(loads) < 1.3 * min(loads)
    shares = sorted((part.ordinal, part.share) for task in tasks for part in task)
    assert shares == sorted(
        (part.ordinal, share)
        for part in {one.ordinal: one for task in tasks for one in task}.values()
        for share in range(part.shares)
    )
    assert packed([], 4) == []


def test_two_rows_of_a_key_are_marked(bench):
    bench.add([(1, 1), (2, 9)])
    bench.add([(2, 2)])
    root = bench.build()
    assert bench.contents(root) == bench.wanted()
    search = IndexReader(root, bench.io, BucketCache()).search_values(bench.hashes([1, 2, 3]))
    assert search.several.tolist() == [False, True, False]
    assert search.has_entry.tolist() == [True, True, False]
    assert search.sequence.to_pylist() == [1, 9, None]


def test_a_row_without_key_or_sequence_is_refused(bench):
    bench.add([(1, 1), (None, 2)])
    with pytest.raises(UnsupportedError, match="NULL"):
        bench.build()
    bench.drop(list(bench.now.rows))
    bench.add([(1, None)])
    with pytest.raises(UnsupportedError, match="NULL"):
        bench.build()


def test_files_that_cannot_be_read_are_named(bench, tmp_path):
    bench.add([(1, 1)])
    path = next(iter(bench.now.rows))
    pq.write_table(pa.table({"id": [1], "lsn": [1]}), path)
    with pytest.raises(UnsupportedError, match="has no column id"):
        bench.build()
    (tmp_path / path).write_bytes(b"ORC and no Parquet")
    with pytest.raises(UnsupportedError, match="Parquet"):
        bench.build()
    (tmp_path / path).unlink()
    with pytest.raises(StorageError, match="cannot be read"):
        bench.build()


def test_a_file_from_before_a_column_was_widened(tmp_path):
    narrow = Workbench(str(tmp_path), pa.int32(), pa.decimal128(6, 2))
    wide = Workbench(str(tmp_path), pa.int64(), pa.decimal128(12, 2))
    rows = [(n, n) for n in range(-3, 4)]
    narrow.add(rows)
    wide.now = narrow.now
    one, other = narrow.build(), wide.build()
    assert narrow.contents(one) == wide.contents(other)
    assert np.array_equal(narrow.hashes([-3, 3]), wide.hashes([-3, 3]))


def test_columns_that_cannot_be_indexed():
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "uid", UUIDType()),
        NestedField(3, "ratio", DoubleType()),
    )
    assert not IndexedColumns.of(schema, ["id"], ["id"]).has_second_hash
    assert IndexedColumns.of(schema, ["ratio"], ["id"]).has_second_hash
    assert IndexedColumns.of(schema, ["uid"], ["id"]).has_second_hash
    for keys, sequence in ((["id"], ["uid"]), (["id"], ["ratio"]), (["nope"], ["id"])):
        with pytest.raises(UnsupportedError):
            IndexedColumns.of(schema, keys, sequence)
