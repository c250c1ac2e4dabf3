"""Snapshots expired by others, with Iceberg's own means: no live file goes with them."""

import time

import pytest

import neve
from neve.lake.jvm.tables import load
from neve.publish.batch import HELD_PREFIX, Outcome
from neve.publish.ranges import Range
from tests.support.lakes import sqlite_settings
from tests.support.publishing import STREAM, Lab


@pytest.fixture
def lab(embedded_lake, tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        yield Lab(lake)


def expire_by_procedure(lake):
    """Spark's procedure: compares all files reachable before and after."""
    lake.query(
        "CALL system.expire_snapshots(table => 'otel.logs', retain_last => 1, "
        "older_than => TIMESTAMP '2100-01-01 00:00:00')"
    )


def expire_by_core(lake):
    """Iceberg's core API, as other engines call it.

    Iceberg 1.12 deletes no live file here, with `source-snapshot-id` or without. Older versions
    clean up incrementally and need it (iceberg#13614); 1.12 refuses to do so in these cases.
    """
    later_ms = int(time.time() * 1000) + 60_000
    expiry = load(lake.spark, lake.ref("otel.logs")).expireSnapshots()
    expiry.expireOlderThan(later_ms).retainLast(1).commit()


def publish(lab):
    publisher = lab.publisher()
    staged = publisher.stage("b", lab.files(7), {STREAM: Range(1, 1)})
    assert publisher.publish(staged) is Outcome.PUBLISHED
    assert publisher.counters.restaged == 0


def publish_on_main_that_moved(lab):
    publisher = lab.publisher()
    staged = publisher.stage("b", lab.files(7), {STREAM: Range(1, 1)})
    lab.append_by_another(2)
    assert publisher.publish(staged) is Outcome.PUBLISHED
    assert publisher.counters.restaged == 1


def hold_and_release(lab):
    publisher = lab.publisher()
    publisher.hold(publisher.stage("b", lab.files(7), {STREAM: Range(1, 1)}))
    lab.append_by_another(2)
    (held,) = publisher.table.staged(HELD_PREFIX)
    assert publisher.release(held) is Outcome.PUBLISHED


@pytest.mark.parametrize("expire", [expire_by_procedure, expire_by_core])
@pytest.mark.parametrize(
    "publish_batch",
    [
        publish_on_main_that_moved,
        pytest.param(publish, marks=pytest.mark.soak),
        pytest.param(hold_and_release, marks=pytest.mark.soak),
    ],
)
def test_no_live_file_is_deleted(lab, publish_batch, expire):
    lab.append_by_another(1)
    publish_batch(lab)
    lab.append_by_another(3)
    expected = lab.rows()
    assert {1, 3, 7} <= set(expected)
    before = lab.snapshot_ids()
    expire(lab.lake)
    assert len(lab.snapshot_ids()) == 1 < len(before)
    assert lab.rows() == expected
