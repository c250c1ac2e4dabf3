"""Events with values that the source did not send."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.types import (
    BinaryType,
    StringType,
)

from neve.merge.strategy import Strategy
from tests.support.merging import SCHEMA, Mirrored, event, evolving


def test_partial_events_are_folded_over_the_row_before_them(embedded_lake):
    mirrored = Mirrored(embedded_lake, unchanged_marker="?")
    mirrored.append(
        event("I", 1, 1, "long text", 1),
        event("U", 2, 1, "?", 2),
        event("U", 3, 1, "?", 3),
        event("I", 1, 2, "two"),
        event("D", 2, 2),
        event("I", 3, 2, "?"),
        event("I", 1, 3, "three"),
        event("I", 10, 4, "four"),
        event("D", 13, 4),
    )
    mirrored.merge()
    mirrored.check()
    assert mirrored.found()[(1,)] == {"id": 1, "name": "long text", "amount": 3, "lsn": 3}
    assert mirrored.found()[(2,)]["name"] is None
    mirrored.append(event("U", 4, 1, "?", 4), event("D", 4, 3), event("U", 5, 2, "known", 1))
    # A value from before a delete fills nothing after it.
    mirrored.append(event("U", 12, 4, "before"), event("U", 15, 4, "?", 1))
    mirrored.merge()
    mirrored.check()
    assert mirrored.found()[(4,)]["name"] is None
    mirrored.append(event("I", 6, 3, "?"), event("U", 6, 2, "?", 2), event("U", 6, 1, None, 5))
    mirrored.merge()
    mirrored.check()
    assert mirrored.found()[(1,)]["name"] is None
    # The documented exception: a full event behind a newer partial one is late, and counted.
    mirrored.append(event("U", 5, 3, "too late"))
    report = mirrored.merge()
    assert (report.late_dropped, report.late_full) == (1, 1)
    assert mirrored.found()[(3,)]["name"] is None


def test_the_marker_in_arrays_and_maps_as_debezium_sends_it(embedded_lake):
    import uuid

    marker = "__debezium_unavailable_value"
    # Java's UUID.nameUUIDFromBytes of the marker.
    of_marker = "b68a35a7-17ad-35b3-af2a-ae46edb4545a"
    schema = pa.schema(
        [
            *SCHEMA,
            ("texts", pa.list_(pa.string())),
            ("blobs", pa.list_(pa.binary())),
            ("ints", pa.list_(pa.int32())),
            ("longs", pa.list_(pa.int64())),
            ("uuids", pa.list_(pa.string())),
            ("hstore", pa.map_(pa.string(), pa.string())),
        ]
    )
    values = {
        "name": "a",
        "texts": ["a", None],
        "blobs": [b"a"],
        "ints": [1],
        "longs": [2],
        "uuids": [str(uuid.UUID(int=1))],
        "hstore": [("a", "b")],
    }
    unchanged = {
        "name": marker,
        "texts": [marker],
        "blobs": [marker.encode()],
        "ints": list(marker.encode()),
        "longs": list(marker.encode()),
        "uuids": [of_marker],
        "hstore": [(marker, marker)],
    }
    # These only hold the text, among others.
    alike = {
        **values,
        "texts": [marker, "b"],
        "ints": [95],
        "uuids": [],
        "hstore": [(marker, marker), ("a", "b")],
    }
    mirrored = Mirrored(embedded_lake, schema, unchanged_marker=marker)
    mirrored.append(*({**event("I", 1, key), **values} for key in (1, 2, 3)))
    mirrored.merge()
    for lsn in (2, 3):
        mirrored.append(
            {**event("U", lsn, 1, amount=lsn), **unchanged},
            {**event("U", lsn, 2), **alike},
            {**event("U", lsn, 3), **dict.fromkeys(values)},
        )
        mirrored.merge()
        rows = mirrored.found()
        assert rows[(1,)] == {"id": 1, "amount": lsn, "lsn": lsn, **values}
        assert rows[(2,)] == {"id": 2, "amount": 0, "lsn": lsn, **alike}
        assert rows[(3,)] == {"id": 3, "amount": 0, "lsn": lsn, **dict.fromkeys(values)}


def test_partial_events_by_the_index_and_a_sequence_of_several_columns(embedded_lake):
    """The index has such sequences as bytes; rows, tombstones and several rows of a key count."""
    schema = pa.schema([*SCHEMA, ("step", pa.string())])
    mirrored = Mirrored(
        embedded_lake,
        schema,
        strategy=Strategy.INDEX,
        unchanged_marker="?",
        sequence_column=("lsn", "step"),
    )

    def step(op, lsn, text, key, name=None, amount=0):
        return {**event(op, lsn, key, name, amount), "step": text}

    mirrored.append(*(step("I", 1, "a", key, f"name {key}") for key in range(40)))
    mirrored.merge()
    waves = (
        [step("U", 1, "b", 1, "?", 1), step("D", 2, "a", 2), step("U", 1, "", 3, "late")],
        # A value from before the delete fills nothing after it, one from after it does.
        [step("U", 1, "z", 2, "before"), step("U", 3, "b", 2, "?", 2), step("U", 2, "", 1, "new")],
        [step("U", 2, "a", 1, "?", 3), step("U", 4, "", 2, "?", 3), step("D", 3, "a", 3)],
        [step("I", 3, "b", 3, "?", 4), step("U", 2, "zz", 2, "late"), step("U", 9, "", 50, "?")],
    )
    for wave in waves:
        mirrored.append(*wave)
        assert mirrored.merge().strategy == "index"
        mirrored.check()
    names = {key: row["name"] for (key,), row in mirrored.found().items()}
    assert (names[1], names[2], names[3], names[50]) == ("new", None, None, None)
    # Somebody else writes a row again: the index knows of none then, and a scan decides.
    embedded_lake.sql(f"INSERT INTO {mirrored.mirror} SELECT * FROM {mirrored.mirror} WHERE id = 1")
    mirrored.append(step("U", 5, "", 1, "?", 9), step("U", 5, "", 4, "?", 9))
    report = mirrored.merge()
    assert report.strategy == "scan"
    mirrored.check()


@pytest.mark.parametrize(
    "strategy",
    [Strategy.SCAN, Strategy.INDEX, pytest.param(Strategy.MERGE, marks=pytest.mark.soak)],
)
def test_an_unchanged_marker_in_a_column_that_the_mirror_gets_with_this_batch(
    embedded_lake, strategy
):
    """The mirror is read at a snapshot from before the column."""
    mirrored = Mirrored(embedded_lake, strategy=strategy, unchanged_marker="?")
    mirrored.append(event("I", 1, 1, "a"), event("I", 1, 2, "b"))
    mirrored.merge()
    with evolving(mirrored) as update:
        update.add_column("notes", StringType())
        update.add_column("raw", BinaryType())
    mirrored.append(
        {**event("U", 2, 1, "?"), "notes": "new", "raw": b"new"},
        {**event("U", 2, 2, "c"), "notes": "?", "raw": b"?"},
    )
    mirrored.merge()
    mirrored.append({**event("U", 3, 1, "d"), "notes": "?", "raw": b"?"})
    mirrored.merge()
    assert mirrored.found() == {
        (1,): {"id": 1, "name": "d", "amount": 0, "lsn": 3, "notes": "new", "raw": b"new"},
        (2,): {"id": 2, "name": "c", "amount": 0, "lsn": 2, "notes": None, "raw": None},
    }
