"""The types of columns, told from a table's metadata, are those that DuckDB gives them."""

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

import neve
from neve.query.duckdb_connection import connect_shared
from neve.query.sql_types import SqlType, decimal, of_iceberg
from neve.query.typed import quote_text
from tests.support.lakes import sqlite_settings

PRIMITIVES = [
    *(BooleanType(), IntegerType(), LongType(), FloatType(), DoubleType(), StringType()),
    *(BinaryType(), FixedType(5), UUIDType(), DateType(), TimeType(), TimestampType()),
    *(TimestamptzType(), DecimalType(9, 2), DecimalType(38, 0)),
]
NESTED = [
    ListType(100, DecimalType(10, 3)),
    MapType(101, StringType(), 102, TimestamptzType()),
    StructType(
        NestedField(103, "with space", LongType()),
        NestedField(104, "Inner", ListType(105, StructType(NestedField(106, "x", DateType())))),
    ),
    MapType(107, IntegerType(), 108, ListType(109, MapType(110, StringType(), 111, UUIDType()))),
]


def of_duckdb(kind):
    if kind.id == "decimal":
        return decimal(*(number for _, number in kind.children))
    if kind.id in ("list", "struct", "map"):
        fields = tuple((name, of_duckdb(child)) for name, child in kind.children)
        return SqlType(kind.id.upper(), (), fields)
    return SqlType(str(kind).upper())


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    kinds = [*PRIMITIVES, *NESTED]
    fields = [NestedField(number, f"c{number}", kind) for number, kind in enumerate(kinds, 1)]
    with neve.open(sqlite_settings(tmp_path_factory.mktemp("lake"))) as lake:
        lake.catalog().create_namespace("ns")
        lake.catalog().create_table("ns.t", Schema(*fields))
        yield lake.reader().read(("ns", "t"))


def test_each_column_has_the_type_that_duckdb_gives_it(table):
    location = quote_text(table.metadata_location)
    scan = connect_shared().sql(f"FROM iceberg_scan({location})")
    given = dict(zip(scan.columns, map(of_duckdb, scan.types), strict=True))
    assert {field["name"]: of_iceberg(field["type"]) for field in table.fields} == given
