"""One rule for what becomes of an event: the truth table, by Spark, by NumPy and end to end."""

from __future__ import annotations

import itertools
from functools import reduce

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, functions
from pyspark.sql.types import StructType

from neve.merge import columns as cols
from neve.merge.locators import decided
from neve.merge.shape import Shape, barrier_column
from neve.merge.strategy import Strategy
from neve.merge.transforms import DELETE_RANK, UPSERT_RANK, disposed
from tests.support.merging import Mirrored, event

SHAPE = Shape(("id",), ("lsn",), StructType().add("id", "long").add("lsn", "long"))
EVENT = 5
# By operation and what is known of the key: what becomes of an event of a lower, an equal and a
# greater sequence than the known one.
TABLE = {
    ("upsert", "nothing"): ("upsert",) * 3,
    ("delete", "nothing"): ("absent",) * 3,
    ("upsert", "tombstone"): ("late", "late", "upsert"),
    ("delete", "tombstone"): ("late", "late", "absent"),
    ("upsert", "row"): ("late", "tie", "upsert"),
    ("delete", "row"): ("late", "remove", "remove"),
}
# What the mirror and the tombstones have, given the known sequence; a row may be older than its
# tombstone in a mirror that was rolled back.
KNOWN = {
    "nothing": [lambda _: (None, None)],
    "tombstone": [lambda known: (None, known)],
    "row": [
        lambda known: (known, None),
        lambda known: (known, known - 1),
        lambda known: (known - 1, known),
        lambda known: (known, known),
    ],
}


def wanted(operation, kind, number, known, barrier):
    if barrier is not None and barrier > EVENT:
        return "truncated away"
    if barrier is not None and kind != "nothing" and known < barrier:
        # A TRUNCATE has removed what was known, and nothing newer is.
        return "upsert" if operation == "upsert" else "absent"
    return TABLE[operation, kind][number]


def every_case(barrier):
    """Return rank, sequence of the row, of the tombstone, and what becomes of the event."""
    for operation, kind in itertools.product(("upsert", "delete"), KNOWN):
        for number, known in enumerate((EVENT + 1, EVENT, EVENT - 1)):
            for row, tombstone in (pair(known) for pair in KNOWN[kind]):
                rank = UPSERT_RANK if operation == "upsert" else DELETE_RANK
                yield rank, row, tombstone, wanted(operation, kind, number, known, barrier)


BARRIERS = (None, EVENT - 2, EVENT - 1, EVENT, EVENT + 1)


@pytest.mark.parametrize("barrier", BARRIERS)
def test_numpy_decides_by_the_truth_table(barrier):
    ranks, rows, tombstones, expected = zip(*every_case(barrier), strict=True)
    # An index has one sequence for a key, the greater of both.
    known = [
        max((one for one in pair if one is not None), default=None)
        for pair in zip(rows, tombstones, strict=True)
    ]
    own = pa.array([EVENT] * len(ranks), pa.int64())
    is_row = np.array([row is not None for row in rows])
    known = pa.array(known, pa.int64())
    assert decided(pa.array(ranks), own, known, is_row, barrier).to_pylist() == list(expected)


def test_spark_decides_by_the_truth_table(embedded_lake):
    cases = [(barrier, *case) for barrier in BARRIERS for case in every_case(barrier)]
    schema = "barrier long, rank int, row long, tombstone long, expected string"
    frame = embedded_lake.spark.createDataFrame(cases, schema)

    def sequence(name):
        return functions.when(
            functions.col(name).isNotNull(), functions.struct(functions.col(name).alias("lsn"))
        )

    events = frame.select(
        "*",
        functions.lit(1).cast("long").alias("id"),
        functions.lit(EVENT).cast("long").alias("lsn"),
        functions.col("rank").alias(cols.RANK),
        functions.lit(None).cast("string").alias(cols.OTHER),
        sequence("row").alias(cols.CURRENT),
        sequence("tombstone").alias(cols.TOMBSTONE),
        functions.when(functions.col("row").isNotNull(), "file").alias(cols.ROW_FILE),
        functions.lit(1).alias(cols.NUMBER),
        functions.lit(1).alias(cols.EVENTS),
    )
    decided = []
    for barrier in BARRIERS:
        of_barrier = events.where(functions.col("barrier").eqNullSafe(functions.lit(barrier)))
        since = barrier_column(None if barrier is None else (str(barrier),), SHAPE)
        decided.append(disposed(of_barrier, SHAPE, since))
    rows = reduce(DataFrame.unionByName, decided).collect()
    assert len(rows) == len(cases)
    assert [row[cols.DISPOSITION] for row in rows] == [row["expected"] for row in rows]


# Spark's decision, which the others take, has such rows in the truth table.
@pytest.mark.parametrize(
    "strategy",
    [
        Strategy.INDEX,
        *(pytest.param(other, marks=pytest.mark.soak) for other in (Strategy.SCAN, Strategy.MERGE)),
    ],
)
def test_a_row_that_is_older_than_its_tombstone(embedded_lake, strategy):
    """Somebody else, or a rollback that lost its commits, has brought a deleted row back."""
    mirrored = Mirrored(embedded_lake, strategy=strategy)
    mirrored.append(*(event("I", 1, key, "a") for key in range(1, 9)))
    mirrored.merge()
    mirrored.append(*(event("D", 5, key) for key in range(1, 6)))
    mirrored.merge()
    rows = ", ".join(f"({key}, 'row', 0, 1)" for key in range(1, 6))
    mirrored.lake.sql(f"INSERT INTO {mirrored.mirror} VALUES {rows}")
    mirrored.append(
        event("U", 4, 1, "late"),
        event("D", 4, 2),
        event("D", 5, 3),
        event("U", 6, 4, "newer"),
        event("D", 6, 5),
    )
    report = mirrored.merge()
    assert report.strategy == strategy.value
    assert (report.late_dropped, report.rows_deleted, report.rows_upserted) == (2, 2, 1)
    names = {key[0]: row["name"] for key, row in mirrored.found().items()}
    assert names == {1: "row", 2: "row", 4: "newer", 6: "a", 7: "a", 8: "a"}
