"""How fast request bytes become committed rows without Spark, against bare Parquet by pyarrow.

    python -m benchmarks.direct_rate

One process and one core: rates are by the processor time of the process, which other work on the
machine disturbs less than the clock. Batches of 50,000 spans, each one commit to an embedded
catalog. The opponent writes the same rows as one Parquet file, with pyarrow's defaults and zstd:
no decoding, no order, no bloom filter, no statistics for manifests, no commit. Both take turns.
Prints a JSON line a measurement; `ratio` is our rate over the opponent's.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.decode import RECORDS, SEED, traces
from neve.config import Settings
from neve.direct import Writer
from neve.direct.request_rows import decode_requests
from neve.signals import Signal

BATCH_SPANS = 50_000
ROUNDS = 7
IMPORTS = 5
WANTED_RATE, WANTED_RATIO, WANTED_IMPORT_SECONDS = 150_000, 0.5, 1.5
_IMPORT = "import time; t = time.perf_counter(); import neve.direct; print(time.perf_counter() - t)"


def report(name: str, value: float, unit: str, wanted: str, **more: float) -> None:
    load = {"load": round(os.getloadavg()[0], 1)}
    print(
        json.dumps({"name": name, "value": value, "unit": unit, **more, "wanted": wanted, **load})
    )


def measured(work: Callable[[], object]) -> tuple[float, float]:
    """Return the processor time and the time by the clock, in seconds."""
    clock, processor = time.perf_counter(), time.process_time()
    work()
    return time.process_time() - processor, time.perf_counter() - clock


def measure_rate(directory: Path) -> None:
    catalog = {
        "type": "sqlite",
        "uri": f"sqlite:///{directory}/catalog.db",
        "warehouse": f"{directory}/warehouse",
    }
    rng = Random(SEED)
    bodies = [traces(rng).SerializeToString() for _ in range(BATCH_SPANS // RECORDS)]
    with Writer.open(Settings.model_validate({"catalog": catalog})) as writer:

        def write() -> None:
            requests = [writer.check(Signal.TRACES, body, sender="shop") for body in bodies]
            results = writer.write_requests(Signal.TRACES, requests)
            if not all(not isinstance(each, Exception) and each.committed for each in results):
                raise RuntimeError(results)

        requests = [writer.check(Signal.TRACES, body, sender="shop") for body in bodies]
        parts = decode_requests(Signal.TRACES, requests)
        rows = pa.concat_tables([part.tables["traces"] for part in parts if part.tables])

        def write_bare() -> None:
            pq.write_table(rows, directory / "bare.parquet", compression="zstd")

        write()
        write_bare()
        ours, theirs = [], []
        for _ in range(ROUNDS):
            ours.append(measured(write))
            theirs.append(measured(write_bare))
    processor, clock = (statistics.median(times) for times in zip(*ours, strict=True))
    bare, _ = (statistics.median(times) for times in zip(*theirs, strict=True))
    report(
        "spans from request bytes to a committed table, one core",
        round(BATCH_SPANS / processor),
        "spans/s",
        f">= {WANTED_RATE} spans/s, >= {WANTED_RATIO} times bare Parquet",
        ratio=round(bare / processor, 2),
        by_the_clock=round(BATCH_SPANS / clock),
        bare_parquet=round(BATCH_SPANS / bare),
    )


def measure_import() -> None:
    seconds = [
        float(subprocess.check_output([sys.executable, "-c", _IMPORT], text=True))
        for _ in range(IMPORTS)
    ]
    wanted = f"<= {WANTED_IMPORT_SECONDS} s"
    report("import neve.direct", round(statistics.median(seconds), 2), "s", wanted)


if __name__ == "__main__":
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    with tempfile.TemporaryDirectory() as temporary:
        measure_rate(Path(temporary))
    measure_import()
