"""How fast buffered spans become a table, against Spark appending them already decoded.

    python -m benchmarks.consolidate [spans]

Local Spark on two cores, an embedded lake in a scratch directory, fixed data. Prints a JSON line a
measurement. The opponent appends the same rows from Parquet, which it need not decode, to a table
of the same schema, order and properties. A second rival decodes in its tasks as we do, and has
Spark write what they yield (docs/decisions/0005-tasks-write-parquet.md).
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

import neve
from benchmarks.decode import RECORDS, SEED, traces
from neve.buffer.buffer import open_buffer, open_reader
from neve.buffer.payload import NO_SENDER, Codec, Request
from neve.buffer.spec import BufferSpec
from neve.config import Settings
from neve.consolidate.consolidator import Consolidator, SparkRunner
from neve.consolidate.spec import ConsolidateSpec
from neve.lake.create import TableSpec, ensure_table
from neve.publish.telemetry_tables import TABLE_PROPERTIES
from neve.signals import Signal
from neve.telemetry.decode import decode
from neve.telemetry.schemas import SCHEMAS

if TYPE_CHECKING:
    from neve.lake import Lake

CORES = 2
# Enough for two tasks, one for each core.
SPANS = 1_600_000
GROWTH = 8
MIB = 1024 * 1024
FILE_MIB = 32
WANTED_RATIO, WANTED_RATE = 0.6, 80_000
WORKER_MIB = 2048
SAMPLE_SECONDS = 0.1
TRACES = "traces"


@dataclass(frozen=True)
class Data:
    """The same spans twice: as the receiver stores requests, and as Parquet."""

    spans: int
    buffer: BufferSpec
    parquet: Path


@cache
def make_request(number: int) -> tuple[int, bytes]:
    """Return a request of a thousand spans as it came, compressed; and how long it was before.

    Ids are its own: repeated ones would make smaller files than real spans do.
    """
    plain = traces(Random(SEED + number)).SerializeToString()
    return len(plain), gzip.compress(plain, 6, mtime=0)


def make_data(directory: Path, spans: int) -> Data:
    data = Data(spans, BufferSpec(str(directory / "buffer"), dedup_seconds=0), directory / "rows")
    data.parquet.mkdir(parents=True)
    fill_buffer(data)
    for number, batch in enumerate(read_buffer(data.buffer)):
        pq.write_table(decoded(batch), data.parquet / f"{number}.parquet")
    return data


def fill_buffer(data: Data) -> None:
    with open_buffer(data.buffer, [Signal.TRACES.value]) as buffer:
        for number in range(data.spans // RECORDS):
            raw_bytes, stored = make_request(number)
            request = Request(
                payload=stored,
                codec=Codec.GZIP,
                raw_bytes=raw_bytes,
                records=RECORDS,
                received_unix_nano=time.time_ns(),
                sender=NO_SENDER,
                content_hash=hashlib.sha256(number.to_bytes(8, "big")).digest(),
            )
            buffer.append(Signal.TRACES.value, request).durable.result(60)


def read_buffer(spec: BufferSpec) -> Iterator[pa.RecordBatch]:
    reader = open_reader(spec)
    for stream in reader.streams(Signal.TRACES.value):
        for segment in reader.segments(stream.stream):
            yield from reader.read(segment)


def decoded(requests: pa.RecordBatch) -> pa.Table:
    columns = (requests.column(name) for name in ("payload", "received_unix_nano", "sender_name"))
    return pa.concat_tables(
        part.tables[TRACES] for part in decode(Signal.TRACES, *columns) if TRACES in part.tables
    )


def consolidate(lake: Lake, data: Data, namespace: str) -> float:
    """Return the seconds that a worker takes for all that is buffered."""
    worker = Consolidator(lake, ConsolidateSpec(data.buffer, namespace), SparkRunner(lake))
    started = time.perf_counter()
    report = worker.run_once()
    seconds = time.perf_counter() - started
    assert report.rows == data.spans, report
    return seconds


def append_parquet(lake: Lake, data: Data, name: str) -> float:
    """Return the seconds that Spark takes to append the rows, sorted as the table is."""
    table = make_table(lake, name)
    rows = lake.spark.read.parquet(str(data.parquet))
    started = time.perf_counter()
    rows.writeTo(table).option("check-nullability", "false").append()
    return time.perf_counter() - started


def append_decoded(lake: Lake, data: Data, name: str) -> float:
    """Return the seconds that it takes when tasks decode, and Spark writes what they yield."""
    from pyspark.sql.pandas.types import from_arrow_schema

    table = make_table(lake, name)
    spec = data.buffer

    def work(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                for position, requests in enumerate(read_buffer(spec)):
                    if position % CORES == number:
                        yield from decoded(requests).to_batches()

    tasks = lake.spark.range(0, CORES, 1, CORES)
    rows = tasks.mapInArrow(work, from_arrow_schema(SCHEMAS[TRACES]))
    started = time.perf_counter()
    rows.writeTo(table).option("check-nullability", "false").append()
    return time.perf_counter() - started


def make_table(lake: Lake, name: str) -> str:
    spec = TableSpec(
        ("rival", name),
        SCHEMAS[TRACES],
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


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class Workers:
    """Spark's Python workers: the most that one of them had in memory while the block ran."""

    def __init__(self) -> None:
        self.peak_mib = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Workers:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            self.peak_mib = max([self.peak_mib, *map(_resident_mib, _workers())])


