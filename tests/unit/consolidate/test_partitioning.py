"""Somebody changes how a table is partitioned while files for it are on their way."""

from collections import Counter

import pytest
from pyiceberg.transforms import BucketTransform, HourTransform

import neve
from neve import failpoints
from neve.lake.staging import StagingTable
from neve.publish.batch import HELD_PREFIX, STAGED_PREFIX
from neve.publish.publisher import Publisher
from neve.signals import Signal
from tests.support.consolidation import Bench, run_inline
from tests.support.lakes import sqlite_settings

EXPECTED = Counter(["a 0", "a 1", "b 0", "b 1"])


@pytest.fixture
def bench(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        bench = Bench(lake, tmp_path)
        bench.send(Signal.LOGS, "a")
        bench.run()
        bench.send(Signal.LOGS, "b")
        yield bench


def table(bench):
    return bench.lake.catalog().load_table("otel.logs")


def by_hour(bench):
    with table(bench).update_spec() as update:
        update.remove_field("timestamp_day")
        update.add_field("timestamp", HourTransform(), "timestamp_hour")


def with_a_bucket(bench):
    with table(bench).update_spec() as update:
        update.add_field("body", BucketTransform(4), "body_bucket")


def found_by_time(bench):
    """Count the rows that a filter finds; it leaves out files by their partition."""
    first = min(table(bench).scan().to_arrow()["timestamp"].to_pylist())
    rows = table(bench).scan(row_filter=f"timestamp >= '{first.isoformat()}'").to_arrow()
    return Counter(rows["body"].to_pylist())


@pytest.mark.parametrize("change", [by_hour, with_a_bucket])
def test_between_writing_a_batch_and_staging_it(bench, change):
    def run_and_change(job):
        written = list(run_inline(job))
        change(bench)
        return written

    bench.runner = run_and_change
    assert not bench.run().failed
    assert found_by_time(bench) == EXPECTED
    files = [task.file.spec_id for task in table(bench).scan().plan_files()]
    assert files == [0, 0]
    summary = table(bench).current_snapshot().summary
    assert (summary["added-records"], summary["total-records"]) == ("2", "4")


@pytest.mark.parametrize("change", [by_hour, with_a_bucket])
def test_while_a_batch_is_held(bench, change):
    with failpoints.armed("publish.staged"), pytest.raises(failpoints.PowerCut):
        bench.run()
    publisher = Publisher(StagingTable(bench.lake.profile, table(bench)), bench.worker().reader)
    publisher.hold(*publisher.table.staged(STAGED_PREFIX))
    change(bench)
    publisher.marks()
    publisher.release(*publisher.table.staged(HELD_PREFIX))
    assert found_by_time(bench) == EXPECTED
