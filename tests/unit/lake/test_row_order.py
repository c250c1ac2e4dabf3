"""Rows lie in a data file as its sort order says, or the file declares none."""

import itertools
import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    IdentityTransform,
    TruncateTransform,
    UnknownTransform,
)
from pyiceberg.types import (
    DoubleType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
    UUIDType,
)

from neve.lake.data_files import write_data_files

SCHEMA = Schema(
    NestedField(1, "name", StringType()),
    NestedField(2, "price", DoubleType()),
    NestedField(3, "at", TimestamptzType()),
    NestedField(4, "key", UUIDType()),
    NestedField(5, "inner", StructType(NestedField(6, "code", StringType()))),
)
PRICES = [None, math.nan, 0.0, -0.0, 2.5, -math.inf, math.inf, -1.0]
NAMES = [None, "", "b", "ä", "a", "abc"]
DAY = 86_400_000_000
BY_DAY = PartitionSpec(PartitionField(3, 1000, DayTransform(), "at_day"))
DIRECTIONS = [
    (direction, nulls)
    for direction in (SortDirection.ASC, SortDirection.DESC)
    for nulls in (NullOrder.NULLS_FIRST, NullOrder.NULLS_LAST)
]


def rows():
    pairs = list(itertools.product(NAMES, PRICES))
    # In no order of their own, in chunks, on two days.
    pairs = [pairs[(number * 29) % len(pairs)] for number in range(len(pairs))]
    table = pa.table(
        {
            "name": pa.array([name for name, _ in pairs], pa.string()),
            "price": pa.array([price for _, price in pairs], pa.float64()),
            "at": pa.array(
                [DAY * (number % 2) + 1 for number in range(len(pairs))],
                pa.timestamp("us", tz="UTC"),
            ),
        }
    )
    return pa.concat_tables([table.slice(start, 5) for start in range(0, len(table), 5)])


def write(directory, sort_fields, spec=UNPARTITIONED_PARTITION_SPEC, data=None):
    metadata = new_table_metadata(SCHEMA, spec, SortOrder(*sort_fields), str(directory))
    files = write_data_files(metadata, load_file_io(), rows() if data is None else data)
    return [(file, pq.read_table(file.file_path).to_pylist()) for file in files]


def ordered(column, direction, nulls):
    """Return a key function of one sort field, written from Iceberg's specification."""
    sign = 1 if direction is SortDirection.ASC else -1

    def key(row):
        value = row[column]
        if value is None:
            return (0 if nulls is NullOrder.NULLS_FIRST else 2, ())
        if isinstance(value, float):
            rank = (2, 0.0) if math.isnan(value) else (1, value, math.copysign(1, value))
            return (1, tuple(sign * part for part in rank))
        # No byte is a prefix's end: -1 ends each text.
        return (1, tuple(sign * byte for byte in [*value.encode(), -1]))

    return key


@pytest.mark.parametrize("by_name", DIRECTIONS, ids=str)
@pytest.mark.parametrize("by_price", DIRECTIONS, ids=str)
@pytest.mark.parametrize("spec", [UNPARTITIONED_PARTITION_SPEC, BY_DAY], ids=["whole", "by day"])
def test_rows_are_sorted_by_direction_and_null_order_of_each_field(
    tmp_path, by_name, by_price, spec
):
    fields = [
        SortField(1, IdentityTransform(), *by_name),
        SortField(2, IdentityTransform(), *by_price),
    ]
    written = write(tmp_path, fields, spec)
    name_key, price_key = ordered("name", *by_name), ordered("price", *by_price)
    for file, stored in written:
        assert file.sort_order_id == 1
        keys = [(name_key(row), price_key(row)) for row in stored]
        assert keys == sorted(keys)
    assert sum(len(stored) for _, stored in written) == len(rows())


def test_transforms_that_can_be_computed_are_sorted_by(tmp_path):
    ((file, stored),) = write(tmp_path, [SortField(1, TruncateTransform(1), *DIRECTIONS[3])])
    assert file.sort_order_id == 1
    starts = [None if row["name"] is None else row["name"][:1] for row in stored]
    assert [start for start, _ in itertools.groupby(starts)] == ["ä", "b", "a", "", None]
    ((file, stored),) = write(tmp_path, [SortField(1, BucketTransform(4), *DIRECTIONS[0])])
    bucket = BucketTransform(4).transform(StringType())
    buckets = [-1 if row["name"] is None else bucket(row["name"]) for row in stored]
    assert buckets == sorted(buckets)


@pytest.mark.parametrize(
    "field",
    [SortField(1, UnknownTransform("zorder")), SortField(6, IdentityTransform())],
    ids=["unknown transform", "field of a struct"],
)
@pytest.mark.parametrize("spec", [UNPARTITIONED_PARTITION_SPEC, BY_DAY], ids=["whole", "by day"])
def test_an_order_that_cannot_be_computed_is_not_declared(tmp_path, field, spec):
    written = write(tmp_path, [SortField(2, IdentityTransform()), field], spec)
    assert {file.sort_order_id for file, _ in written} == {0}
    assert sum(len(stored) for _, stored in written) == len(rows())


def test_uuids_as_text_are_sorted_by_their_bytes(tmp_path):
    texts = ["B0000000-0000-0000-0000-000000000000", None, "a0000000-0000-0000-0000-000000000000"]
    data = pa.table({"key": pa.array(texts, pa.string())})
    ((file, stored),) = write(tmp_path, [SortField(4, IdentityTransform())], data=data)
    assert file.sort_order_id == 1
    first_bytes = [None if row["key"] is None else _bytes(row["key"])[0] for row in stored]
    assert first_bytes == [None, 0xA0, 0xB0]


def _bytes(value):
    return value if isinstance(value, bytes) else value.bytes
