"""What making an index costs, against a plain scan of the key column by the same Spark session.

    python -m benchmarks.index_build [rows]

Local Spark on two cores, an embedded lake in a scratch directory, fixed data. Prints a JSON line a
measurement. Each side runs once before it is measured; of three rounds each the best counts.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import neve
from neve.config import Settings
from neve.index import maintain
from neve.index.verify import verify

if TYPE_CHECKING:
    from neve.lake import Lake

CORES = 2
ROWS = 10_000_000
ROUNDS = 3
PRIME = 15_485_863
"""So that keys are in no order; it must not divide the rows."""


def tell(name: str, value: float, unit: str, wanted: str, ratio: float | None = None) -> None:
    line = {"name": name, "value": round(value, 3), "unit": unit}
    print(json.dumps({**line, "ratio": ratio and round(ratio, 2), "wanted": wanted}), flush=True)


def best(work: Callable[[], Any]) -> tuple[float, Any]:
    taken, result = [], work()
    for _ in range(ROUNDS):
        started = time.perf_counter()
        result = work()
        taken.append(time.perf_counter() - started)
    return min(taken), result


def make_mirror(lake: Lake, name: str, rows: int, key: str) -> None:
    """Make a table that looks like a mirror, without the merges that would have made it."""
    properties = {
        "format-version": "3",
        "neve.merge.keys": '["id"]',
        "neve.merge.sequence": '["lsn"]',
        "write.target-file-size-bytes": str(64 * 1024 * 1024),
    }
    listed = ", ".join(f"'{one}' = '{value}'" for one, value in properties.items())
    lake.sql("CREATE NAMESPACE IF NOT EXISTS bench")
    lake.sql(
        f"CREATE TABLE bench.{name} USING iceberg TBLPROPERTIES ({listed}) AS "
        f"SELECT {key} AS id, concat('name ', id % 1000) AS name, id * 7 % 1000 AS amount, "
        f"id + 1000 AS lsn FROM range(0, {rows}, 1, 8)"
    )


def measure(lake: Lake, name: str, bytes_wanted: int) -> None:
    def scan() -> None:
        lake.spark.table(f"bench.{name}").select("id").write.format("noop").mode("overwrite").save()

    scanned, _ = best(scan)
    tell(f"index_scan_{name}", scanned, "s", "")
    built, done = best(lambda: maintain.build(lake, ("bench", name)))
    tell(f"index_build_{name}", built, "s", "<= 4", built / scanned)
    size = done.root.size / done.root.rows
    tell(f"index_bytes_{name}", size, "bytes/row", f"<= {bytes_wanted}", size)
    started = time.perf_counter()
    found = verify(lake, ("bench", name))
    if found.differences:
        raise SystemExit(f"the index differs: {found}")
    tell(f"index_verify_{name}", time.perf_counter() - started, "s", "")


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    with tempfile.TemporaryDirectory() as directory:
        settings = Settings.model_validate(
            {
                "catalog": {
                    "type": "sqlite",
                    "uri": f"sqlite:///{directory}/catalog.db",
                    "warehouse": str(Path(directory) / "warehouse"),
                },
                "spark": {"master": f"local[{CORES}]"},
            }
        )
        with neve.open(settings) as lake:
            make_mirror(lake, "bigint", rows, f"id * {PRIME} % {rows}")
            measure(lake, "bigint", 24)
            make_mirror(lake, "text", rows // 5, "uuid()")
            measure(lake, "text", 40)


if __name__ == "__main__":
    main()
