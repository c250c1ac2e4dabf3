"""Workers that share a buffer in an object store."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

import neve
from neve.buffer.buffer import open_store
from neve.buffer.spec import BufferSpec, ObjectStorage
from neve.consolidate.replay import replay_table
from neve.signals import Signal
from tests.support.consolidation import Bench, run_inline
from tests.support.lakes import sqlite_settings
from tests.support.servers import REGION

LEASE_SECONDS = 3.0


@pytest.fixture
def bench(s3, tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        bench = Bench(lake, tmp_path, lease_seconds=LEASE_SECONDS, batch_bytes=1)
        bench.buffer = BufferSpec(
            location=f"s3://{s3.bucket}/{tmp_path.name}",
            storage=ObjectStorage(s3.endpoint, REGION, s3.access_key, s3.secret_key),
            put_interval_seconds=0,
        )
        bench.spec = replace(bench.spec, buffer=bench.buffer)
        for name in "ab":
            bench.send(Signal.LOGS, name)
        yield bench


def rows(bench):
    return bench.names("logs") == Counter(f"{name} {n}" for name in "ab" for n in range(2))


def test_a_worker_that_died_is_taken_over(bench):
    assert open_store(bench.buffer).lease("logs", LEASE_SECONDS).hold()
    assert bench.run().left_to_others == ["logs"]
    assert bench.worker().run_once(wait=True).rows == 4
    assert rows(bench)
    assert open_store(bench.buffer).files("leases") == []


def test_of_two_workers_one_decodes(bench):
    start, decoded = threading.Barrier(2), []

    def work(number):
        def runner(job):
            decoded.extend((number, one.path) for task in job.tasks for one in task)
            return run_inline(job)

        worker = bench.worker()
        worker.runner = runner
        start.wait()
        return worker.run_once(wait=True)

    with ThreadPoolExecutor(2) as pool:
        reports = list(pool.map(work, range(2)))
    assert not any(report.failed for report in reports)
    assert rows(bench)
    paths = [path for _, path in decoded]
    assert len(paths) == len(set(paths)) > 1


def test_a_dropped_table_is_written_again_from_retained_objects(bench):
    bench.buffer = replace(bench.buffer, retain_seconds=3600)
    bench.spec = replace(bench.spec, buffer=bench.buffer)
    bench.run()
    bench.lake.catalog().drop_table("otel.logs")
    assert replay_table(bench.worker(), "otel.logs").rows == 4
    assert rows(bench)
    assert replay_table(bench.worker(), "otel.logs").segments == 0
