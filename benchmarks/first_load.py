"""First loads of a mirror: how long they take, and what memory, by the number of rows.

    python -m benchmarks.first_load [--rows 2000000,8000000]

Local Spark on two cores with its default memory, an embedded lake in a scratch directory, a new
process for each size, since peaks are the highest of a process's life. The changelog has an insert
of each row; a merge loads it in one commit and builds the index right after it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from pyspark.sql import functions as F  # noqa: N812 - as everywhere

import neve
from benchmarks.merge import with_columns
from benchmarks.processes import Processes
from neve.config import Settings

MILLION = 1_000_000
FILES_OF_CHANGELOG = 16
# What a batch has elsewhere: a first load takes no notice of it.
BATCH = MILLION


@dataclass(frozen=True)
class Load:
    """What a first load took, and left behind."""

    seconds: float
    snapshots: int
    index_entries: int
    worker_mib: float
    java_mib: float


def first_load(rows: int) -> Load:
    """Load a mirror of so many rows, in a process that has done nothing before."""
    with (
        tempfile.TemporaryDirectory(prefix="neve-bench-") as directory,
        neve.open(_settings(Path(directory))) as lake,
        Processes() as processes,
    ):
        lake.sql("CREATE NAMESPACE bench")
        numbers = lake.spark.range(0, rows, 1, FILES_OF_CHANGELOG)
        events = with_columns(numbers, "bigint", F.lit(1)).withColumn("op", F.lit("c"))
        events.writeTo("bench.changes").using("iceberg").create()
        began = time.monotonic()
        (report,) = lake.merge("bench.rows")
        seconds = time.monotonic() - began
        mirror = lake.load(lake.ref("bench.rows"))
        totals = [each.summary["total-records"] for each in mirror.metadata.snapshots]
    return Load(
        seconds,
        # The first one is that of a mirror without rows.
        sum(total != "0" for total in totals),
        report.index_entries,
        processes.peak_mib,
        processes.java_peak_mib,
    )


def _settings(directory: Path) -> Settings:
    table = {
        "namespace": "bench",
        "changelog_table": "changes",
        "mirror_table": "rows",
        "primary_keys": "id",
        "sequence_column": "lsn",
    }
    return Settings.model_validate(
        {
            "catalog": {
                "uri": f"sqlite:///{directory}/catalog.db",
                "warehouse": str(directory / "warehouse"),
            },
            "spark": {"master": "local[2]", "conf": {"spark.local.dir": str(directory / "spill")}},
            "merge": {"batch_size": BATCH, "tables": [table]},
        }
    )


def tell(name: str, value: float, unit: str, wanted: str) -> None:
    line = {"name": name, "value": round(value, 2), "unit": unit, "ratio": None, "wanted": wanted}
    print(json.dumps(line), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", default=f"{2 * MILLION},{8 * MILLION}")
    for rows in map(int, parser.parse_args().rows.split(",")):
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            load = pool.submit(first_load, rows).result()
        if load.index_entries != rows:
            raise SystemExit(f"the index has {load.index_entries} entries of {rows}")
        name = f"first_load_{rows // MILLION}m"
        tell(name, load.seconds, "s", "")
        tell(f"{name}_rate", rows / load.seconds, "rows/s", "")
        tell(f"{name}_snapshots", load.snapshots, "snapshots", "<= 1")
        tell(f"{name}_worker_memory", load.worker_mib, "MiB", "<= 1024")
        tell(f"{name}_java_memory", load.java_mib, "MiB", "")


if __name__ == "__main__":
    main()
