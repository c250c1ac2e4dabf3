"""What a small commit without Spark costs: the first ones, a thousand, ten thousand.

    python -m benchmarks.direct [--commits 10000]

One row a commit, on an embedded lake in a scratch directory. A ratio is the median of the last ten
commits against the median of those around the tenth.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
import uuid
from datetime import datetime, timezone
from pathlib import Path

import pyarrow as pa

import neve
from neve.config import Settings
from neve.lake import Lake
from neve.lake.appends import AppendTable
from neve.lake.commit_loop import CommitCounters, RetryPolicy
from neve.lake.create import ensure_table
from neve.lake.data_files import write_data_files
from neve.publish.telemetry_tables import telemetry_table
from neve.telemetry.schemas import SCHEMAS

WANTED_MS = 150
WANTED_RATIO = 2


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--commits", type=int, default=1000)
    commits: int = parser.parse_args().commits
    with tempfile.TemporaryDirectory() as directory:
        catalog = {
            "uri": f"sqlite:///{directory}/catalog.db",
            "warehouse": str(Path(directory, "warehouse")),
        }
        with neve.open(Settings.model_validate({"catalog": catalog})) as lake:
            milliseconds = _commit_times(lake, commits)
    tenth = statistics.median(milliseconds[5:15])
    last = statistics.median(milliseconds[-10:])
    _print("direct_small_commit", tenth, "ms", wanted=f"<= {WANTED_MS}")
    _print(f"direct_commit_{commits}", last, "ms", ratio=last / tenth, wanted=f"<= {WANTED_RATIO}")
    _print(f"direct_worst_of_{commits}", max(milliseconds[1:]), "ms")


def _commit_times(lake: Lake, commits: int) -> list[float]:
    made = ensure_table(lake.profile, lake.catalog(), telemetry_table("otel", "logs", ()))
    table = AppendTable(lake.profile, made)
    now = datetime.now(timezone.utc)
    row = {"timestamp": now, "received_at": now, "body": "one line"}
    rows = pa.Table.from_pylist([row], SCHEMAS["logs"])
    milliseconds = []
    for _ in range(commits):
        started = time.perf_counter()
        files = write_data_files(table.metadata, table.io, rows, partition_directories=True)
        table.append(files, str(uuid.uuid4()), policy=RetryPolicy(), counters=CommitCounters())
        milliseconds.append((time.perf_counter() - started) * 1000)
    return milliseconds


def _print(
    name: str, value: float, unit: str, *, ratio: float | None = None, wanted: str | None = None
) -> None:
    line = {
        "name": name,
        "value": round(value, 1),
        "unit": unit,
        "ratio": None if ratio is None else round(ratio, 2),
        "wanted": wanted,
    }
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
