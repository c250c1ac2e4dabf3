"""What every type of Iceberg may be in a mirror: key, sequence, value, source of a partition.

`tests/spark/test_merge_types.py` merges whatever is allowed here.
"""

from __future__ import annotations

import pytest
from pyiceberg.types import TimestampNanoType, TimeType

from tests.support.iceberg_types import TRANSFORMS, TYPES, allows, iceberg_type

NESTED = {"list<string>", "map<string, long>", "struct<x: long>"}
UNORDERED = NESTED | {"boolean", "float", "double", "uuid", "fixed[3]"}
TIMES = {"timestamp", "timestamptz"}
NUMBERS = {"int", "long", "decimal(9, 2)", "decimal(38, 10)"}
PARTITIONS = {
    "v": set(TYPES) - NESTED - {"fixed[3]"},
    "bucket(4, v)": set(TYPES) - NESTED - {"boolean", "float", "double"},
    "truncate(2, v)": NUMBERS | {"string", "binary"},
    "year(v)": TIMES | {"date"},
    "month(v)": TIMES | {"date"},
    "day(v)": TIMES | {"date"},
    "hour(v)": TIMES,
}


@pytest.mark.parametrize("name", TYPES)
def test_what_a_type_may_be(name):
    kind = iceberg_type(name)
    assert str(kind) == name or name in NESTED
    assert allows(kind)
    assert allows(kind, primary_keys="v") == (name not in NESTED)
    assert allows(kind, sequence_column="v") == (name not in UNORDERED)
    for transform in TRANSFORMS:
        assert allows(kind, partition_by=transform) == (name in PARTITIONS[transform]), transform


@pytest.mark.parametrize("kind", [TimeType(), TimestampNanoType()], ids=str)
def test_types_that_spark_does_not_have(kind):
    roles = ({}, {"primary_keys": "v"}, {"sequence_column": "v"}, {"partition_by": "v"})
    assert not any(allows(kind, **role) for role in roles)
    assert allows(kind, exclude_columns=["v"])