def _workers() -> Iterator[Path]:
    """Yield the processes forked by pyspark's daemon, which is a child of our JVM."""
    mine = {os.getpid()}
    # A child has a higher number than its parent, but where they begin anew.
    for process in sorted(Path("/proc").glob("[0-9]*"), key=lambda path: int(path.name)):
        with suppress(OSError, StopIteration):
            lines = (process / "status").read_text().splitlines()
            parent = next(line for line in lines if line.startswith("PPid:"))
            if int(parent.split()[1]) in mine:
                mine.add(int(process.name))
                if b"pyspark.daemon" in (process / "cmdline").read_bytes():
                    yield process


def _resident_mib(process: Path) -> float:
    with suppress(OSError, StopIteration):
        lines = (process / "status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmRSS:")).split()[1]) / 1024
    return 0.0


def measure(lake: Lake, fresh: Callable[[int], Data], spans: int) -> None:
    small = fresh(spans // GROWTH)
    rivals = {"spark append of Parquet": append_parquet, "decoding, Spark writes": append_decoded}
    for number, rival in enumerate(rivals.values()):
        rival(lake, small, f"warm_{number}")
    consolidate(lake, small, "warm")
    small_seconds = consolidate(lake, fresh(spans // GROWTH), "small")
    before = peak_mib()
    data = fresh(spans)
    theirs = {
        name: rival(lake, data, f"full_{n}") for n, (name, rival) in enumerate(rivals.items())
    }
    with Workers() as workers:
        ours = consolidate(lake, data, "full")
    rate = spans / ours
    for name, seconds in theirs.items():
        wanted = f">= {WANTED_RATIO}" if "Parquet" in name else "the winner is kept"
        tell(f"consolidate spans vs {name}", rate, "spans/s", seconds / ours, wanted)
    files = lake.catalog().load_table(f"full.{TRACES}").inspect.files()["file_size_in_bytes"]
    sizes = sorted(files.to_pylist())
    # A file is written by one task, on one core.
    per_core = rate / min(CORES, len(sizes))
    tell("consolidate spans per core in use", per_core, "spans/s", None, f">= {WANTED_RATE}")
    growth = ours / small_seconds
    tell(f"{GROWTH} times the spans", ours, "s", growth, f"<= {GROWTH + 1} times the time")
    growth = peak_mib() / before
    tell("driver's peak memory meanwhile", peak_mib(), "MiB", growth, "<= 1.1 times that before")
    wanted = f"<= {WORKER_MIB}"
    tell("a Python worker's peak memory", workers.peak_mib, "MiB", None, wanted)
    wanted = f">= {FILE_MIB}, or all of the batch"
    tell(f"smallest of {len(sizes)} files", sizes[0] / MIB, "MiB", None, wanted)


def main(spans: int) -> None:
    with tempfile.TemporaryDirectory(prefix="neve-bench-") as name:
        directory = Path(name)
        settings = Settings.model_validate(
            {
                "catalog": {
                    "uri": f"sqlite:///{directory}/catalog.db",
                    "warehouse": f"{directory}/warehouse",
                },
                "spark": {"master": f"local[{CORES}]"},
            }
        )
        made = iter(range(10))
        # Data is made elsewhere: the memory measured here is the driver's own.
        with ProcessPoolExecutor(1, get_context("spawn")) as pool, neve.open(settings) as lake:

            def fresh(count: int) -> Data:
                return pool.submit(make_data, directory / str(next(made)), count).result()

            measure(lake, fresh, spans)


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else SPANS)
