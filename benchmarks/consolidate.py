"""How fast buffered spans and logs become tables: one core, all cores, an old table, a cluster.

    python -m benchmarks.consolidate [one-core] [all-cores] [cluster] [--mib 66]

An embedded lake in a scratch directory, fixed data, the defaults of `neve run` (deduplication too).
Prints a JSON line a measurement. Processor time is that of this process, the JVM and Spark's Python
workers together, after a warm-up. On one core the opponents have one core as well: Spark appends
the same rows from Parquet, which it need not decode, to a table of the same schema, order and
properties; or it writes what tasks decode (docs/decisions/0005-tasks-write-parquet.md).
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import neve
from benchmarks.buffered_records import (
    Data,
    decoded,
    make_data,
    make_days,
    read_buffer,
    write_parquet,
)
from benchmarks.processes import Processes
from neve.config import Settings
from neve.consolidate.consolidator import Consolidator, SparkRunner
from neve.consolidate.plan import BYTES_OF_FILE
from neve.consolidate.spec import ConsolidateSpec
from neve.lake.create import TableSpec, ensure_table
from neve.publish.telemetry_tables import TABLE_PROPERTIES
from neve.signals import Signal
from neve.telemetry.schemas import SCHEMAS
from tests.support import aged
from tests.support.aged_lake import DAY
from tests.support.servers import running_spark_cluster

if TYPE_CHECKING:
    from neve.consolidate.task import Job
    from neve.lake import Lake

CORES = 2
BURST_MIB = 66
SMALL_MIB = 6
MIB = 1024 * 1024
WANTED_RATE, WANTED_RATIO, WANTED_SPEEDUP = 120_000, 0.6, 1.6
CLUSTER_WARM_UP, CLUSTER_ROUNDS = 3, 5
WORKER_MIB = 1024
FILE_MIB = 32
DAYS, WANTED_DAY_FILES = 1_000, 9


class TimedRunner(SparkRunner):
    """Measures how long the tasks of jobs take, from the first to the end of the last."""

    seconds = 0.0

    def __call__(self, job: Job) -> Iterable[Mapping[str, Any]]:
        started = time.perf_counter()
        files = list(super().__call__(job))
        self.seconds += time.perf_counter() - started
        return files


def consolidate(lake: Lake, data: Data, namespace: str) -> float:
    """Return the seconds that a worker takes for all that is buffered."""
    return consolidate_timed(lake, data, namespace)[0]


def consolidate_timed(
    lake: Lake, data: Data, namespace: str, task_mib: float = FILE_MIB
) -> tuple[float, float]:
    """Return the seconds that a worker takes for all that is buffered, and those of its tasks."""
    spec = ConsolidateSpec(data.buffer, namespace, task_bytes=int(task_mib * MIB))
    worker = Consolidator(lake, spec, runner := TimedRunner(lake))
    started = time.perf_counter()
    report = worker.run_once()
    seconds = time.perf_counter() - started
    assert report.rows == data.records, report
    return seconds, runner.seconds


def append_parquet(lake: Lake, data: Data, name: str) -> float:
    """Return the seconds that Spark takes to append the rows, sorted as the table is."""
    table = make_table(lake, data, name)
    write_parquet(data)
    rows = lake.spark.read.parquet(str(data.parquet))
    started = time.perf_counter()
    rows.writeTo(table).option("check-nullability", "false").append()
    return time.perf_counter() - started


def append_decoded(lake: Lake, data: Data, name: str) -> float:
    """Return the seconds that it takes when a task decodes, and Spark writes what it yields."""
    from pyspark.sql.pandas.types import from_arrow_schema

    table = make_table(lake, data, name)
    spec, signal = data.buffer, data.signal

    def work(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for _ in batches:
            for requests in read_buffer(spec, signal):
                yield from decoded(signal, requests).to_batches()

    rows = lake.spark.range(0, 1, 1, 1).mapInArrow(work, from_arrow_schema(SCHEMAS[data.table]))
    started = time.perf_counter()
    rows.writeTo(table).option("check-nullability", "false").append()
    return time.perf_counter() - started


def make_table(lake: Lake, data: Data, name: str) -> str:
    spec = TableSpec(
        ("rival", name),
        SCHEMAS[data.table],
        partition_by_day="timestamp",
        sort_by=("service_name", "timestamp"),
        # Sorted within its tasks, as ours are; no shuffle.
        properties={**TABLE_PROPERTIES, "write.distribution-mode": "none"},
    )
    ensure_table(lake.profile, lake.catalog(), spec)
    return f"rival.{name}"


def tell(name: str, value: float, unit: str, ratio: float | None, wanted: str) -> None:
    rounded = None if ratio is None else round(ratio, 2)
    line = {"name": name, "value": round(value, 1), "unit": unit, "ratio": rounded}
    print(json.dumps({**line, "wanted": wanted}), flush=True)


Fresh = Callable[[Signal, float], Data]


def measure_one_core(lake: Lake, fresh: Fresh, mib: float) -> None:
    """Compare with Spark, one core with one core."""
    small = fresh(Signal.TRACES, SMALL_MIB)
    rivals = {"spark append of Parquet": append_parquet, "decoding, Spark writes": append_decoded}
    for number, rival in enumerate(rivals.values()):
        rival(lake, small, f"warm_{number}")
    consolidate(lake, small, "warm")
    data = fresh(Signal.TRACES, mib / 2)
    theirs = {
        name: rival(lake, data, f"full_{n}") for n, (name, rival) in enumerate(rivals.items())
    }
    rate = data.records / (ours := consolidate(lake, data, "full"))
    for name, seconds in theirs.items():
        wanted = f">= {WANTED_RATIO}" if "Parquet" in name else "the winner is kept"
        tell(f"one core: spans vs {name}", rate, "spans/s", seconds / ours, wanted)


def measure_all_cores(lake: Lake, fresh: Fresh, mib: float) -> None:
    """Measure a burst on two cores: on a new table, on one that looks a day old, on many days."""
    for signal in (Signal.TRACES, Signal.LOGS):
        for namespace in ("warm", "new", "old"):
            data = fresh(signal, SMALL_MIB if namespace == "warm" else mib)
            if namespace == "old":
                table = aged.staging(lake, f"new.{data.table}")
                aged.add_snapshots(table, DAY.snapshots)
                aged.add_files(table, DAY.files)
            with Processes() as processes:
                seconds = consolidate(lake, data, "new" if namespace == "old" else namespace)
            if namespace != "warm":
                _tell_burst(f"{signal.value}, {namespace} table", data, seconds, processes)
            if namespace == "new":
                inspected = lake.catalog().load_table(f"new.{data.table}").inspect.files()
                sizes = sorted(inspected["file_size_in_bytes"].to_pylist())
                has_enough = mib >= CORES * FILE_MIB * BYTES_OF_FILE
                wanted = f">= {FILE_MIB}" if has_enough else "one file for each core"
                tell(f"{signal.value}: smallest of {len(sizes)} files", sizes[0] / MIB, "MiB",
                     None, wanted)  # fmt: skip
    data = make_days(Path(data.buffer.location).parent, DAYS)
    with Processes() as processes:
        seconds = consolidate(lake, data, "days")
    files = len(lake.catalog().load_table("days.logs").inspect.files())
    tell(f"{DAYS} records on {DAYS} days: files", files, "files", None, f"<= {WANTED_DAY_FILES}")
    tell(f"{DAYS} records on {DAYS} days", seconds, "s", None, "6.7 s before")


def _tell_burst(what: str, data: Data, seconds: float, processes: Processes) -> None:
    rate = data.records / processes.processor_seconds
    tell(f"{what}: rows a processor-second", rate, "rows/s", None, f">= {WANTED_RATE}")
    tell(f"{what}: {data.records} rows", seconds, "s", None, "")
    tell(f"{what}: a Python worker's peak memory", processes.peak_mib, "MiB", None,
         f"<= {WORKER_MIB}")  # fmt: skip


def measure_cluster(directory: Path, fresh: Fresh, mib: float) -> None:
    """Compare a standalone cluster of two workers with one of a single worker, a core each.

    Each worker is pinned to its core. The driver is not: it has what the workers leave of both.
    """
    seconds, tasks = [], []
    for workers in (1, 2):
        logs = directory / f"cluster-{workers}"
        logs.mkdir()
        with running_spark_cluster(logs, workers, are_pinned=True) as master:
            conf = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "640m"}
            with neve.open(settings(directory, master, conf, f"cluster{workers}")) as lake:
                for turn in range(CLUSTER_WARM_UP):
                    # Several tasks, so that each worker has imported what it needs.
                    small = fresh(Signal.TRACES, SMALL_MIB)
                    consolidate_timed(lake, small, f"warm{turn}", SMALL_MIB / 8)
                rounds = [
                    consolidate_timed(lake, fresh(Signal.TRACES, mib), f"full{turn}")
                    for turn in range(CLUSTER_ROUNDS)
                ]
        seconds.append(statistics.median(all_of_it for all_of_it, _ in rounds))
        tasks.append(statistics.median(in_tasks for _, in_tasks in rounds))
    tell(f"{mib} MiB, one worker", seconds[0], "s", None, "")
    ratio = seconds[0] / seconds[1]
    tell(f"{mib} MiB, two workers vs one", seconds[1], "s", ratio, f">= {WANTED_SPEEDUP}")
    tell("tasks only, two workers vs one", tasks[1], "s", tasks[0] / tasks[1], "")
    tell("two workers: before and after the tasks", seconds[1] - tasks[1], "s", None, "")


def settings(directory: Path, master: str, conf: dict[str, str], catalog: str) -> Settings:
    return Settings.model_validate(
        {
            "catalog": {
                "uri": f"sqlite:///{directory}/{catalog}.db",
                "warehouse": f"{directory}/{catalog}",
            },
            "spark": {"master": master, "conf": conf, "shared_paths": [str(directory)]},
        }
    )


def main() -> None:
    parts = ("one-core", "all-cores", "cluster")
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", choices=[*parts, []], default=[])
    parser.add_argument("--mib", type=float, default=BURST_MIB)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="neve-bench-") as name,
        # Data is made elsewhere: the memory measured here is the driver's own.
        ProcessPoolExecutor(1, get_context("spawn")) as pool,
    ):
        directory = Path(name)
        made = iter(range(100))

        def fresh(signal: Signal, mib: float) -> Data:
            place = directory / str(next(made))
            return pool.submit(make_data, place, signal, int(mib * MIB)).result()

        for part in options.parts or parts:
            if part == "cluster":
                measure_cluster(directory, fresh, options.mib)
                continue
            cores = 1 if part == "one-core" else CORES
            with neve.open(settings(directory, f"local[{cores}]", {}, part)) as lake:
                measure = measure_one_core if cores == 1 else measure_all_cores
                measure(lake, fresh, options.mib)


if __name__ == "__main__":
    main()
