"""Whatever `neve config check` allows merges: every type as value, key, sequence and partition."""

from __future__ import annotations

import time
from datetime import datetime

import pyarrow as pa
import pytest
from pyspark.sql.functions import lit
from pyspark.sql.types import TimestampNTZType

from neve.merge.shape import literal
from neve.merge.strategy import Strategy
from tests.support.iceberg_types import TRANSFORMS, TYPES, allows, iceberg_type
from tests.support.merging import Mirrored

ROLES = (
    {"primary_keys": "v"},
    {"sequence_column": "v"},
    *({"partition_by": transform} for transform in TRANSFORMS),
)
ALLOWED = [
    pytest.param(name, role, id=f"{name}-{role}")
    for name in TYPES
    for role in ROLES
    if allows(iceberg_type(name), **role)
]


def test_every_type_as_value(embedded_lake):
    """In one mirror, which has a partition of some of them, too."""
    columns = [("id", pa.int64()), ("op", pa.string()), ("lsn", pa.int64())]
    columns += [(name, kind) for name, (kind, _) in TYPES.items()]
    mirrored = Mirrored(
        embedded_lake, pa.schema(columns), partition_by=("boolean", "day(date)", "uuid")
    )
    every = [dict(zip(TYPES, values, strict=True)) for values in zip(*_values(), strict=True)]
    nothing = dict.fromkeys(TYPES)
    for lsn in range(4):
        mirrored.append(
            *(
                {"op": "U", "lsn": lsn, "id": number, **row}
                for number, row in enumerate([*every[lsn % 3 :], *every[: lsn % 3], nothing])
            )
        )
        mirrored.merge()
    mirrored.check()


@pytest.mark.parametrize("strategy", [Strategy.INDEX, Strategy.SCAN, Strategy.MERGE])
def test_an_exact_repeat_of_odd_numbers_is_no_tie(embedded_lake, strategy):
    nested = pa.struct([("x", pa.float64())])
    kinds = {
        "f": pa.float32(),
        "d": pa.float64(),
        "l": pa.list_(pa.float64()),
        "s": nested,
        "m": pa.map_(pa.string(), pa.float64()),
    }
    columns = [("id", pa.int64()), ("op", pa.string()), ("lsn", pa.int64()), *kinds.items()]
    mirrored = Mirrored(embedded_lake, pa.schema(columns), strategy=strategy)
    odd = [float("nan"), float("inf"), -0.0, 0.0]
    events = [
        {"id": n, "op": "U", "lsn": 1, "f": x, "d": x, "l": [x], "s": {"x": x}, "m": [("k", x)]}
        for n, x in enumerate(odd)
    ]
    mirrored.append(*events)
    mirrored.merge()
    mirrored.append(*events)
    # To Spark -0.0 is 0.0, but for the JSON of a map.
    zero = {"id": 2, "op": "U", "lsn": 1, "f": 0.0, "d": 0.0, "l": [0.0], "s": {"x": 0.0}}
    mirrored.append({**zero, "m": [("k", -0.0)]})
    report = mirrored.merge()
    assert (report.superseded, report.repeated, report.ties, report.conflicts) == (1, 4, 0, 0)
    assert (report.strategy, report.rows_upserted) == (strategy.value, 0)


def _values():
    return (values for _, values in TYPES.values())


@pytest.mark.soak
@pytest.mark.parametrize(("name", "role"), ALLOWED)
def test_what_the_check_allows_merges(embedded_lake, name, role):
    """By the index, by a scan, by the index again and by MERGE INTO."""
    kind, values = TYPES[name]
    columns = [("id", pa.int64()), ("v", kind), ("op", pa.string()), ("lsn", pa.int64())]
    mirrored = Mirrored(embedded_lake, pa.schema(columns), **role)
    for number in range(4):
        mirrored.append(
            *(
                # Each key has another value with each batch; as a sequence it rises, and repeats.
                {"op": "U", "lsn": number, "id": 10 * key, "v": values[min(number + key, 2)]}
                for key in range(3)
            ),
            {"op": "D", "lsn": number, "id": 10 * number, "v": values[number % 3]},
        )
        mirrored.merge()
    mirrored.check()


def test_a_time_without_a_zone_is_the_same_as_a_literal_wherever_the_machine_is(
    embedded_lake, monkeypatch, request
):
    request.addfinalizer(time.tzset)
    kind, text = TimestampNTZType(), "2024-05-05 12:00:00"
    with monkeypatch.context() as environment:
        environment.setenv("TZ", "America/New_York")
        time.tzset()
        is_same = literal(datetime.fromisoformat(text), kind) == lit(text).cast(kind)
        assert embedded_lake.spark.range(1).select(is_same).collect()[0][0]
