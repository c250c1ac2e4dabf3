"""One table read by three engines that share no code, as plain rows that can be compared."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa

from neve.lake import Lake
from neve.query.duckdb_connection import connect, load_extension

Rows = list[dict[str, Any]]


def _plain(table: pa.Table, by: str = "id") -> Rows:
    rows = table.to_pylist(maps_as_pydicts="strict")
    return sorted(rows, key=lambda row: row[by])


def read_with_spark(lake: Lake, name: str, by: str = "id") -> Rows:
    return _plain(lake.query(f"SELECT * FROM {name}"), by)


def read_with_pyiceberg(lake: Lake, name: str, by: str = "id") -> Rows:
    return _plain(lake.catalog().load_table(name).scan().to_arrow(), by)


def read_with_duckdb(lake: Lake, name: str, by: str = "id") -> Rows:
    """Read from the metadata file alone, without the catalog."""
    location = lake.catalog().load_table(name).metadata_location
    with _duckdb().cursor() as database:
        _reach_storage(database, lake)
        return _plain(database.execute("FROM iceberg_scan(?)", [location]).to_arrow_table(), by)


@cache
def _duckdb() -> duckdb.DuckDBPyConnection:
    """Load DuckDB's extensions once: that takes longer than reading a table."""
    database = connect()
    load_extension(database, "httpfs")
    return database


READERS: dict[str, Callable[..., Rows]] = {
    "Spark": read_with_spark,
    "PyIceberg": read_with_pyiceberg,
    "DuckDB": read_with_duckdb,
}


def read_with_all(lake: Lake, name: str) -> dict[str, Rows]:
    return {engine: read(lake, name) for engine, read in READERS.items()}


def by_all(rows: Rows) -> dict[str, Rows]:
    """Return what `read_with_all` returns when every engine sees just these rows."""
    return dict.fromkeys(READERS, rows)


def _reach_storage(database: duckdb.DuckDBPyConnection, lake: Lake) -> None:
    storage = lake.settings.storage
    if not (storage.endpoint and storage.access_key_id and storage.secret_access_key):
        return
    database.execute(
        "CREATE OR REPLACE SECRET storage (TYPE s3, KEY_ID $key, SECRET $secret, REGION $region, "
        "ENDPOINT $endpoint, URL_STYLE 'path', USE_SSL false)",
        {
            "key": storage.access_key_id,
            "secret": storage.secret_access_key.get_secret_value(),
            "region": storage.region,
            "endpoint": storage.endpoint.removeprefix("http://"),
        },
    )
