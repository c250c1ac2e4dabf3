"""Deletion vectors as bytes: the specification's form, positions of any size, damage noticed."""

import random
import threading
from contextlib import contextmanager
from dataclasses import replace

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
from neve.lake.vectors import (
    decode_vector,
    encode_vector,
    read_vector,
    read_vectors,
    write_vectors,
)

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


class ObservedFiles:
    """The files of a FileIO: counts opens and reads; an open waits until enough are waiting."""

    def __init__(self, io, opens_at_once=1):
        self._io = io
        self._opens_at_once = threading.Barrier(opens_at_once)
        self.opened, self.reads = [], 0

    def new_input(self, path):
        return _ObservedInput(self, self._io.new_input(path))

    @contextmanager
    def open(self, file):
        self.opened.append(file.location)
        self._opens_at_once.wait(timeout=10)
        with file.open(seekable=True) as stream:
            yield _ObservedStream(self, stream)


class _ObservedInput:
    def __init__(self, files, file):
        self._files, self._file = files, file

    def open(self, *, seekable):
        return self._files.open(self._file)


class _ObservedStream:
    def __init__(self, files, stream):
        self._files, self._stream = files, stream

    def seek(self, offset):
        self._stream.seek(offset)

    def read(self, length):
        self._files.reads += 1
        return self._stream.read(length)


def test_vectors_of_one_puffin_file_are_read_together(tmp_path, metadata):
    io = load_file_io({}, str(tmp_path))
    deleted = {f"data-{n}": BitMap64([n, n + 2**33]) for n in range(1_500)}
    written = write_vectors(metadata, io, deleted)
    files = ObservedFiles(io)
    random.Random(1).shuffle(written)
    assert read_vectors(files, written) == deleted
    assert (len(files.opened), files.reads) == (1, 1)


def test_what_lies_far_apart_in_a_puffin_file_is_not_read(tmp_path, metadata):
    io = load_file_io({}, str(tmp_path))
    rng = random.Random(1)
    wide = BitMap64(rng.sample(range(2**34), 50_000))
    written = write_vectors(metadata, io, {"a": WIDE, "b": wide, "c": BitMap64([1])})
    files = ObservedFiles(io)
    assert read_vectors(files, [written[0], written[2]]) == {"a": WIDE, "c": BitMap64([1])}
    assert (len(files.opened), files.reads) == (1, 2)


def test_puffin_files_are_read_at_the_same_time(tmp_path, metadata):
    io = load_file_io({}, str(tmp_path))
    deleted = {f"data-{n}": BitMap64([n]) for n in range(8)}
    written = [write_vectors(metadata, io, {name: deleted[name]})[0] for name in deleted]
    # Each open waits until all are waiting.
    assert read_vectors(ObservedFiles(io, opens_at_once=8), written) == deleted


def test_damage_among_many_is_noticed(tmp_path, metadata):
    io = load_file_io({}, str(tmp_path))
    written = write_vectors(metadata, io, {f"data-{n}": BitMap64([n, 9]) for n in range(3)})
    with pytest.raises(CorruptionError, match="2 rows instead of 3"):
        read_vectors(io, [*written[:2], replace(written[2], cardinality=3)])
    beyond = replace(written[2], offset=written[2].offset + 2**20)
    with pytest.raises(CorruptionError, match="ends at"):
        read_vectors(io, [*written[:2], beyond])
