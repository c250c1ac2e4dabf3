"""Orders in a table: two engines write it, three that share no code read it."""

from __future__ import annotations

import random
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from neve.errors import CatalogError, SetupError

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from neve.cli.output import Output
    from neve.lake import Lake

TABLE = "shop.orders"
QUERY = f"SELECT city, count(*) AS orders FROM {TABLE} GROUP BY city ORDER BY city"
SEED = 7
_CITIES = ("Chamonix", "Zermatt", "Grindelwald", "Courmayeur")


def tell(lake: Lake, output: Output, step: Callable[[str], None]) -> list[dict[str, Any]]:
    """Make the table anew, and return what each engine reads in it.

    Raises:
        CatalogError: they do not read the same.
    """
    lake.sql("CREATE NAMESPACE IF NOT EXISTS shop")
    lake.sql(f"DROP TABLE IF EXISTS {TABLE} PURGE")
    step(f"Spark makes {TABLE}, partitioned by day, and writes 1,000 orders.")
    lake.sql(
        f"CREATE TABLE {TABLE} (id BIGINT, city STRING, amount DECIMAL(8, 2), "
        "ordered_at TIMESTAMP) USING iceberg PARTITIONED BY (days(ordered_at))"
    )
    lake.spark.createDataFrame(_orders(0, 1_000)).writeTo(TABLE).append()

    step("PyIceberg appends 200 more to the same table, without a JVM.")
    table = lake.catalog().load_table(TABLE)
    table.append(_orders(1_000, 200).cast(table.schema().as_arrow()))

    step("Every commit is a version of the table that can be read again:\n")
    history = lake.query(
        f"SELECT committed_at, snapshot_id, operation, summary['added-records'] AS added, "
        f"summary['total-records'] AS total FROM {TABLE}.snapshots ORDER BY committed_at"
    )
    output.show(history.column_names, history.to_pylist())
    output.say("")
    step("Three engines that share no code read it. The results:")
    table.refresh()
    results = [_read_by_spark(lake), _read_by_pyiceberg(table), _read_by_duckdb(table)]
    if len({tuple(result.values())[1:] for result in results}) != 1:
        raise CatalogError("the engines do not agree on what the table holds", hint="report it")
    return results


def _orders(first: int, count: int) -> pa.Table:
    import pyarrow as pa

    pick = random.Random(SEED + first)  # noqa: S311 - data for a demo
    start = datetime(2026, 1, 1, tzinfo=timezone.utc)
    return pa.table(
        {
            "id": pa.array(range(first, first + count), pa.int64()),
            "city": [pick.choice(_CITIES) for _ in range(count)],
            "amount": pa.array(
                [Decimal(pick.randrange(500, 20_000)) / 100 for _ in range(count)],
                pa.decimal128(8, 2),
            ),
            "ordered_at": pa.array(
                [start + timedelta(minutes=pick.randrange(5 * 24 * 60)) for _ in range(count)],
                pa.timestamp("us", tz="UTC"),
            ),
        }
    )


def _result(engine: str, orders: int, revenue: object, cities: int) -> dict[str, Any]:
    return {"read by": engine, "orders": orders, "revenue": str(revenue), "cities": cities}


def _read_by_spark(lake: Lake) -> dict[str, Any]:
    totals = f"SELECT count(*), sum(amount), count(DISTINCT city) FROM {TABLE}"
    answer = lake.query(totals).to_pylist(maps_as_pydicts="lossy")[0]
    return _result("Spark", *answer.values())


def _read_by_pyiceberg(table: Any) -> dict[str, Any]:
    import pyarrow.compute as pc

    orders = table.scan().to_arrow()
    revenue = pc.sum(orders["amount"]).as_py()
    return _result("PyIceberg", orders.num_rows, revenue, len(orders["city"].unique()))


def _read_by_duckdb(table: Any) -> dict[str, Any]:
    try:
        import duckdb
        import duckdb_extensions
    except ImportError as error:
        raise SetupError(
            "the demo reads with DuckDB, which is not installed", hint="pip install 'neve[demo]'"
        ) from error
    with duckdb.connect() as database:
        for extension in ("avro", "iceberg"):
            duckdb_extensions.import_extension(extension, con=database)
            database.load_extension(extension)
        answer = database.execute(
            "SELECT count(*), sum(amount), count(DISTINCT city) FROM iceberg_scan(?)",
            [table.metadata_location],
        ).fetchone()
    return _result("DuckDB", *(answer or ()))
