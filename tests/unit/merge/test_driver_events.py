"""Events of a small batch are reduced here as Spark would, or not at all."""

from __future__ import annotations

import random
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from neve.lake.plain_types import NeedsSparkError
from neve.merge import columns as cols
from neve.merge.driver_events import newest, ranked
from neve.merge.shape import Shape
from neve.merge.spec import MergeSpec
from neve.merge.transforms import DELETE_RANK, SNAPSHOT_RANK, UPSERT_RANK

ROWS = pa.schema([("id", pa.int64()), ("lsn", pa.int64()), ("name", pa.string())])
EVENTS = ROWS.append(pa.field("op", pa.string()))
SPEC = MergeSpec(("shop", "changes"), ("shop", "rows"), ("id",), ("lsn",))


def shape_of(schema, keys=("id",), sequence=("lsn",)):
    return Shape(keys, sequence, StructType(list(from_arrow_schema(schema))))


def ranks(*operations):
    events = [{"id": 1, "lsn": 2, "name": "a", "op": word} for word in operations]
    rows = ranked(pa.Table.from_pylist(events, EVENTS), SPEC, shape_of(ROWS))
    assert rows.column_names == ["id", "lsn", "name", cols.RANK]
    return rows[cols.RANK].to_pylist()


def test_operations_have_ranks():
    assert ranks("I", " update ", "R", "d", "DELETE") == [
        *(UPSERT_RANK, UPSERT_RANK, SNAPSHOT_RANK, DELETE_RANK, DELETE_RANK)
    ]


@pytest.mark.parametrize("word", ["t", "?", "", None, "\tu", "İ"])
def test_other_operations_need_spark(word):
    with pytest.raises(NeedsSparkError, match="operation"):
        ranks("u", word)


@pytest.mark.parametrize("column", ["id", "lsn"])
def test_events_without_key_or_sequence_need_spark(column):
    event = {"id": 1, "lsn": 2, "name": "a", "op": "u", column: None}
    with pytest.raises(NeedsSparkError, match="NULL"):
        ranked(pa.Table.from_pylist([event], EVENTS), SPEC, shape_of(ROWS))


def as_ordered(row, names):
    """Return what compares rows as the documented order does: NULL is the lowest."""
    return [(row[name] is not None, row[name] or "") for name in names]


def test_the_greatest_event_of_each_key_is_kept():
    schema = pa.schema(
        [
            *(("id", pa.int64()), ("part", pa.string()), ("lsn", pa.decimal128(20, 0))),
            *(("step", pa.string()), ("name", pa.string()), (cols.RANK, pa.int32())),
        ]
    )
    chance = random.Random(3)
    events = [
        {
            "id": chance.randint(-9, 9),
            "part": chance.choice(("", "a", "é")),
            "lsn": Decimal(chance.randint(-2, 2)),
            "step": chance.choice(("", "1", "\x00")),
            "name": chance.choice((None, "", "a", "b")),
            cols.RANK: chance.randint(0, 2),
        }
        for _ in range(3_000)
    ]
    shape = shape_of(schema.remove(5), ("id", "part"), ("lsn", "step"))
    kept = newest(pa.Table.from_pylist(events, schema), shape).to_pylist()
    groups = {}
    for event in events:
        groups.setdefault((event["id"], event["part"]), []).append(event)
    assert len(kept) == len(groups)
    for row in kept:
        group = groups[row["id"], row["part"]]
        best = max(
            group,
            key=lambda one: (one["lsn"], one["step"], one[cols.RANK], *as_ordered(one, ["name"])),
        )
        tied = [one for one in group if (one["lsn"], one["step"]) == (best["lsn"], best["step"])]
        counted = {
            cols.OTHER: None,
            cols.CONTESTED: int(any(one != best for one in tied)),
            cols.EVENTS: len(group),
        }
        assert row == best | counted


def test_nothing_is_reduced_to_nothing():
    rows = ROWS.append(pa.field(cols.RANK, pa.int32())).empty_table()
    assert len(newest(rows, shape_of(ROWS))) == 0


@pytest.mark.parametrize("odd", [float("nan"), 0.0, -0.0])
def test_odd_numbers_are_ordered_by_spark(odd):
    schema = pa.schema([("id", pa.int64()), ("lsn", pa.int64()), ("amount", pa.float64())])
    ranked_schema = schema.append(pa.field(cols.RANK, pa.int32()))

    def reduced(*sequences):
        rows = [{"id": 1, "lsn": lsn, "amount": odd, cols.RANK: UPSERT_RANK} for lsn in sequences]
        return newest(pa.Table.from_pylist(rows, ranked_schema), shape_of(schema))

    assert len(reduced(1, 2)) == 1
    with pytest.raises(NeedsSparkError, match="odd numbers"):
        reduced(1, 1)


def test_keys_that_are_floating_point_numbers_need_spark():
    schema = pa.schema([("id", pa.float64()), ("lsn", pa.int64()), (cols.RANK, pa.int32())])
    with pytest.raises(NeedsSparkError, match="floating-point"):
        newest(schema.empty_table(), shape_of(schema.remove(2)))
