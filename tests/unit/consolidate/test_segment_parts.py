"""A large segment is read by several tasks: each request once."""

from collections import Counter
from dataclasses import replace

import pytest

import neve
from neve.buffer.buffer import open_buffer
from neve.signals import Signal
from tests.support.consolidation import Bench, run_inline
from tests.support.lakes import sqlite_settings
from tests.support.otlp_bodies import protobuf
from tests.support.requests import buffered

NAMES = [f"request {number}" for number in range(40)]


@pytest.fixture
def bench(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        yield Bench(lake, tmp_path, task_bytes=2048)


def send_in_one_segment(bench, names):
    # As on another machine: this receiver does not know what the others have stored.
    spec = replace(bench.buffer, seal_seconds=600, dedup_seconds=0)
    with open_buffer(spec, ["logs"]) as buffer:
        for name in names:
            request = buffered(protobuf(Signal.LOGS, name, 2))
            buffer.append("logs", request).durable.result(10)


def test_parts_of_a_segment_are_stored_once_and_copies_are_found_in_each(bench):
    send_in_one_segment(bench, NAMES)
    # Sent again to another receiver: some of each part are copies.
    send_in_one_segment(bench, [*NAMES[::3], "other"])
    jobs = []

    def run(job):
        jobs.append(job)
        return run_inline(job)

    bench.runner = run
    report = bench.run()
    assert any(one.start for task in jobs[0].tasks for one in task)
    assert report.duplicate_records == 2 * len(NAMES[::3])
    wanted = Counter(f"{name} {n}" for name in [*NAMES, "other"] for n in range(2))
    assert bench.names("logs") == wanted
