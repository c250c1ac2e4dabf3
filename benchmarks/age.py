"""What a small batch costs in a lake that looks a day, a week or a month old, against a new one.

    python -m benchmarks.age [--ages day,week,month] [--store disk|s3] [--runs 7]

Age is written as metadata: snapshots, data files and their manifests, streams, requests in the
dedup window, files of the ledger (`tests/support/aged_lake.py`). A batch has ten requests of one
log record each; its cost is a whole round of a worker: look into the buffer, decode (here, without
Spark), stage, publish, retire. An expiry removes as many snapshots at each age, of real appends,
and their files. A ratio is against a new lake of the same run. Lakes are measured by turns, so that
what else the machine does slows each of them alike.

With `--store s3`, the buffer and the tables are on the local S3 server behind a proxy that adds
30 ms to each request. The proxy is part of this process, so that time counts there, and not
processor time.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import pyarrow as pa

from neve.config import Settings
from neve.lake import Lake
from neve.lake.appends import AppendTable
from neve.lake.commit_loop import CommitCounters, RetryPolicy
from neve.lake.data_files import write_data_files
from neve.telemetry.schemas import SCHEMAS
from tests.support.aged_expiry import expiring_table
from tests.support.aged_lake import (
    DAY,
    LOGS,
    MONTH,
    NEW,
    WEEK,
    Age,
    AgedLake,
    Cost,
    aged_lake,
    embedded_settings,
)
from tests.support.install import S3, install
from tests.support.proxy import Forward, Request, Response, running_proxy
from tests.support.servers import REGION, S3Server, running_s3

WANTED_MS = 250
WANTED_LISTS = 2
WANTED_RATIO = 1.5
DELAY_SECONDS = 0.03
BUFFER = "buffer"
# Writes to the ledger and direct commits take a tenth of a batch: more of them, so that the few
# that merge manifests and what else the machine does weigh less.
_SMALL_RUNS = 5
_EXPIRIES = 3
T = TypeVar("T")
AGES = {age.name: age for age in (DAY, WEEK, MONTH)}


@dataclass
class SlowStore:
    """A gate that counts requests and lets each take longer."""

    delay_seconds: float = DELAY_SECONDS
    counts: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, request: Request, forward: Forward) -> Response:
        kind = request.method
        if "list-type" in request.query:
            (prefix,) = request.query.get("prefix", [""])
            kind = "LIST_of_buffer" if prefix.startswith(BUFFER) else "LIST_of_tables"
        with self.lock:
            self.counts[kind] += 1
        time.sleep(self.delay_seconds)
        return forward(request)


@dataclass
class Measured:
    """Medians of an age: batches, writes to the ledger, direct commits; requests of a batch.

    Args:
        metadata_bytes: of the table's newest metadata file, which each commit writes.
    """

    batch: Cost
    ledger: Cost
    direct: Cost
    metadata_bytes: int
    requests: dict[str, float] = field(default_factory=dict)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ages", default="day,week,month")
    parser.add_argument("--store", choices=("disk", "s3"), default="disk")
    parser.add_argument("--runs", type=int, default=7)
    options = parser.parse_args()
    ages = (NEW, *(AGES[name] for name in options.ages.split(",")))
    with ExitStack() as stack:
        lakes = [stack.enter_context(_opened(age, options.store)) for age in ages]
        # As the service does once it has begun: else a collection would look at all lakes.
        gc.collect()
        gc.freeze()
        measured = _measure(lakes, options.runs)
    for age, of_age in zip(ages, measured, strict=True):
        _tell(age, options.store, of_age, measured[0] if age is not NEW else None)
    _tell_expiry(ages, options.store, _measure_expiry(ages, options.store))


@dataclass
class _Opened:
    """A lake, and what counts the requests to its store."""

    lake: AgedLake
    slow: SlowStore | None


@contextmanager
def _opened(age: Age, store: str) -> Iterator[_Opened]:
    with tempfile.TemporaryDirectory() as directory:
        if store == "disk":
            with aged_lake(age, embedded_settings(Path(directory))) as lake:
                yield _Opened(lake, None)
            return
        slow = SlowStore()
        with (
            _slow_settings(Path(directory), slow) as (settings, measured),
            aged_lake(age, settings, measured) as lake,
        ):
            yield _Opened(lake, slow)


def _measure(lakes: Sequence[_Opened], runs: int) -> list[Measured]:
    """Measure all lakes by turns: what else the machine does slows each of them alike."""
    batches = _by_turns([partial(_batch, each) for each in lakes], runs)
    few = _SMALL_RUNS * runs
    ledger = _by_turns([each.lake.write_ledger for each in lakes], few)
    commits = [_direct_commits(each.lake.lake, few) for each in lakes]
    direct = _by_turns([partial(next, of_lake) for of_lake in commits], few)
    return [
        Measured(
            _median([cost for cost, _ in batches[n]]),
            _median(ledger[n]),
            _median(direct[n]),
            lakes[n].lake.metadata_bytes(),
            {kind: c / runs for kind, c in sum((c for _, c in batches[n]), Counter()).items()},
        )
        for n in range(len(lakes))
    ]


def _measure_expiry(ages: Sequence[Age], store: str) -> list[Cost]:
    with ExitStack() as stack:
        tables = []
        for age in ages:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            made = measured = embedded_settings(directory)
            if store == "s3":
                made, measured = stack.enter_context(_slow_settings(directory, SlowStore()))
            table = expiring_table(age, made, _EXPIRIES, measured=measured)
            tables.append(stack.enter_context(table))
        return list(map(_median, _by_turns([table.expire for table in tables], _EXPIRIES)))


def _tell_expiry(ages: Sequence[Age], store: str, costs: Sequence[Cost]) -> None:
    kind, values = "processor", [cost.processor_seconds for cost in costs]
    if store == "s3":
        kind, values = "s3", [cost.seconds for cost in costs]
    for age, value in zip(ages, values, strict=True):
        ratio = None if age is NEW else value / values[0]
        wanted = None if age is NEW else f"<= {WANTED_RATIO}"
        _print(f"age_{age.name}_expiry_{kind}", value * 1000, "ms", ratio, wanted)


def _by_turns(measures: Sequence[Callable[[], T]], runs: int) -> list[list[T]]:
    turns = [[measure() for measure in measures] for _ in range(runs)]
    return [list(of_lake) for of_lake in zip(*turns, strict=True)]


def _batch(opened: _Opened) -> tuple[Cost, Counter[str]]:
    opened.lake.send()
    if opened.slow:
        opened.slow.counts.clear()
    cost = opened.lake.consolidate()
    return cost, Counter(opened.slow.counts) if opened.slow else Counter()


def _direct_commits(lake: Lake, runs: int) -> Iterator[Cost]:
    table = AppendTable(lake.profile, lake.catalog().load_table(LOGS))
    now = datetime.now(timezone.utc)
    row = {"timestamp": now, "received_at": now, "body": "one line"}
    rows = pa.Table.from_pylist([row], SCHEMAS["logs"])
    # The first ones remove snapshots that are more than the limit.
    for number in range(runs + 2):
        files = write_data_files(table.metadata, table.io, rows)
        began, processor = time.perf_counter(), time.process_time()
        table.append(files, str(uuid.uuid4()), policy=RetryPolicy(), counters=CommitCounters())
        if number >= 2:
            yield Cost(time.process_time() - processor, time.perf_counter() - began, 0)


def _median(costs: list[Cost]) -> Cost:
    return Cost(
        statistics.median(cost.processor_seconds for cost in costs),
        statistics.median(cost.seconds for cost in costs),
        max(cost.documents for cost in costs),
    )


def _tell(age: Age, store: str, measured: Measured, new: Measured | None) -> None:
    for name in ("batch", "ledger", "direct"):
        is_disk = store == "disk"
        cost: Cost = getattr(measured, name)
        value = cost.processor_seconds if is_disk else cost.seconds
        kind = "processor" if is_disk else "s3"
        ratio = None
        if new is not None:
            before: Cost = getattr(new, name)
            ratio = value / (before.processor_seconds if is_disk else before.seconds)
        wanted = f"<= {WANTED_RATIO}" if new is not None else None
        if name == "batch" and is_disk and new is None:
            wanted = f"<= {WANTED_MS}"
        _print(f"age_{age.name}_{name}_{kind}", value * 1000, "ms", ratio, wanted)
    _print(f"age_{age.name}_metadata", measured.metadata_bytes / 1e6, "MB", None, None)
    _print(f"age_{age.name}_documents", measured.batch.documents, "documents", None, "<= 2")
    for kind, count in sorted(measured.requests.items()):
        # One LIST for each signal, and one more after the batch.
        wanted = f"<= {WANTED_LISTS + 2}" if kind == "LIST_of_buffer" else None
        _print(f"age_{age.name}_{kind}", count, "requests", None, wanted)


def _print(name: str, value: float, unit: str, ratio: float | None, wanted: str | None) -> None:
    rounded = None if ratio is None else round(ratio, 2)
    line = {
        "name": name,
        "value": round(value, 2),
        "unit": unit,
        "ratio": rounded,
        "wanted": wanted,
    }
    print(json.dumps(line), flush=True)


@contextmanager
def _slow_settings(directory: Path, slow: SlowStore) -> Iterator[tuple[Settings, Settings]]:
    """Serve a store, and yield settings with it as it is, and with it behind the proxy."""
    install(S3)
    with (
        running_s3(directory) as s3,
        running_proxy(urlsplit(s3.endpoint).port or 0, [slow]) as proxy,
    ):
        yield (
            _object_settings(directory, s3, s3.endpoint),
            _object_settings(directory, s3, proxy.uri),
        )


def _object_settings(directory: Path, s3: S3Server, endpoint: str) -> Settings:
    return Settings.model_validate(
        {
            "catalog": {
                "type": "sqlite",
                "uri": f"sqlite:///{directory}/catalog.db",
                "warehouse": f"s3://{s3.bucket}/lake",
            },
            "storage": {
                "endpoint": endpoint,
                "region": REGION,
                "access_key_id": s3.access_key,
                "secret_access_key": s3.secret_key,
                "path_style": True,
            },
            "buffer": {"location": f"s3://{s3.bucket}/{BUFFER}"},
        }
    )


if __name__ == "__main__":
    main()
