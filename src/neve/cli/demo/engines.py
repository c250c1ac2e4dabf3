"""Three engines that share no code read the same table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neve.errors import CatalogError

if TYPE_CHECKING:
    import pyarrow as pa

    from neve.lake import Lake


@dataclass(frozen=True)
class Measure:
    """Something to ask about a table: of engines in SQL, of PyIceberg's rows in Arrow."""

    name: str
    sql: str
    of_rows: Callable[[pa.Table], Any]


def read_by_all(lake: Lake, name: str, measures: Sequence[Measure]) -> list[dict[str, Any]]:
    """Return what each engine reads.

    Raises:
        CatalogError: they do not read the same.
    """
    table = lake.catalog().load_table(name)
    asked = ", ".join(one.sql for one in measures)
    by_spark = lake.query(f"SELECT {asked} FROM {name}").to_pydict().values()
    rows = table.scan().to_arrow()
    answers = {
        "Spark": [column[0] for column in by_spark],
        "PyIceberg": [one.of_rows(rows) for one in measures],
        "DuckDB": _read_by_duckdb(asked, table.metadata_location),
    }
    if len(set(map(tuple, answers.values()))) != 1:
        raise CatalogError(f"the engines do not agree on what {name} holds", hint="report it")
    names = [one.name for one in measures]
    return [
        {"read by": engine, **dict(zip(names, values, strict=True))}
        for engine, values in answers.items()
    ]


def _read_by_duckdb(asked: str, metadata_location: str) -> Sequence[Any]:
    from neve.query.duckdb_connection import connect

    with connect() as database:
        statement = f"SELECT {asked} FROM iceberg_scan(?)"
        return database.execute(statement, [metadata_location]).fetchone() or ()
