"""Consolidation on a REST catalog and S3 while commits go wrong: each row once, marks right."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timezone

import pyarrow as pa
import pytest

import neve
from neve.consolidate.report import Report
from neve.consolidate.watch import watch
from neve.publish.batch import STAGED_PREFIX
from neve.publish.ranges import read_marks
from neve.signals import Signal
from neve.telemetry.schemas import SCHEMAS
from tests.support.catalog_faults import (
    FAULTS,
    after,
    cut_after,
    lost_after,
    lost_before,
    refused,
)
from tests.support.consolidation import Bench
from tests.support.lakes import rest_settings
from tests.support.wait import until

# A run takes two batches, each staged and published: 1 and 3 stage, 2 publishes.
COMMITS = (1, 2, 3)
# What PyIceberg says of itself, as the other writer.
WRITES_NO_BLOOM_FILTERS = "ignore:Parquet writer option:UserWarning"
ROWS = Counter(f"{name} {n}" for name in "ab" for n in range(2))


@pytest.fixture(scope="module")
def direct_lake(rest_catalog, s3):
    """The same lake, as others see it: past the faults."""
    with neve.open(rest_settings(rest_catalog.uri, s3)) as lake:
        yield lake


@pytest.fixture
def bench(faulty_lake, faults, tmp_path):
    """Two requests in two streams, each a batch of its own."""
    namespace = f"faults_{uuid.uuid4().hex[:12]}"
    bench = Bench(faulty_lake, tmp_path, namespace=namespace, batch_bytes=1)
    faults.expect(bench.spec.namespace)
    bench.send(Signal.LOGS, "a")
    bench.send(Signal.LOGS, "b")
    return bench


def check(bench, rows=ROWS):
    """Each row once, a mark for each stream behind its last row, nothing staged, nothing left."""
    assert bench.names("logs") == rows
    table = bench.lake.catalog().load_table(f"{bench.spec.namespace}.logs")
    assert not [name for name in table.metadata.refs if name.startswith(STAGED_PREFIX)]
    streams = bench.worker().reader.streams("logs")
    marks = read_marks(table.properties)
    assert set(marks) <= {one.stream for one in streams}
    # The closing segment has no rows, so that it moves no mark.
    assert all(one.retired_through - marks[one.stream] <= 1 for one in streams)
    assert bench.waiting_segments() == 0
    assert bench.run().results == []


@pytest.mark.parametrize("fault", FAULTS)
def test_commits_that_go_wrong_leave_each_row_once(bench, faults, fault):
    bench.send(Signal.LOGS, "c")
    # Whether a fault needs a second try or not, both a staging and a publishing are hit.
    faults.expect(bench.spec.namespace, dict.fromkeys((1, 3, 6), FAULTS[fault]))
    report = bench.run()
    assert not report.failed
    assert faults.commits >= 6
    # A commit whose answer was lost, or that was sent twice and refused the second time, is known
    # for ours, and not taken for another worker's.
    assert report.rows == 6
    check(bench, ROWS + Counter(["c 0", "c 1"]))


@pytest.mark.soak
@pytest.mark.parametrize("number", range(1, 5))
@pytest.mark.parametrize("fault", FAULTS)
def test_each_commit_that_goes_wrong_leaves_each_row_once(bench, faults, fault, number):
    faults.expect(bench.spec.namespace, {number: FAULTS[fault]})
    assert not bench.run().failed
    assert faults.commits >= number
    check(bench)


def test_faults_one_after_the_other(bench, faults):
    plan = dict(enumerate([lost_after, refused(409), refused(503), cut_after, lost_before], 1))
    faults.expect(bench.spec.namespace, plan)
    report = bench.run()
    assert (report.commits.conflicts, report.commits.unknown_outcomes) == (1, 4)
    check(bench)


def test_a_ledger_that_cannot_be_written_fails_no_batch(bench, faults):
    for name, fault in {"a": refused(409), "c": refused(500), "d": lost_after}.items():
        bench.send(Signal.LOGS, name)
        # PyIceberg tries some of them again by itself.
        faults.expect("neve", dict.fromkeys(range(1, 20), fault))
        assert not bench.run().failed
        assert faults.commits >= 1
    check(bench, Counter(f"{name} {n}" for name in "abcd" for n in range(2)))


def foreign(name):
    """A row that somebody else writes."""
    now = datetime.now(timezone.utc)
    row = {"timestamp": now, "received_at": now, "body": name}
    return pa.Table.from_pylist([row], SCHEMAS["logs"])


@pytest.mark.filterwarnings(WRITES_NO_BLOOM_FILTERS)
@pytest.mark.parametrize("number", COMMITS)
def test_another_writer_in_between(bench, direct_lake, faults, number):
    bench.worker()._publisher("logs", Report())
    theirs = direct_lake.catalog().load_table(f"{bench.spec.namespace}.logs")
    faults.expect(bench.spec.namespace, {number: after(lambda: theirs.append(foreign("theirs")))})
    report = bench.run()
    assert report.commits.conflicts >= 1
    check(bench, ROWS + Counter(["theirs"]))


@pytest.mark.filterwarnings(WRITES_NO_BLOOM_FILTERS)
@pytest.mark.parametrize("number", COMMITS)
def test_a_compaction_in_between(bench, direct_lake, faults, number):
    """Every row of `main` is written anew into other files, and the old ones are removed."""
    bench.worker()._publisher("logs", Report())
    theirs = direct_lake.catalog().load_table(f"{bench.spec.namespace}.logs")
    theirs.append(foreign("one"))
    theirs.append(foreign("two"))

    def compact():
        theirs.refresh()
        theirs.overwrite(theirs.scan().to_arrow())

    faults.expect(bench.spec.namespace, {number: after(compact)})
    report = bench.run()
    assert report.commits.conflicts >= 1
    check(bench, ROWS + Counter(["one", "two"]))


@pytest.mark.parametrize("lease_seconds", [0, 15])
def test_two_workers_at_once(bench, faults, lease_seconds):
    bench.spec = replace(bench.spec, lease_seconds=lease_seconds)
    for name in "cdef":
        bench.send(Signal.LOGS, name)
    start = threading.Barrier(2)

    def work(worker):
        start.wait()
        return worker.run_once(wait=True)

    with ThreadPoolExecutor(2) as pool:
        reports = list(pool.map(work, [bench.worker(), bench.worker()]))
    assert not any(report.failed for report in reports)
    check(bench, Counter(f"{name} {n}" for name in "abcdef" for n in range(2)))


def test_a_catalog_that_goes_away_during_a_commit_is_waited_for(bench, faults):
    def go_down():
        faults.is_down = True
        threading.Thread(target=come_back).start()

    def come_back():
        until(lambda: faults.refused_while_down >= 3)
        faults.is_down = False

    faults.expect(bench.spec.namespace, {2: after(go_down)})
    assert not bench.run().failed
    check(bench)


class Listener:
    """Hears how a worker's looks end."""

    def __init__(self):
        self.ends = []

    def looked(self, streams):
        pass

    def ended(self, report, trouble):
        self.ends.append(trouble)


def test_a_catalog_that_is_down_for_a_while_is_caught_up_with(bench, faults, monkeypatch):
    monkeypatch.setattr("neve.consolidate.memory.FIRST_PAUSE_SECONDS", 0.1)
    bench.spec = replace(bench.spec, trigger_seconds=0.0)
    worker, stop, listener = bench.worker(), threading.Event(), Listener()
    faults.is_down = True
    thread = threading.Thread(target=watch, args=(worker, stop, listener))
    thread.start()
    try:
        until(lambda: len(listener.ends) >= 2)
        assert all("cannot be reached" in trouble for trouble in listener.ends[:2])
        assert bench.waiting_segments() > 0
        faults.is_down = False
        until(lambda: bench.waiting_segments() == 0)
    finally:
        stop.set()
        thread.join()
    assert listener.ends[-1] is None
    check(bench)
