"""One table read by three engines that share no code, as plain rows that can be compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from neve.lake import Lake
from neve.query.run import run

Rows = list[dict[str, Any]]


def _plain(table: pa.Table, by: str = "id") -> Rows:
    rows = table.to_pylist(maps_as_pydicts="strict")
    return sorted(rows, key=lambda row: row[by])


def read_with_spark(lake: Lake, name: str, by: str = "id") -> Rows:
    return _plain(lake.query(f"SELECT * FROM {name}"), by)


def read_with_pyiceberg(lake: Lake, name: str, by: str = "id") -> Rows:
    return _plain(lake.catalog().load_table(name).scan().to_arrow(), by)


def read_with_duckdb(lake: Lake, name: str, by: str = "id") -> Rows:
    """Read as `neve sql --engine duckdb` does."""
    answer = run(lake, f"SELECT * FROM {name}", "duckdb")
    return _plain(pa.Table.from_batches(answer.batches, answer.schema), by)


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
