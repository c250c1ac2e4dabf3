"""A warehouse is where its name says: nothing is made beside it. No JVM."""

import subprocess

import pyarrow as pa
import pytest

import neve
from neve.config import Settings
from neve.errors import ConfigError, UnsupportedError
from neve.lake.catalog import open_catalog
from neve.lake.create import TableSpec, ensure_table
from neve.lake.metadata_reader import open_reader
from neve.lake.profile import profiles
from neve.lake.warehouse import require_usable_warehouse
from tests.support.lakes import plain_settings, sqlite_settings

ROWS = pa.table({"n": [1, 2, 3]})
TABLE = ("shop", "orders")
# `#` and `?` are refused; the others every engine takes for letters.
NAMES = ("My Projects", "Übung", "U\u0308bung", "a%20b", "a+b", "~a", "a😀b", "a=b&c,d;e:f@g'h")


def profile_of(settings: Settings):
    return profiles(settings)["lake"]


def lake_in(directory):
    directory.mkdir(parents=True, exist_ok=True)
    return profile_of(sqlite_settings(directory))


@pytest.mark.parametrize("name", NAMES)
def test_tables_are_made_in_the_directory_that_is_named(tmp_path, name):
    profile = lake_in(tmp_path / name)
    catalog = open_catalog(profile)
    ensure_table(profile, catalog, TableSpec(TABLE, ROWS.schema)).append(ROWS)
    assert [each.name for each in tmp_path.iterdir()] == [name]
    assert (tmp_path / name / "warehouse/shop/orders/data").is_dir()
    metadata = open_reader(profile, lambda: catalog).read(TABLE)
    assert metadata.location == f"file://{tmp_path}/{name}/warehouse/shop/orders"


@pytest.mark.parametrize("name", ["a#b", "a?b", 'a"b', "a\nb", "a\udcffb"])
def test_a_directory_is_refused_that_an_engine_would_take_for_another(tmp_path, name):
    profile = profile_of(sqlite_settings(tmp_path / name))
    with pytest.raises(ConfigError, match="not every engine"):
        open_catalog(profile)
    assert list(tmp_path.iterdir()) == []


def test_a_lake_in_a_directory_that_is_refused_now_stays_where_it_was_made(tmp_path):
    old = tmp_path / "a%23b/warehouse"
    (old / "shop").mkdir(parents=True)
    with pytest.raises(ConfigError) as refusal:
        require_usable_warehouse(profile_of(sqlite_settings(tmp_path / "a#b")))
    assert refusal.value.hint == f"set catalog.warehouse to {old}"
    require_usable_warehouse(profile_of(sqlite_settings(tmp_path / "a#b", warehouse=str(old))))


@pytest.mark.parametrize("identifier", [("shop", "a#b"), ("a?b", "orders")])
def test_a_table_is_refused_whose_directory_an_engine_would_take_for_another(tmp_path, identifier):
    profile = lake_in(tmp_path)
    catalog = open_catalog(profile)
    with pytest.raises(UnsupportedError, match="not every engine"):
        ensure_table(profile, catalog, TableSpec(identifier, ROWS.schema))
    assert catalog.list_namespaces() == []


def test_a_prefix_of_a_bucket_is_refused_that_java_would_cut_off():
    settings = Settings.model_validate({"catalog": {"warehouse": "s3://lake/a#b"}})
    with pytest.raises(ConfigError, match=r"catalog\.warehouse: .* '#'"):
        require_usable_warehouse(profile_of(settings))


def test_a_lake_made_under_the_name_as_in_a_url_is_found_and_moved_by_the_hint(tmp_path):
    old, new = tmp_path / "My%20Projects/lake", tmp_path / "My Projects/lake"
    profile = lake_in(old)
    before = ensure_table(profile, open_catalog(profile), TableSpec(TABLE, ROWS.schema))
    before.append(ROWS)
    # As it was made: the catalog's file is where it was named, the tables are in the other place.
    settings = sqlite_settings(old, warehouse=str(new / "warehouse"))
    with pytest.raises(ConfigError) as refusal:
        neve.open(settings)
    assert f"are in {old}/warehouse" in refusal.value.message
    assert not (new / "warehouse").exists()

    hint = refusal.value.hint or ""
    command = hint.removeprefix("move them: ").partition(", or ")[0]
    subprocess.run(command, shell=True, check=True)
    catalog = open_catalog(profile_of(settings))
    assert (new / "warehouse/shop/orders/data").is_dir()
    assert catalog.load_table(TABLE).scan().to_arrow() == ROWS


def test_an_address_as_in_a_url_is_refused_where_the_directory_it_means_exists(tmp_path):
    (tmp_path / "My Projects").mkdir()
    address = f"file://{tmp_path}/My%20Projects/lake"
    settings = Settings.model_validate({"catalog": {"warehouse": address}})
    with pytest.raises(ConfigError) as refusal:
        require_usable_warehouse(profile_of(settings))
    assert (refusal.value.hint or "").endswith(f"{tmp_path}/My Projects/lake")
    (tmp_path / "My%20Projects").mkdir()
    require_usable_warehouse(profile_of(settings))


def test_plain_parquet_is_refused_where_a_catalog_would_be(tmp_path):
    with pytest.raises(ConfigError):
        require_usable_warehouse(profile_of(plain_settings(tmp_path / "a#b")))
    require_usable_warehouse(profile_of(plain_settings(tmp_path / "a b")))


def test_the_name_of_a_rest_servers_warehouse_is_passed_on_as_it_is():
    settings = Settings.model_validate(
        {"catalog": {"type": "rest", "uri": "http://c", "warehouse": "production #1"}}
    )
    profile = profile_of(settings)
    require_usable_warehouse(profile)
    assert profile.spark_conf()["spark.sql.catalog.lake.warehouse"] == "production #1"
    assert profile.pyiceberg_properties()["warehouse"] == "production #1"
