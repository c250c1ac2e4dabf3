"""Small batches are reduced here exactly as Spark reduces them."""

from __future__ import annotations

import random
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from neve.merge import columns as cols
from neve.merge.driver_events import newest
from neve.merge.locators import IndexLocator
from neve.merge.shape import Shape
from neve.merge.strategy import Strategy
from neve.merge.transforms import latest
from tests.support.merging import Mirrored

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
WORDS = ("", "a", "a\x00", "Z", "é", "𝄞", "\uffff")
VALUES = {
    "word": (pa.string(), WORDS),
    "raw": (pa.binary(), (b"", b"\x00", b"\x7f", b"\x80\xff")),
    "price": (pa.decimal128(9, 2), tuple(map(Decimal, ("-1.50", "0.00", "9.99")))),
    "day": (pa.date32(), (date(1, 1, 1), date(1969, 12, 31), date(2026, 1, 1))),
    "at": (pa.timestamp("us", "UTC"), (EPOCH - timedelta(microseconds=1), EPOCH)),
    "flag": (pa.bool_(), (False, True)),
    "ratio": (pa.float64(), (-1.5, 2.25, float("inf"), float("-inf"))),
    "count": (pa.int32(), (-(2**31), -1, 0, 2**31 - 1)),
}
SCHEMA = pa.schema(
    [
        *(("id", pa.int64()), ("part", pa.string()), ("lsn", pa.int64()), ("step", pa.string())),
        *((name, kind) for name, (kind, _) in VALUES.items()),
    ]
)


def random_event(chance, number):
    event = {name: chance.choice((None, *values)) for name, (_, values) in VALUES.items()}
    # A third differ from their neighbours in one column only, and some in none.
    kept = chance.choice((*VALUES, None)) if chance.random() < 0.7 else "all"
    if kept != "all":
        event = {name: value if name == kept else None for name, value in event.items()}
    return event | {
        "id": number % 40 - 20,
        "part": WORDS[number % 3],
        "lsn": chance.choice((-1, 0, 0, 2**62)),
        "step": chance.choice(WORDS),
        cols.RANK: chance.choice((0, 1, 1, 1, 2)),
    }


def test_events_are_reduced_as_spark_reduces_them(embedded_lake):
    chance = random.Random(5)
    events = [random_event(chance, number) for number in range(6_000)]
    rows = pa.Table.from_pylist(events, SCHEMA.append(pa.field(cols.RANK, pa.int32())))
    columns = StructType(list(from_arrow_schema(SCHEMA)))
    shape = Shape(("id", "part"), ("lsn", "step"), columns)
    other = pa.nulls(len(rows), pa.string())
    frame = embedded_lake.spark.createDataFrame(rows.append_column(cols.OTHER, other))
    by_spark, here = latest(frame, shape).toArrow(), newest(rows, shape)
    assert 0 < sum(here[cols.CONTESTED].to_pylist()) < len(here)
    by_key = [("id", "ascending"), ("part", "ascending")]
    by_spark, here = (
        each.select(sorted(each.column_names)).sort_by(by_key) for each in (by_spark, here)
    )
    assert here.schema.names == by_spark.schema.names
    assert here.schema.types == by_spark.schema.types
    assert here.to_pylist() == by_spark.to_pylist()


PLAIN = {"id": 1, "name": "a", "amount": 1, "op": "u", "lsn": 5}


@pytest.mark.parametrize(
    ("events", "is_small"),
    [
        ([PLAIN, {**PLAIN, "id": 2, "op": "d"}, {**PLAIN, "lsn": 4, "op": "r"}], True),
        ([PLAIN, {**PLAIN, "id": None}], False),
        ([PLAIN, {**PLAIN, "lsn": None}], False),
        ([PLAIN, {**PLAIN, "op": "nothing"}], False),
        ([PLAIN, {**PLAIN, "id": None, "op": "t", "lsn": 6}], False),
    ],
    ids=["plain", "no key", "no sequence", "unknown", "truncate"],
)
def test_only_plain_batches_are_merged_without_a_job(embedded_lake, monkeypatch, events, is_small):
    mirrored = Mirrored(embedded_lake, strategy=Strategy.INDEX)
    mirrored.append({**PLAIN, "lsn": 1}, {**PLAIN, "id": 3, "lsn": 1})
    mirrored.merge()
    calls, decided_here = [], IndexLocator.decided_here

    def spying(*args):
        calls.append(args)
        return decided_here(*args)

    monkeypatch.setattr(IndexLocator, "decided_here", spying)
    mirrored.append(*events)
    mirrored.merge()
    mirrored.check()
    assert bool(calls) == is_small
