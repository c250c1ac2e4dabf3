"""The task that writes a batch: portion by portion, whatever the rows weigh."""

from __future__ import annotations

import pickle
import threading
import time
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql.pandas.types import from_arrow_schema

from neve.lake.frames import PORTION_BYTES, in_portions
from neve.merge import columns as cols
from neve.merge.decision import UPSERT
from neve.merge.shape import Shape
from neve.merge.transforms import UPSERT_RANK
from neve.merge.write_changes import Written, _are_same, _equal_rows, _positions, _WriteRows

ROW_BYTES, BATCH_ROWS = 10_000, 500
MIRROR = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "lsn", LongType()),
    NestedField(3, "name", StringType()),
)


def table_at(path):
    order, spec = UNSORTED_SORT_ORDER, UNPARTITIONED_PARTITION_SPEC
    return new_table_metadata(MIRROR, spec, order, f"file://{path}", {})


def wide_batches(count):
    """Make batches of decided upserts one after the other, the keys in no order."""
    for number in range(count):
        ids = np.arange(number, BATCH_ROWS * count, count)[::-1]
        zeros = pa.array(np.zeros(BATCH_ROWS, np.int64))
        yield pa.RecordBatch.from_pydict(
            {
                "id": ids,
                "lsn": zeros,
                "name": ["x" * ROW_BYTES] * BATCH_ROWS,
                cols.RANK: np.full(BATCH_ROWS, UPSERT_RANK),
                cols.DISPOSITION: [UPSERT] * BATCH_ROWS,
                cols.ROW_FILE: pa.nulls(BATCH_ROWS, pa.string()),
                cols.ROW_POSITION: pa.nulls(BATCH_ROWS, pa.int64()),
                **dict.fromkeys(cols.SUMMED, zeros),
            }
        )


class PeakArrowMemory:
    """Looks at Arrow's memory while a block runs."""

    def __enter__(self):
        self.most, self._stop = 0, threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def _look(self):
        while not self._stop.wait(0.001):
            self.most = max(self.most, pa.total_allocated_bytes())

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()


# The second has more bytes than the 32-bit offsets of one column can count.
@pytest.mark.parametrize(
    ("batches", "portion"),
    [(40, 16_000_000), pytest.param(450, PORTION_BYTES, marks=pytest.mark.soak)],
)
def test_wide_rows_are_written_in_portions(tmp_path, monkeypatch, batches, portion):
    monkeypatch.setattr(
        "neve.merge.write_changes.in_portions", partial(in_portions, most_bytes=portion)
    )
    mirror = table_at(tmp_path)
    shape = Shape(("id",), ("lsn",), from_arrow_schema(schema_to_pyarrow(MIRROR)))
    task = _WriteRows(mirror, {}, mirror, {}, shape, None, 0, (), None, 0)
    before = pa.total_allocated_bytes()
    with PeakArrowMemory() as memory:
        results = [batch["written"][0].as_py() for batch in task(wide_batches(batches))]
    assert memory.most - before < 6 * portion
    files = [file for result in results for file in pickle.loads(result).data_files]
    assert len(files) >= batches * BATCH_ROWS * ROW_BYTES // (2 * portion)
    assert sum(file.record_count for file in files) == batches * BATCH_ROWS
    ids = [pq.read_table(file.file_path.removeprefix("file://"))["id"].to_numpy() for file in files]
    assert all((np.diff(of_file) > 0).all() for of_file in ids)
    assert np.array_equal(np.sort(np.concatenate(ids)), np.arange(batches * BATCH_ROWS))


def test_rows_in_many_files_take_one_sort():
    """One pass for each file took 14.8 s of 250,000 rows in 5,000 files."""
    rows, files = 250_000, 5_000
    rng = np.random.default_rng(1)
    numbers, positions = rng.integers(0, files, rows), rng.permutation(rows)
    names = np.array([f"s3://lake/mirror/data/{number}.parquet" for number in range(files)])
    replaced = pa.table({cols.ROW_FILE: names[numbers], cols.ROW_POSITION: positions})
    started = time.process_time()
    by_file = _positions(replaced)
    written = Written()
    for _ in range(2):
        written.add(Written(deleted=by_file))
    assert time.process_time() - started < 0.5
    assert written.deleted.keys() == set(names[numbers])
    assert set(written.deleted[names[7]]) == set(positions[numbers == 7])


NAN = float("nan")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (NAN, -NAN, True),
        (NAN, 1.0, False),
        (NAN, None, False),
        (None, None, True),
        (0.0, -0.0, True),
        (1.0, 1.5, False),
        ({"a": [NAN, -0.0]}, {"a": [NAN, 0.0]}, True),
        ({"a": [NAN]}, {"a": [NAN, NAN]}, False),
        # A map, which Spark compares as JSON.
        ([("k", NAN)], [("k", NAN)], True),
        ([("k", [{"z": -0.0}])], [("k", [{"z": 0.0}])], False),
    ],
)
def test_values_are_the_same_as_to_spark(one, other, same):
    assert _are_same(one, other) is same


def test_repeats_in_many_files_take_one_sort(tmp_path):
    rows, files, known = 250_000, 5_000, 3
    rng = np.random.default_rng(1)
    numbers, ids = rng.integers(0, files, rows), np.arange(rows)
    positions = np.empty(rows, np.int64)
    for number in range(known):
        places = np.flatnonzero(numbers == number)
        positions[places] = rng.permutation(len(places))
        in_file = places[np.argsort(positions[places])]
        changed = np.where(in_file == in_file[0], -1, ids[in_file])
        stored = pa.table({"id": ids[in_file], "lsn": ids[in_file], "name": changed.astype(str)})
        schema = pa.schema(
            [
                field.with_metadata({"PARQUET:field_id": str(at)})
                for at, field in enumerate(stored.schema, 1)
            ]
        )
        pq.write_table(stored.cast(schema), tmp_path / f"{number}.parquet")
    events = pa.table(
        {
            "id": ids,
            "lsn": ids,
            "name": ids.astype(str),
            cols.ROW_FILE: numbers.astype(str),
            cols.ROW_POSITION: positions,
        }
    )
    shape = Shape(("id",), ("lsn",), from_arrow_schema(schema_to_pyarrow(MIRROR)))
    io = load_file_io({}, str(tmp_path))
    started = time.process_time()
    is_equal = _equal_rows(MIRROR, io, events, shape, f"{tmp_path}/{{}}.parquet".format)
    assert time.process_time() - started < 0.45
    assert is_equal.sum() == (numbers < known).sum() - known
    assert not is_equal[numbers >= known].any()
