"""The mirror as a table: how it is partitioned, and whose it is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DoubleType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
)

from neve.errors import ConfigError
from neve.merge.mirror import mirror_properties, mirror_schema, partition_spec, require_ours
from neve.merge.spec import MergeSpec
from tests.support.snapshots import append, metadata_of

SPEC = MergeSpec(("ns", "changes"), ("ns", "rows"), ("id",), ("lsn",))
CHANGELOG = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "lsn", LongType(), required=True),
    NestedField(3, "op", StringType(), required=True),
    NestedField(4, "at", TimestampType(), required=False),
    NestedField(5, "the name", StringType(), required=False, doc="as printed"),
    NestedField(6, "rate", DoubleType(), required=False),
    NestedField(7, "place", StructType(NestedField(8, "x", LongType(), required=False))),
)
SCHEMA = mirror_schema(SPEC, CHANGELOG)


def test_a_mirror_has_the_changelog_s_columns_but_the_operation_and_all_may_be_null():
    assert [field.name for field in SCHEMA.fields] == [
        "id",
        "lsn",
        "at",
        "the name",
        "rate",
        "place",
    ]
    assert not any(field.required for field in SCHEMA.fields)
    assert SCHEMA.find_field("the name").doc == "as printed"


@pytest.mark.parametrize(
    ("text", "transform", "name"),
    [
        ("id", "identity", "id"),
        ("bucket(16, id)", "bucket[16]", "id_bucket"),
        ("bucket( 16 ,the name )", "bucket[16]", "the name_bucket"),
        ("truncate(8, the name)", "truncate[8]", "the name_truncate"),
        ("year(at)", "year", "at_year"),
        ("months(at)", "month", "at_month"),
        (" day(at) ", "day", "at_day"),
        ("hours(at)", "hour", "at_hour"),
    ],
)
def test_partitions_as_people_write_them(text, transform, name):
    (field,) = partition_spec(replace(SPEC, partition_by=(text,)), SCHEMA).fields
    assert (str(field.transform), field.name) == (transform, name)


def test_several_partitions():
    fields = partition_spec(replace(SPEC, partition_by=("day(at)", "bucket(4, id)")), SCHEMA).fields
    assert [(field.source_id, field.field_id) for field in fields] == [(4, 1000), (1, 1001)]


@pytest.mark.parametrize(
    "text",
    [
        *("nothing", "op", "day(nothing)", "", "week(at)", "bucket(id)", "bucket(0, id)"),
        *("truncate(0, id)", "day(id)", "day(4, at)", "bucket(4, id", "bucket(x, id)"),
        *("bucket(4, rate)", "place", "truncate(4, at)", "id, at"),
    ],
)
def test_partitions_that_cannot_be_are_refused_by_name(text):
    with pytest.raises(ConfigError) as caught:
        partition_spec(replace(SPEC, partition_by=(text,)), SCHEMA)
    assert f"ns.rows: partition_by {text}" in caught.value.message
    assert caught.value.hint


def test_two_partitions_of_one_name_are_refused():
    with pytest.raises(ConfigError, match="partition_by"):
        partition_spec(replace(SPEC, partition_by=("bucket(4, id)", "bucket(8, id)")), SCHEMA)
    taken = Schema(*SCHEMA.fields, NestedField(9, "at_day", LongType(), required=False))
    with pytest.raises(ConfigError, match="at_day is there already"):
        partition_spec(replace(SPEC, partition_by=("day(at)",)), taken)


def test_a_mirror_is_known_by_its_keys_and_sequence():
    ours = metadata_of(append(1), properties=mirror_properties(SPEC, "uuid"))
    require_ours(SPEC, ours)
    with pytest.raises(ConfigError, match="not made by Neve"):
        require_ours(SPEC, metadata_of(append(1)))
    with pytest.raises(ConfigError, match=r"made with primary_keys id, and .* says id, at"):
        require_ours(replace(SPEC, keys=("id", "at")), ours)
    with pytest.raises(ConfigError, match=r"made with sequence_column lsn, and .* says at"):
        require_ours(replace(SPEC, sequence=("at",)), ours)
