"""`neve demo`: the pipeline on an embedded lake, told step by step."""

from __future__ import annotations

import random
import sys
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neve.errors import CatalogError, SetupError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from neve.cli.output import Output
    from neve.lake import Lake

CONFIG = """\
# Made by neve demo. Everything below lies in this directory.
project: demo
catalog:
  type: sqlite
"""
TABLE = "shop.orders"
SEED = 7
_CITIES = ("Chamonix", "Zermatt", "Grindelwald", "Courmayeur")


def demo(
    context: typer.Context,
    directory: Annotated[
        Path, typer.Option("--dir", metavar="D", help="Where the lake is made and left.")
    ] = Path("neve-demo"),
) -> None:
    """Run the pipeline on an embedded lake with data it makes, and leave it to explore."""
    from neve.lake import open_lake

    output = context.obj.output
    config = _prepare(directory)
    output.say(
        f"A lake in {directory}: a catalog in one SQLite file, tables as Parquet beside it.\n"
    )
    with output.working("starting"), open_lake(config, output.progress) as lake:
        results = _tell(lake, output)
    output.rows(("read by", "orders", "revenue", "cities"), results)
    if len({tuple(result.values())[1:] for result in results}) != 1:
        raise CatalogError("the engines do not agree on what the table holds", hint="report it")
    where = f"{sys.argv[0]} -c {config}"
    output.say(
        f"\nAll three agree. The lake stays in {directory}; try:\n"
        f"  {where} tables\n"
        f"  {where} describe {TABLE}\n"
        f'  {where} sql "SELECT city, count(*) AS orders FROM {TABLE} GROUP BY city ORDER BY city"'
    )


def _prepare(directory: Path) -> Path:
    """Make the directory, or recognise an earlier demo; never touch anything else's."""
    config = directory / "neve.yaml"
    try:
        if directory.exists() and any(directory.iterdir()) and not _is_ours(config):
            raise UsageError(
                f"{directory} is not empty and not an earlier demo", hint="choose another --dir"
            )
        directory.mkdir(parents=True, exist_ok=True)
        config.write_text(CONFIG, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{directory} cannot be used: {error.strerror}", hint="choose another --dir"
        ) from error
    return config


def _is_ours(config: Path) -> bool:
    return config.is_file() and config.read_text(encoding="utf-8") == CONFIG


def _tell(lake: Lake, output: Output) -> list[dict[str, Any]]:
    lake.sql("CREATE NAMESPACE IF NOT EXISTS shop")
    lake.sql(f"DROP TABLE IF EXISTS {TABLE} PURGE")
    output.say(f"1. Spark makes {TABLE}, partitioned by day, and writes 1,000 orders.")
    lake.sql(
        f"CREATE TABLE {TABLE} (id BIGINT, city STRING, amount DECIMAL(8, 2), "
        "ordered_at TIMESTAMP) USING iceberg PARTITIONED BY (days(ordered_at))"
    )
    lake.spark.createDataFrame(_orders(0, 1_000)).writeTo(TABLE).append()

    output.say("2. PyIceberg appends 200 more to the same table, without a JVM.")
    table = lake.catalog().load_table(TABLE)
    table.append(_orders(1_000, 200).cast(table.schema().as_arrow()))

    output.say("3. Every commit is a version of the table that can be read again:\n")
    history = lake.query(
        f"SELECT committed_at, snapshot_id, operation, summary['added-records'] AS added, "
        f"summary['total-records'] AS total FROM {TABLE}.snapshots ORDER BY committed_at"
    )
    output.show(history.column_names, history.to_pylist())

    output.say("4. Three engines that share no code read it:\n")
    table.refresh()
    return [_read_by_spark(lake), _read_by_pyiceberg(table), _read_by_duckdb(table)]


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
