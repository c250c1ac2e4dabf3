"""The index in memory, as a library: in, out, and through a file."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.io import load_file_io

from neve.errors import CorruptionError, UsageError
from neve.index import PkHash, PuffinIndex, compute_pk_hash, splitmix64
from neve.index.entries import SequenceType
from tests.support.indexed import as_lists


def integers(*values):
    return compute_pk_hash([pa.array(values, pa.int64())])


def test_importing_it_is_light():
    """Every new worker of Spark imports it; pyspark, pandas and a file system are seconds."""
    heavy = "{'pyspark', 'py4j', 'pandas', 'pyiceberg.io.pyarrow'}"
    code = f"import sys, neve.index.search; sys.exit(not {heavy}.isdisjoint(sys.modules))"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_last_entry_counts():
    index = PuffinIndex()
    index.insert(integers(1, 2, 3), "a", [0, 1, 2], [10, 11, 12])
    index.insert(integers(2), "b", [7], [20])
    index.delete(integers(3), [30])
    index.forget(integers(1))
    assert len(index) == 2
    assert index.get(splitmix64(1)) is None
    assert index.get(splitmix64(4)) is None
    two, three = index.get(splitmix64(2)), index.get(splitmix64(3))
    assert (two.file, two.position, two.sequence) == ("b", 7, 20)
    assert (three.file, three.sequence) == (None, 30)
    found = index.search_values(integers(3, 9, 2).first)
    assert found.has_entry.tolist() == [True, False, True]
    assert found.sequence.to_pylist() == [30, None, 20]


def test_an_empty_index():
    index = PuffinIndex()
    assert len(index) == 0
    assert index.get(1) is None
    assert len(PuffinIndex.from_bytes(index.to_bytes())) == 0


@pytest.mark.parametrize("kind", list(SequenceType))
def test_through_bytes_and_files(tmp_path, kind):
    keys = compute_pk_hash([pa.array([f"key {number}" for number in range(5000)])])
    values = pa.array(range(5000))
    if kind is SequenceType.BINARY:
        values = values.cast(pa.string())
    index = PuffinIndex(kind, has_second_hash=True)
    index.insert(keys, "a", np.arange(5000), values)
    index.delete(PkHash(keys.first[:9], keys.second[:9]), values.slice(0, 9))
    io = load_file_io({}, str(tmp_path))
    index.save(io, str(tmp_path / "i.puffin"))
    for loaded in (
        PuffinIndex.from_bytes(index.to_bytes()),
        PuffinIndex.load(io, str(tmp_path / "i.puffin")),
    ):
        assert loaded.files == ["a"]
        found = loaded.search_values(*keys)
        assert as_lists(found) == as_lists(index.search_values(*keys))
        loaded.insert(PkHash(keys.first[:1], keys.second[:1]), "b", [3], values.slice(0, 1))
        assert loaded.get(int(keys.first[0]), int(keys.second[0])).file == "b"
        assert len(loaded) == 5000


def test_damage_is_noticed(tmp_path):
    index = PuffinIndex()
    index.insert(integers(*range(3000)), "a", np.arange(3000), np.arange(3000))
    data = index.to_bytes()
    io = load_file_io({}, str(tmp_path))
    with pytest.raises(CorruptionError, match="missing"):
        PuffinIndex.load(io, str(tmp_path / "none"))
    with pytest.raises(CorruptionError):
        PuffinIndex.from_bytes(data[:-1])
    for place in (300, len(data) // 2):
        with pytest.raises(CorruptionError):
            PuffinIndex.from_bytes(data[:place] + b"\xa5\x5a\xa5" + data[place + 3 :])


def test_what_makes_no_sense_is_refused():
    index = PuffinIndex()
    with pytest.raises(UsageError, match="NULL"):
        index.insert(integers(1), "a", [1], pa.array([None], pa.int64()))
    with pytest.raises(UsageError, match="lengths"):
        index.insert(integers(1), "a", [1], [1, 2])
    with pytest.raises(UsageError, match="type"):
        index.insert(integers(1), "a", [1], [1.5])
    index.insert(integers(1), "a", [1], ["text"])
    with pytest.raises(UsageError, match="kinds"):
        index.entries()


def test_times_are_sequences():
    index = PuffinIndex()
    index.insert(integers(1), "a", [1], pa.array([5], pa.timestamp("us", "UTC")))
    assert index.get(splitmix64(1)).sequence == 5
