"""How long `neve sql` takes from the shell to the answer, with DuckDB and with Spark.

    python -m benchmarks.query

The installed command on an embedded lake of a million rows in a scratch directory: the process is
started, reads its configuration, asks, prints and ends. The median of several runs.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

import neve

ROWS = 1_000_000
WANTED_SECONDS = 1.5
RUNS = {"duckdb": 5, "spark": 3}
STATEMENTS = {
    "count": "SELECT count(*) AS rows FROM shop.orders",
    "group": "SELECT city, count(*) AS orders, sum(amount) AS amount FROM shop.orders "
    "WHERE id >= 1000 GROUP BY city ORDER BY city",
}


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        _make_lake(Path(directory))
        for name, statement in STATEMENTS.items():
            answers = {engine: _measure(directory, engine, statement) for engine in RUNS}
            seconds = {engine: answer[0] for engine, answer in answers.items()}
            assert len({answer for _, answer in answers.values()}) == 1, "the engines differ"
            _print(f"query_{name}_spark", seconds["spark"], 1.0, None)
            ratio = seconds["spark"] / seconds["duckdb"]
            _print(f"query_{name}_duckdb", seconds["duckdb"], ratio, f"<= {WANTED_SECONDS}")


def _make_lake(directory: Path) -> None:
    catalog = {
        "uri": f"sqlite:///{directory}/catalog.db",
        "warehouse": str(directory / "warehouse"),
    }
    (directory / "neve.yaml").write_text(json.dumps({"catalog": catalog}))
    random = np.random.default_rng(7)
    rows = pa.table(
        {
            "id": np.arange(ROWS),
            "city": pa.array(["Berlin", "Oslo", "Lyon"]).take(random.integers(0, 3, ROWS)),
            "amount": random.integers(1, 10_000, ROWS),
        }
    )
    with neve.open(str(directory / "neve.yaml")) as lake:
        lake.catalog().create_namespace("shop")
        lake.catalog().create_table("shop.orders", rows.schema).append(rows)


def _measure(directory: str, engine: str, statement: str) -> tuple[float, str]:
    """Return the median of the seconds that the command takes, and what it prints."""
    command = [str(Path(sys.executable).with_name("neve")), "sql", "--engine", engine, statement]
    times = []
    for _ in range(RUNS[engine]):
        started = time.perf_counter()
        done = subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True)
        times.append(time.perf_counter() - started)
    return statistics.median(times), done.stdout


def _print(name: str, seconds: float, ratio: float, wanted: str | None) -> None:
    line = {
        "name": name,
        "value": round(seconds, 3),
        "unit": "s",
        "ratio": round(ratio, 2),
        "wanted": wanted,
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
