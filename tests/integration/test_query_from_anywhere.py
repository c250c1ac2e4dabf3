"""docs/query-from-anywhere.md: only addresses, keys and paths are ours."""

import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import duckdb
import duckdb_extensions
import pyarrow as pa
import pytest

import neve
from tests.support.lakes import TOKEN, postgres_settings, rest_settings, sqlite_settings
from tests.support.pages import blocks_of
from tests.support.servers import REGION

PAGE = Path(__file__).parents[2] / "docs" / "query-from-anywhere.md"
BLOCKS = blocks_of(PAGE)
CATALOGS = ("sqlite", "postgres", "rest")
ROWS = {
    "service_name": ["shop", "shop", "bank"],
    "name": ["a", "b", "c"],
    "duration_nano": [1, 2, 3],
}
COUNTED = [{"service_name": "bank", "spans": 1}, {"service_name": "shop", "spans": 2}]
PRINTED = [
    "3",
    "{'bank': 1, 'shop': 2}",
    "[{'service_name': 'bank', 'spans': 1}, {'service_name': 'shop', 'spans': 2}]",
    "[('bank', 1), ('shop', 2)]",
]


def blocks(language):
    return [block.text for block in BLOCKS if block.language == language]


@pytest.fixture(params=CATALOGS)
def catalog(request):
    return request.param


@pytest.fixture
def settings(catalog, request, tmp_path):
    """A lake with the table that the page reads, made without Spark."""
    if catalog == "sqlite":
        settings = sqlite_settings(tmp_path / ".neve")
        (tmp_path / ".neve").mkdir()
    elif catalog == "postgres":
        settings = postgres_settings(*map(request.getfixturevalue, ("postgres", "s3")))
    else:
        proxy = request.getfixturevalue("token_proxy")
        s3 = request.getfixturevalue("s3")
        settings = rest_settings(proxy.uri, s3, token=TOKEN)
    with neve.open(settings) as lake:
        catalog = lake.catalog()
        catalog.create_namespace_if_not_exists("otel")
        table = catalog.create_table("otel.traces", pa.table(ROWS).schema)
        table.append(pa.table(ROWS))
        yield settings
        catalog.drop_table("otel.traces")


def with_our_places(text, settings):
    """Replace what the page has in place of the reader's own addresses and keys."""
    storage, catalog = settings.storage, settings.catalog
    ours = {}
    if catalog.type == "postgres":
        login, _, host = catalog.uri.removeprefix("postgresql://").partition("@")
        user, _, password = login.partition(":")
        text = re.sub(r"(jdbc\.user +)neve", rf"\g<1>{user}", text)
        ours = {
            "neve:$PGPASSWORD": login,
            "$PGPASSWORD": unquote(password),
            "db.example.com/lake": host,
            "s3://my-bucket/warehouse": catalog.warehouse,
        }
    if catalog.type == "rest":
        ours = {"https://catalog.example.com": catalog.uri, "$CATALOG_TOKEN": TOKEN}
        ours["'token'"] = f"'{TOKEN}'"
    if catalog.type != "sqlite":
        secret = storage.secret_access_key.get_secret_value()
        ours |= {
            "https://s3.example.com": storage.endpoint,
            "'s3.example.com', URL_STYLE 'path'": f"'{storage.endpoint.removeprefix('http://')}', "
            "URL_STYLE 'path', USE_SSL false",
            "$S3_KEY": storage.access_key_id,
            "'key'": f"'{storage.access_key_id}'",
            "$S3_SECRET": secret,
            "'secret'": f"'{secret}'",
            "eu-central-1": REGION,
        }
    for documented, value in ours.items():
        text = text.replace(documented, value)
    return text


def install_duckdb_extensions():
    """Put extensions where INSTALL finds them; they are packages here, and not downloaded."""
    with duckdb.connect() as database:
        for extension in ("avro", "httpfs", "iceberg"):
            duckdb_extensions.import_extension(extension, con=database)


# The libraries are the same for each catalog; REST is the one with a token and a store.
@pytest.mark.parametrize(
    "catalog", ["sqlite", pytest.param("postgres", marks=pytest.mark.soak), "rest"], indirect=True
)
def test_python_libraries(settings, catalog, tmp_path):
    """Of DuckDB what has no storage to be told about: see below for the other."""
    install_duckdb_extensions()
    exports = with_our_places(blocks("bash")[CATALOGS.index(catalog)], settings)
    environment = dict(re.findall(r"^export (\w+)=(.*)$", exports, re.M))
    examples = [text for text in blocks("python") if catalog == "sqlite" or "duckdb" not in text]
    ran = subprocess.run(
        [sys.executable, "-c", "\n".join(examples)],
        cwd=tmp_path,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == PRINTED[: len(examples)]


def test_spark(settings, catalog, embedded_lake, tmp_path):
    """In a session of its own, with the settings of the page and no others of a catalog."""
    examples = [text for text in blocks("properties") if text.startswith("spark.")]
    example = with_our_places(examples[CATALOGS.index(catalog)], settings)
    example = example.replace(".neve", str(tmp_path / ".neve"))
    spark = embedded_lake.spark.newSession()
    for name in spark.conf.getAll:
        if name.startswith("spark.sql.catalog.lake"):
            spark.conf.unset(name)
    properties = dict(re.findall(r"^(spark\.sql\S+) +(\S+)$", example, re.M))
    assert len(properties) == len(example.splitlines()) - 1
    for name, value in properties.items():
        spark.conf.set(name, value)
    (query,) = [text for text in blocks("sql") if text.startswith("SELECT")]
    assert [row.asDict() for row in spark.sql(query).collect()] == COUNTED


@pytest.mark.parametrize("catalog", ["rest"], indirect=True)
def test_duckdb_attaches_a_rest_catalog(settings):
    install_duckdb_extensions()
    (script,) = [text for text in blocks("sql") if "ATTACH" in text]
    with duckdb.connect() as database:
        counted = database.execute(with_our_places(script, settings)).fetchall()
    assert counted == [("bank", 1), ("shop", 2)]
