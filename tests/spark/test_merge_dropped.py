"""Columns that the changelog drops: the mirror keeps their values."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyiceberg.types import (
    LongType,
    StringType,
)

from neve.errors import CatalogError
from neve.merge.strategy import Strategy
from tests.support.merging import SCHEMA, Mirrored, event, evolving

OTHERS = (Strategy.SCAN, Strategy.MERGE)
NOTHING = {"id": None, "name": None, "amount": None, "lsn": None}


def test_events_from_before_a_column_was_dropped_keep_its_values(embedded_lake):
    schema = pa.schema([*SCHEMA, ("place", pa.struct([("x", pa.int64()), ("y", pa.string())]))])
    mirrored = Mirrored(embedded_lake, schema)
    mirrored.append(
        {**event("I", 1, 1, "a", 1), "place": {"x": 1, "y": "one"}},
        event("I", 1, 2, "b", 2),
        event("I", 1, 5, "e", 5),
    )
    mirrored.merge()
    # Not merged before the drop: they have their values still.
    mirrored.append(
        {**event("U", 2, 1, "aa", 11), "place": {"x": 2, "y": "two"}}, event("I", 2, 3, "c", 3)
    )
    mirrored.append(
        {**event("?", 2, 9, "aside"), "place": {"x": 9, "y": "nine"}},
        # Of a sequence that is merged, and different in what is dropped only.
        event("U", 1, 5, "ee", 5),
    )
    with evolving(mirrored) as update:
        update.delete_column("name")
        update.delete_column("amount")
        update.delete_column(("place", "y"))
    with evolving(mirrored) as update:
        # Another field under the old name.
        update.add_column("amount", LongType())
    mirrored.append(
        {"op": "U", "lsn": 3, "id": 2, "amount": 22, "place": {"x": 3}},
        {"op": "I", "lsn": 3, "id": 4, "amount": 4},
    )
    mirrored.merge()
    rows = {
        (1,): {"id": 1, "name": "aa", "amount": 11, "lsn": 2, "place": {"x": 2, "y": "two"}},
        (2,): {"id": 2, "name": None, "amount": 22, "lsn": 3, "place": {"x": 3, "y": None}},
        (3,): {"id": 3, "name": "c", "amount": 3, "lsn": 2, "place": None},
        (4,): {"id": 4, "name": None, "amount": 4, "lsn": 3, "place": None},
        (5,): {"id": 5, "name": "ee", "amount": 5, "lsn": 1, "place": None},
    }
    assert mirrored.found() == rows
    (aside,) = mirrored.table("rows_rejected").scan().to_arrow()["event"].to_pylist()
    assert json.loads(aside)["name"] == "aside"
    # Also of the whole changelog, also in small batches.
    mirrored.merger().rebuild()
    assert mirrored.found() == rows
    # After that the changelog is read as any other.
    mirrored.append({"op": "U", "lsn": 4, "id": 1, "amount": 5})
    mirrored.merge()
    assert mirrored.found()[(1,)] == {**NOTHING, "id": 1, "amount": 5, "lsn": 4, "place": None}


@pytest.mark.parametrize(
    "strategy", [Strategy.INDEX, *(pytest.param(one, marks=pytest.mark.soak) for one in OTHERS)]
)
def test_merging_all_again_erases_nothing_of_a_dropped_column(embedded_lake, strategy):
    """The changelog was compacted without the column, and the checkpoint's snapshot is expired."""
    schema = pa.schema([*SCHEMA, ("city", pa.string())])
    mirrored = Mirrored(embedded_lake, schema, strategy=strategy)
    mirrored.append({**event("I", 1, 1, "a"), "city": "Rome"}, event("I", 1, 2, "b"))
    mirrored.merge()
    with evolving(mirrored) as update:
        update.delete_column("name")
        update.delete_column("city")
    with evolving(mirrored) as update:
        # Another field under the old name.
        update.add_column("city", StringType())
    mirrored.append({"op": "U", "lsn": 2, "id": 2, "amount": 2, "city": "Oslo"})
    mirrored.compact(mirrored.changelog)
    with pytest.raises(CatalogError, match=r"no column name any more.*compacted"):
        mirrored.merger().rebuild()
    mirrored.expire(mirrored.changelog)
    report = mirrored.merge()
    assert "is expired" in report.notes[0]
    assert mirrored.found() == {
        (1,): {"id": 1, "name": "a", "amount": 0, "lsn": 1, "city": "Rome"},
        (2,): {"id": 2, "name": None, "amount": 2, "lsn": 2, "city": "Oslo"},
    }


@pytest.mark.soak
@pytest.mark.parametrize("strategy", [Strategy.INDEX, *OTHERS])
def test_a_tie_may_differ_in_a_dropped_column_only(embedded_lake, strategy):
    mirrored = Mirrored(embedded_lake, strategy=strategy)
    mirrored.append(event("I", 5, 1, "b"), event("I", 5, 2, "z"), event("I", 5, 3, "c"))
    mirrored.merge()
    mirrored.append(event("U", 5, 1, "z"), event("U", 5, 2, "b"))
    with evolving(mirrored) as update:
        update.delete_column("name")
    mirrored.append({"op": "U", "lsn": 5, "id": 3, "amount": 0})
    mirrored.merge()
    assert [mirrored.found()[(key,)]["name"] for key in (1, 2, 3)] == ["z", "z", "c"]
