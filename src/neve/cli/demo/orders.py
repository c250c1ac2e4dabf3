"""Orders in a table: two engines write it, three that share no code read it."""

from __future__ import annotations

import random
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from neve.cli.demo.engines import Measure, read_by_all

if TYPE_CHECKING:
    import pyarrow as pa

    from neve.cli.demo.narrator import Narrator
    from neve.lake import Lake

TABLE = "shop.orders"
SEED = 7
_CITIES = ("Chamonix", "Zermatt", "Grindelwald", "Courmayeur")


def tell(lake: Lake, narrator: Narrator) -> list[dict[str, Any]]:
    """Make the table anew, and return what each engine reads in it.

    Raises:
        CatalogError: they do not read the same.
    """
    narrator.step(f"Spark makes {TABLE}, partitioned by day, and writes 1,000 orders.")
    with narrator.working("writing 1,000 orders"):
        lake.sql("CREATE NAMESPACE IF NOT EXISTS shop")
        lake.sql(f"DROP TABLE IF EXISTS {TABLE} PURGE")
        lake.sql(
            f"CREATE TABLE {TABLE} (id BIGINT, city STRING, amount DECIMAL(8, 2), "
            "ordered_at TIMESTAMP) USING iceberg PARTITIONED BY (days(ordered_at))"
        )
        lake.spark.createDataFrame(_orders(0, 1_000)).writeTo(TABLE).append()

    narrator.step("PyIceberg appends 200 more to the same table, without a JVM.")
    with narrator.working("appending 200 orders"):
        table = lake.catalog().load_table(TABLE)
        table.append(_orders(1_000, 200).cast(table.schema().as_arrow()))
        history = lake.query(
            "SELECT date_trunc('second', committed_at) AS committed_at, snapshot_id, operation, "
            "summary['added-records'] AS added, summary['total-records'] AS total "
            f"FROM {TABLE}.snapshots ORDER BY snapshots.committed_at"
        )
    narrator.step("Every commit is a version of the table that can be read again:")
    narrator.show(history.column_names, history.to_pylist())
    with narrator.working("reading the orders with Spark, PyIceberg and DuckDB"):
        return read_by_all(lake, TABLE, _measures())


def _measures() -> list[Measure]:
    import pyarrow.compute as pc

    return [
        Measure("orders", "count(*)", lambda orders: orders.num_rows),
        Measure("revenue", "sum(amount)", lambda orders: pc.sum(orders["amount"]).as_py()),
        Measure("cities", "count(DISTINCT city)", lambda orders: len(orders["city"].unique())),
    ]


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
