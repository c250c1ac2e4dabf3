"""Catalog profiles: the same section, told to both engines. Pure."""

import pytest

from neve.config import Settings
from neve.errors import UnsupportedError, UsageError
from neve.lake.profile import DEFAULT_CATALOG, profile_named, profiles

ARN = "arn:aws:s3tables:eu-west-1:111122223333:bucket/lake"
STORAGE = {
    "endpoint": "http://127.0.0.1:9000",
    "region": "eu-north-1",
    "access_key_id": "id",
    "secret_access_key": "secret",
    "path_style": True,
}


def profile(catalog, storage=None):
    settings = Settings.model_validate({"catalog": catalog, "storage": storage or {}})
    return profile_named(settings, DEFAULT_CATALOG)


def spark_properties(found):
    prefix = "spark.sql.catalog.lake."
    conf = found.spark_conf()
    assert conf["spark.sql.catalog.lake"] == "org.apache.iceberg.spark.SparkCatalog"
    return {
        key.removeprefix(prefix): value for key, value in conf.items() if key.startswith(prefix)
    }


def test_sqlite_gives_both_engines_the_same_file_and_warehouse(tmp_path):
    found = profile({"uri": f"sqlite:///{tmp_path}/my db.sqlite", "warehouse": f"{tmp_path}/w h"})
    spark, python = spark_properties(found), found.pyiceberg_properties()
    assert spark["type"] == "jdbc"
    assert spark["jdbc.schema-version"] == "V1"
    assert spark["uri"].startswith(f"jdbc:sqlite:{tmp_path}/my db.sqlite?")
    assert python["uri"].startswith(f"sqlite:///{tmp_path}/my%20db.sqlite?")
    assert spark["warehouse"] == python["warehouse"] == f"file://{tmp_path}/w h"
    assert found.local_warehouse == tmp_path / "w h"


def test_postgres_splits_the_login_off_for_jdbc_only():
    uri = "postgresql://user:p%40ss@db.example:5433/cat?sslmode=require"
    found = profile({"type": "postgres", "uri": uri, "warehouse": "s3://b/w"}, STORAGE)
    spark, python = spark_properties(found), found.pyiceberg_properties()
    assert spark["uri"] == "jdbc:postgresql://db.example:5433/cat?sslmode=require"
    assert (spark["jdbc.user"], spark["jdbc.password"]) == ("user", "p@ss")
    assert python["uri"] == uri.replace("postgresql://", "postgresql+psycopg2://")


def test_rest_passes_token_or_credential_and_properties_to_both():
    found = profile(
        {
            "type": "rest",
            "uri": "http://c",
            "credential": "id:secret",
            "properties": {"scope": "catalog", "warehouse": "named"},
        }
    )
    for properties in (spark_properties(found), found.pyiceberg_properties()):
        assert properties["type"] == "rest"
        assert properties["credential"] == "id:secret"
        assert properties["scope"] == "catalog"
        assert properties["warehouse"] == "named"


def test_object_storage_reaches_both_engines():
    found = profile({"type": "rest", "uri": "http://c", "token": "t"}, STORAGE)
    spark, python = spark_properties(found), found.pyiceberg_properties()
    for properties in (spark, python):
        assert properties["s3.endpoint"] == "http://127.0.0.1:9000"
        assert properties["s3.access-key-id"] == "id"
        assert properties["s3.secret-access-key"] == "secret"
    assert spark["client.region"] == python["s3.region"] == "eu-north-1"
    assert spark["s3.path-style-access"] == "true"


def test_s3tables_signs_for_the_region_of_its_bucket():
    found = profile({"type": "s3tables", "warehouse": ARN}, STORAGE)
    spark, python = spark_properties(found), found.pyiceberg_properties()
    for properties in (spark, python):
        assert properties["uri"] == "https://s3tables.eu-west-1.amazonaws.com/iceberg"
        assert properties["warehouse"] == ARN
        assert properties["rest.signing-name"] == "s3tables"
        assert properties["rest.signing-region"] == "eu-west-1"
    assert spark["rest.auth.type"] == "sigv4"
    assert python["rest.sigv4-enabled"] == "true"


def test_user_properties_win():
    found = profile({"properties": {"io-impl": "my.Io", "cache-enabled": True}})
    assert spark_properties(found)["io-impl"] == "my.Io"
    assert spark_properties(found)["cache-enabled"] == "true"


def test_none_has_no_catalog_and_says_so():
    found = profile({"type": "none"})
    assert found.spark_conf() == {}
    with pytest.raises(UnsupportedError, match="merging needs a catalog"):
        found.require_catalog("merging")


def test_named_catalogs_bring_their_own_storage_or_share_it():
    settings = Settings.model_validate(
        {
            "storage": STORAGE,
            "catalogs": {
                "a": {"type": "rest", "uri": "http://a"},
                "b": {"type": "rest", "uri": "http://b", "storage": {"endpoint": "http://s"}},
            },
        }
    )
    found = profiles(settings)
    assert list(found) == ["lake", "a", "b"]
    assert found["a"].pyiceberg_properties()["s3.endpoint"] == "http://127.0.0.1:9000"
    assert found["b"].pyiceberg_properties()["s3.endpoint"] == "http://s"
    with pytest.raises(UsageError, match="there is no catalog c"):
        profile_named(settings, "c")


@pytest.mark.parametrize(
    ("warehouse", "is_ours"),
    [("s3://b/w", True), ("s3a://b/w", True), ("gs://b/w", False), ("/data/w", False)],
)
def test_files_of_s3_are_read_by_single_requests_unless_another_file_io_is_named(
    tmp_path, warehouse, is_ours
):
    catalog = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": warehouse}
    named = profile(catalog).pyiceberg_properties().get("py-io-impl")
    assert named == ("neve.lake.object_io.ObjectFileIO" if is_ours else None)
    theirs = {"py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"}
    properties = profile({**catalog, "properties": theirs}).pyiceberg_properties()
    assert properties["py-io-impl"] == theirs["py-io-impl"]
