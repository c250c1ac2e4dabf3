"""A table that many small commits have written, its health, and what maintenance makes of it."""

from __future__ import annotations

import random
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from neve.cli.health import SHOWN_COLUMNS, shown_health
from neve.errors import CatalogError

if TYPE_CHECKING:
    from neve.api import OpenLake
    from neve.cli.demo.narrator import Narrator

TABLE = "shop.visits"
_COMMITS = 24
_VISITS = 25
_PAGES = ("/", "/cart", "/checkout", "/ski", "/socks")


def tell(lake: OpenLake, narrator: Narrator) -> list[dict[str, Any]]:
    """Write small files, maintain the table, and return its health before and after.

    Raises:
        CatalogError: the files were not joined, or rows were lost.
    """
    with narrator.working(f"writing {_COMMITS} small commits"):
        _write(lake)
    narrator.step(f"A job has written {TABLE} in {_COMMITS} small commits. neve health:")
    before = lake.health(TABLE)
    narrator.show(SHOWN_COLUMNS, [shown_health(report) for report in before])
    for finding in before[0].findings:
        narrator.explain(f"{finding.text}: {finding.effect}.")
    with narrator.working("rewriting files"):
        (report,) = lake.maintain(TABLE)
    after = lake.health(TABLE)
    if after[0].files >= before[0].files or after[0].rows != _COMMITS * _VISITS:
        raise CatalogError(f"{TABLE} was not maintained: {report.error}", hint="report it")
    narrator.step(
        "neve maintain rewrites closed hours, sorted, while others write and read; neve run does "
        "it by itself. Its health now:"
    )
    narrator.show(SHOWN_COLUMNS, [shown_health(report) for report in after])
    return [
        {"": when, "score": report.score, "files": report.files, "rows": report.rows}
        for when, report in (("before", before[0]), ("after", after[0]))
    ]


def _write(lake: OpenLake) -> None:
    import pyarrow as pa

    lake.sql(f"DROP TABLE IF EXISTS {TABLE} PURGE")
    lake.sql(
        f"CREATE TABLE {TABLE} (at TIMESTAMP, page STRING, milliseconds BIGINT) USING iceberg "
        "PARTITIONED BY (days(at))"
    )
    lake.sql(f"ALTER TABLE {TABLE} WRITE ORDERED BY page, at")
    table = lake.catalog().load_table(TABLE)
    schema = table.schema().as_arrow()
    pick = random.Random(7)  # noqa: S311 - data for a demo
    start = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
    for commit in range(_COMMITS):
        rows = [
            {
                "at": start + timedelta(minutes=5 * commit, seconds=pick.randrange(300)),
                "page": pick.choice(_PAGES),
                "milliseconds": pick.randrange(5, 900),
            }
            for _ in range(_VISITS)
        ]
        table.append(pa.Table.from_pylist(rows, schema))
