"""Deletion vectors as bytes: the specification's form, positions of any size, damage noticed."""

import random

import pytest
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.puffin import PuffinFile
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyroaring import BitMap64

from neve.errors import CorruptionError, StorageError
from neve.lake.vectors import decode_vector, encode_vector, read_vector, write_vectors

WIDE = BitMap64([0, 1, 7, 2**31, 2**32 - 1, 2**32, 2**32 + 5, 5 * 2**32 + 1])


@pytest.fixture
def metadata(tmp_path):
    return new_table_metadata(
        Schema(),
        UNPARTITIONED_PARTITION_SPEC,
        UNSORTED_SORT_ORDER,
        str(tmp_path / "t"),
        {},
    )


@pytest.mark.parametrize(
    "positions", [BitMap64(), BitMap64([5]), BitMap64(range(100_000)), WIDE], ids=len
)
def test_positions_come_back(positions):
    assert decode_vector(encode_vector(positions), "f") == positions


def test_the_form_is_the_specifications():
    blob = encode_vector(BitMap64([1, 2**32]))
    assert int.from_bytes(blob[:4], "big") == len(blob) - 8
    assert blob[4:8] == bytes([0xD1, 0xD3, 0x39, 0x64])
    assert int.from_bytes(blob[8:16], "little") == 2  # two bitmaps of 32 bits, under their keys
    assert int.from_bytes(blob[16:20], "little") == 0


def test_runs_take_little():
    assert len(encode_vector(BitMap64(range(1_000_000)))) < 400


def test_damage_is_noticed():
    blob = encode_vector(WIDE)
    for size in (0, 5, len(blob) - 1):
        with pytest.raises(CorruptionError, match="dv-1"):
            decode_vector(blob[:size], "dv-1")
    for place in range(len(blob)):
        with pytest.raises(CorruptionError, match="dv-1"):
            decode_vector(blob[:place] + bytes([blob[place] ^ 4]) + blob[place + 1 :], "dv-1")


def test_many_vectors_in_one_file(tmp_path, metadata):
    io = load_file_io({}, str(tmp_path))
    rng = random.Random(1)
    deleted = {f"data-{n}": BitMap64(rng.sample(range(2**34), 50 + n)) for n in range(20)}
    written = write_vectors(metadata, io, deleted)
    assert len({one.path for one in written}) == 1
    assert written[0].path.startswith(f"{tmp_path}/t/data/")
    assert {one.data_file: read_vector(io, one) for one in written} == deleted
    assert [one.cardinality for one in written] == [len(one) for one in deleted.values()]


def test_pyiceberg_reads_them(tmp_path, metadata):
    io = load_file_io({}, str(tmp_path))
    (written,) = write_vectors(metadata, io, {"data-1": BitMap64([3, 4, 70_000])})
    file = PuffinFile(io.new_input(written.path).open().read())
    (vector,) = deletion_vectors_from_puffin_file(file)
    assert vector.referenced_data_file == "data-1"
    assert vector.to_vector().to_pylist() == [3, 4, 70_000]


def test_nothing_is_written_for_nothing(tmp_path, metadata):
    assert write_vectors(metadata, load_file_io({}, str(tmp_path)), {}) == []
    assert not (tmp_path / "t").exists()


def test_a_missing_file_is_said(tmp_path, metadata):
    io = load_file_io({}, str(tmp_path))
    (written,) = write_vectors(metadata, io, {"data-1": BitMap64([3])})
    io.delete(written.path)
    with pytest.raises(StorageError, match="deletes"):
        read_vector(io, written)
