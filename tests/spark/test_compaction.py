"""Spark's own compaction beside consolidation: it replaces files, and no row is lost or doubled."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest

import neve
from neve.config import Settings
from neve.consolidate.consolidator import SparkRunner
from neve.consolidate.report import Report
from neve.errors import NeveError
from neve.lake.staging import StagingTable
from neve.publish.ranges import read_marks
from neve.signals import Signal
from tests.support.consolidation import Bench
from tests.support.lakes import sqlite_settings
from tests.support.power_cut import power_cut
from tests.support.readers import READERS

SOAK_SECONDS = 90


@pytest.fixture
def bench(embedded_lake, tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        yield Bench(lake, tmp_path)


def compact(bench, at_least=2):
    """Rewrite the files of the logs; return how many there were, and how many there are."""
    (done,) = bench.lake.query(
        "CALL system.rewrite_data_files(table => 'otel.logs', "
        f"options => map('min-input-files', '{at_least}'))"
    ).to_pylist()
    return done["rewritten_data_files_count"], done["added_data_files_count"]


def rows_of(names):
    return Counter(f"{name} {n}" for name in names for n in range(2))


def check(bench, expected):
    for engine, read in READERS.items():
        found = Counter(row["body"] for row in read(bench.lake, "otel.logs", by="body"))
        assert found == expected, engine
    assert bench.waiting_segments() == 0
    table = bench.lake.catalog().load_table("otel.logs")
    marks = read_marks(table.properties)
    for stream in bench.worker().reader.streams("logs"):
        # The closing segment has no rows, so that it moves no mark.
        assert stream.retired_through - marks[stream.stream] <= 1


@pytest.mark.parametrize("moment", ["after staging", "before the swap"])
def test_compacted_between_staging_and_publishing(bench, moment, monkeypatch):
    for name in "abc":
        bench.send(Signal.LOGS, name)
        bench.run()
    bench.send(Signal.LOGS, "d")
    compacted = []
    if moment == "after staging":
        with power_cut("publish.staged"):
            bench.run()
        compacted.append(compact(bench))
    else:
        swap = StagingTable.apply

        def late(table, change):
            if not compacted:
                compacted.append(compact(bench))
            return swap(table, change)

        monkeypatch.setattr(StagingTable, "apply", late)
    report = bench.run()
    assert compacted == [(3, 1)]
    assert (report.rows, report.commits.restaged) == (2, 1)
    check(bench, rows_of("abcd"))
    # And once more with what was published: its files are as good as any.
    assert compact(bench) == (2, 1)
    check(bench, rows_of("abcd"))


@pytest.fixture
def audited(embedded_lake, tmp_path):
    """Audits take their time, between staging and publishing."""
    settings = sqlite_settings(tmp_path).model_dump(include={"catalog", "spark"})
    audits = {"otel.logs": [{"name": "some", "check": "row_count", "min": 1}]}
    with neve.open(Settings.model_validate({**settings, "audits": audits})) as lake:
        yield Bench(lake, tmp_path)


@pytest.mark.soak
def test_compacted_again_and_again_while_consolidation_goes_on(audited):
    bench = audited
    bench.runner = SparkRunner(bench.lake)
    sent, report, stop = [], Report(), threading.Event()

    def consolidate():
        worker = bench.worker()
        while not stop.is_set():
            sent.append(str(len(sent)))
            bench.send(Signal.LOGS, sent[-1])
            worker.run_once(report)

    thread = threading.Thread(target=consolidate)
    thread.start()
    compactions, refused = 0, 0
    try:
        end = time.monotonic() + SOAK_SECONDS
        while time.monotonic() < end and thread.is_alive():
            if len(sent) < 3:
                time.sleep(0.1)
                continue
            try:
                compactions += compact(bench)[0] > 0
            except NeveError:
                # Another commit was first too often: compaction gives up, and tries again later.
                refused += 1
    finally:
        stop.set()
        thread.join()
    assert compactions >= 5, refused
    assert not report.failed
    assert report.commits.restaged > 0
    assert report.rows == 2 * len(sent)
    check(bench, rows_of(sent))
