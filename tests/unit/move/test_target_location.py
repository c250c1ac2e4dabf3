"""Where a moved table's files go."""

import pytest

import neve
from neve.config import Settings
from neve.errors import CatalogError, UnsupportedError, UsageError
from neve.lake.registering import registered_table, require_registering
from neve.lake.table_ref import TableRef
from neve.move.target_location import free_location, require_apart, target_location
from tests.support.lakes import TABLE_BUCKET, plain_settings, s3tables_settings, sqlite_settings
from tests.support.servers import S3Server
from tests.support.table_documents import TableHistory

ORDERS = TableRef("lake", ("shop", "eu", "orders"))


@pytest.fixture
def lake(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as opened:
        yield opened


def test_the_warehouse_then_the_namespace_then_the_table_then_the_option(lake, tmp_path):
    warehouse = (tmp_path / "warehouse").as_uri()
    assert target_location(lake, ORDERS, None) == f"{warehouse}/shop/eu/orders"
    lake.catalog().create_namespace(("shop", "eu"), {"location": "s3://eu/"})
    assert target_location(lake, ORDERS, None) == "s3://eu/orders"
    assert target_location(lake, ORDERS, None, "s3a://x/y/") == "s3a://x/y"
    present = TableHistory("s3://there").metadata()
    assert target_location(lake, ORDERS, present) == "s3://there"
    assert target_location(lake, ORDERS, present, "s3a://there/") == "s3://there"
    with pytest.raises(UsageError, match="is at s3://there already"):
        target_location(lake, ORDERS, present, "s3://elsewhere")


@pytest.mark.parametrize("wanted", ["orders", "s3://", "/", "file:///", "s3://b//x/t", "/a/../b"])
def test_what_is_no_directory_is_refused(lake, wanted):
    with pytest.raises(UsageError, match="--location"):
        target_location(lake, ORDERS, None, wanted)


def test_without_any_address_it_must_be_said(tmp_path):
    settings = sqlite_settings(tmp_path, warehouse="lake-house")
    with (
        neve.open(settings.model_copy(update={"catalog": _named_warehouse(settings)})) as lake,
        pytest.raises(UsageError, match="does not say where") as refusal,
    ):
        target_location(lake, ORDERS, None)
    assert "--location" in refusal.value.hint


def _named_warehouse(settings: Settings):
    """As REST servers have it: a name, and no address."""
    return settings.catalog.model_copy(update={"warehouse": "lake-house"})


@pytest.mark.parametrize("target", ["s3a://b/orders", "s3://b/orders/x", "s3://b"])
def test_a_target_inside_its_source_is_refused(target):
    with pytest.raises(UsageError, match="overlaps"):
        require_apart("s3://b/orders/", target)
    require_apart("s3://b/orders", "s3://b/orders_2")


def test_somebody_elses_files_are_left_alone():
    assert free_location("s3://b/t", "uuid", lambda _: False) == "s3://b/t"
    taken = {"s3://b/t"}
    beside = free_location("s3://b/t", "uuid", taken.__contains__)
    assert beside.startswith("s3://b/t-")
    assert beside == free_location("s3://b/t", "uuid", taken.__contains__)
    assert beside != free_location("s3://b/t", "another", taken.__contains__)
    taken.add(beside)
    assert free_location("s3://b/t", "uuid", taken.__contains__) not in taken


def test_a_view_of_that_name_is_told(lake):
    """Java's catalogs keep views in the same database table."""
    catalog = lake.catalog()
    catalog.insert_metadata(ORDERS.identifier, "file:///view.metadata.json")
    with catalog.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE iceberg_tables SET iceberg_type = 'VIEW'")
    table = registered_table(lake, ORDERS)
    assert table.read() is None
    with pytest.raises(CatalogError, match="a view has that name"):
        table.insert("file:///table.metadata.json")


def test_catalogs_that_register_no_tables_are_refused(tmp_path):
    with (
        neve.open(plain_settings(tmp_path)) as lake,
        pytest.raises(UnsupportedError, match="needs a catalog"),
    ):
        require_registering(lake, "lake")
    settings = s3tables_settings("http://127.0.0.1:1", S3Server("http://127.0.0.1:1", TABLE_BUCKET))
    with neve.open(settings) as lake, pytest.raises(UnsupportedError, match="S3 Tables"):
        require_registering(lake, "lake")
