"""Reading an embedded catalog without PyIceberg gives what PyIceberg gives."""

import gzip
import sqlite3
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.types import (
    DecimalType,
    FixedType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

import neve
from neve.errors import CatalogError, NotFoundError, StorageError, UnsupportedError
from neve.lake.metadata_reader import CatalogReader, EmbeddedReader
from neve.lake.tables import describe, summarize
from tests.support.lakes import sqlite_settings

PLACE = StructType(
    NestedField(11, "city", StringType(), required=True, doc="its name"),
    NestedField(12, "code", FixedType(4), required=False),
)
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True, doc="the key"),
    NestedField(2, "at", TimestamptzType(), required=False),
    NestedField(3, "price", DecimalType(12, 2), required=False),
    NestedField(4, "place", PLACE, required=False),
    NestedField(5, "tags", ListType(13, StringType(), element_required=False), required=False),
    NestedField(6, "facts", MapType(14, StringType(), 15, PLACE.model_copy()), required=False),
)
SPEC = PartitionSpec(
    PartitionField(2, 1000, DayTransform(), "day"),
    PartitionField(1, 1001, BucketTransform(4), "bucket"),
)
ORDER = SortOrder(SortField(11, IdentityTransform()))


@pytest.fixture
def lake(tmp_path):
    # Paths are taken letter by letter: what is a space here is `%20` on the disk.
    with neve.open(sqlite_settings(tmp_path, warehouse=f"{tmp_path}/w h")) as lake:
        yield lake


@pytest.fixture
def tables(lake):
    """Three tables: one with everything, one with rows and a branch, one in a nested namespace."""
    catalog = lake.catalog()
    for namespace in ("shop", "shop.old", "empty"):
        catalog.create_namespace(namespace)
    schema = Schema(*SCHEMA.fields[:5])
    catalog.create_table("shop.visits", schema, partition_spec=SPEC, sort_order=ORDER)
    numbers = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
    orders = catalog.create_table("shop.orders", numbers.schema, properties={"b": "2", "a": "1"})
    orders.append(numbers)
    orders.manage_snapshots().create_branch(orders.current_snapshot().snapshot_id, "b1").commit()
    orders.append(numbers, snapshot_properties={"neve.note": "more"})
    catalog.create_table("shop.old.orders", numbers.schema)
    return [("shop", "old", "orders"), ("shop", "orders"), ("shop", "visits")]


def test_the_embedded_reader_says_what_pyiceberg_says(lake, tables):
    embedded, through_pyiceberg = lake.reader(), CatalogReader(lake.profile, lake.catalog)
    assert isinstance(embedded, EmbeddedReader)
    for namespace in (None, ("shop",), ("shop", "old"), ("empty",)):
        assert embedded.list_tables(namespace) == through_pyiceberg.list_tables(namespace)
    assert embedded.list_tables() == tables
    for name in tables:
        found, expected = embedded.read(name), through_pyiceberg.read(name)
        assert describe("ns.t", found) == describe("ns.t", expected)
        assert summarize(name, found) == summarize(name, expected)
        assert found.metadata_location == expected.metadata_location
        assert found.staged("b") == expected.staged("b")
    visits = lake.table("shop.visits")
    assert (visits.partition_by, visits.sort_by) == (
        ("day(at)", "bucket[4](id)"),
        ("place.city ASC",),
    )
    for call in (
        lambda reader: reader.list_tables(("shpo",)),
        lambda reader: reader.read(("shop", "order")),
        lambda reader: reader.read(("orders",)),
    ):
        texts = []
        for reader in (embedded, through_pyiceberg):
            with pytest.raises(NotFoundError) as caught:
                call(reader)
            texts.append((caught.value.message, caught.value.hint))
        assert texts[0] == texts[1]


def test_types_are_written_as_pyiceberg_writes_them(lake):
    lake.catalog().create_namespace("shop")
    table = lake.catalog().create_table("shop.visits", SCHEMA)
    columns = lake.table("shop.visits").columns
    assert [column.type for column in columns] == [
        str(field.field_type) for field in table.schema().fields
    ]


def test_reading_makes_nothing(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        assert lake.tables() == []
        assert lake.staged() == []
        with pytest.raises(NotFoundError, match="does not exist"):
            lake.table("shop.orders")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_read_is_said(lake, tables, tmp_path):
    location = Path(lake.reader().read(("shop", "orders")).metadata_location.removeprefix("file:"))
    location = Path("/" + str(location).lstrip("/"))
    content = location.read_bytes()
    location.write_bytes(gzip.compress(content))
    assert lake.table("shop.orders").rows == 6
    location.write_bytes(content[:-9])
    assert [summary.rows for summary in lake.tables()] == [0, None, 0]
    location.unlink()
    assert [summary.rows for summary in lake.tables()] == [0, None, 0]
    with pytest.raises(StorageError, match="No such file"):
        lake.table("shop.orders")
    with sqlite3.connect(tmp_path / "catalog.db") as database:
        database.execute("DELETE FROM iceberg_tables")
    database.close()
    assert lake.tables() == []
    (tmp_path / "catalog.db").write_bytes(b"no database" * 100)
    with pytest.raises(CatalogError, match="is corrupt"):
        lake.tables()


@pytest.mark.parametrize("content", [b"{}", b"[]", b'{"format-version": 2, "location": "file:/t"}'])
def test_a_document_that_is_no_tables_costs_no_other_table(lake, tables, monkeypatch, content):
    reader = lake.reader()
    Path(reader.read(tables[1]).metadata_location.removeprefix("file://")).write_bytes(content)
    for each in (reader, CatalogReader(lake.profile, lake.catalog)):
        monkeypatch.setattr(lake, "reader", lambda *_, each=each: each)
        assert [summary.rows for summary in lake.tables()] == [0, None, 0]
        with pytest.raises(UnsupportedError, match="invalid metadata"):
            lake.table("shop.orders")


def test_a_name_that_nothing_has_is_told_with_those_that_are_near(lake, tables, monkeypatch):
    for reader in (lake.reader(), CatalogReader(lake.profile, lake.catalog)):
        monkeypatch.setattr(lake, "reader", lambda *_, reader=reader: reader)
        for name in ("visits", "sop.visits", "shop.visit", "other.shop.visits"):
            with pytest.raises(NotFoundError, match="does not exist in catalog lake") as caught:
                lake.table(name)
            assert "did you mean shop.visits" in str(caught.value.hint), name


def test_a_table_on_another_store_is_read_through_pyiceberg(lake, tables, monkeypatch):
    reader = lake.reader()
    expected = replace(reader.read(("shop", "orders")), metadata_location="s3://elsewhere/1.json")
    monkeypatch.setattr(CatalogReader, "read", lambda _, name: expected)
    with sqlite3.connect(lake.profile.sqlite_file) as database:
        database.execute("UPDATE iceberg_tables SET metadata_location = 's3://elsewhere/1.json'")
    database.close()
    assert reader.read(("shop", "orders")) == expected


def test_names_are_taken_letter_by_letter(lake, tmp_path):
    """Iceberg decodes no path: a percent sign is a percent sign."""
    lake.catalog().create_namespace("n")
    location = f"file://{tmp_path}/a b%20c%2F+ü"
    lake.catalog().create_table("n.t", pa.schema([("id", pa.int64())]), location=location)
    assert lake.reader().read(("n", "t")).location == location
