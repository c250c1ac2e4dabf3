"""How many position delete files a rewrite saves."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from neve.lake.metadata_json import MetadataJson
from neve.upkeep.position_deletes import PositionDeletes


def surplus(deletes, live=(), granularity=None):
    properties = {"write.delete.granularity": granularity} if granularity else {}
    positions = PositionDeletes(MetadataJson("x", {"properties": properties}))
    for partition, data_file in deletes:
        positions.add(
            SimpleNamespace(spec_id=0, partition=partition, data_file=data_file, is_vector=False)
        )
    for path in live:
        positions.see(path)
    return positions.surplus()


@pytest.mark.parametrize(
    ("deletes", "live", "granularity", "wanted"),
    [
        # One for each data file is what a rewrite leaves.
        ([("a", "1"), ("a", "2"), ("b", "3")], "123", None, 0),
        ([("a", "1"), ("a", "1"), ("a", "2")], "12", None, 1),
        # Of files that are gone, and of files that nobody names.
        ([("a", "1"), ("a", "2")], "1", None, 1),
        ([("a", None), ("a", None)], "1", None, 2),
        # What is alone in its partition is left as it is.
        ([("a", None), ("b", "1")], "", None, 0),
        ([("a", "1"), ("a", "2"), ("b", "3")], "123", "partition", 1),
        ([("a", "1"), ("a", "2"), ("b", "3")], "123", "file", 0),
    ],
)
def test_only_what_a_rewrite_saves_is_too_much(deletes, live, granularity, wanted):
    assert surplus(deletes, live, granularity) == wanted


def test_deletion_vectors_are_no_position_delete_files():
    positions = PositionDeletes(MetadataJson("x", {}))
    vector = SimpleNamespace(spec_id=0, partition="a", data_file="1", is_vector=True)
    for _ in range(3):
        positions.add(vector)
    assert positions.surplus() == 0
