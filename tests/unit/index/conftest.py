"""Entries and roots to build indexes from, in a directory of the test's own."""

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.io import load_file_io

from neve.index.cache import BucketCache
from neve.index.entries import SequenceType, make_entries
from neve.index.root import KeyColumn, Root
from neve.index.search import IndexReader


def sequences(values, sequence_type):
    if sequence_type is SequenceType.INTEGER:
        return pa.array(np.asarray(values, np.int64))
    return pa.array([b"%016x" % int(value) for value in values], pa.binary())


class Workshop:
    """Writes indexes of one kind into one directory."""

    def __init__(self, location, sequence_type=SequenceType.INTEGER, has_second_hash=False):
        self.location = location
        self.io = load_file_io({}, location)
        self.sequence_type = sequence_type
        self.root = Root(
            table_uuid="u",
            snapshot_id=1,
            key_columns=(KeyColumn("id", 1),),
            sequence_columns=("seq",),
            sequence_type=sequence_type,
            has_second_hash=has_second_hash,
            bits=3,
            files=tuple(f"f{number}" for number in range(50)),
        )

    def entries(self, first, file, position, sequence, second=None):
        first = np.asarray(first, np.uint64)
        if self.root.has_second_hash and second is None:
            second = first ^ np.uint64(0xFFFF)
        return make_entries(
            first,
            second if self.root.has_second_hash else None,
            file,
            position,
            sequences(sequence, self.sequence_type),
        )

    def reader(self, root, cache=None):
        return IndexReader(root, self.io, cache or BucketCache())

    def search(self, root, first, second=None, cache=None):
        first = np.asarray(first, np.uint64)
        if root.has_second_hash and second is None:
            second = first ^ np.uint64(0xFFFF)
        return self.reader(root, cache).search_values(first, second)


@pytest.fixture
def workshop(tmp_path):
    return Workshop(str(tmp_path / "t__index"))


@pytest.fixture(params=["integer", "binary"])
def sequence_type(request):
    return SequenceType(request.param)


@pytest.fixture(params=[False, True], ids=["bijective", "has_second_hash"])
def workshop_of_any_kind(tmp_path, request, sequence_type):
    return Workshop(str(tmp_path / "t__index"), sequence_type, request.param)
