"""Replays with audits, after a rollback by Spark's procedure."""

from collections import Counter
from dataclasses import replace

import pytest

import neve
from neve.consolidate.replay import replay_table
from neve.signals import Signal
from tests.spark.test_audits import audit, settings
from tests.support.consolidation import Bench


@pytest.fixture
def bench(tmp_path, embedded_lake):
    """A lake whose audit sets aside every row that ends in 1."""
    entry = audit("expression", "set_aside", expression="body not like '% 1'")
    with neve.open(settings(tmp_path, entry)) as lake:
        bench = Bench(lake, tmp_path)
        bench.buffer = replace(bench.buffer, retain_seconds=3600)
        bench.spec = replace(bench.spec, buffer=bench.buffer)
        yield bench


def snapshot_id(bench, table):
    return bench.lake.catalog().load_table(table).current_snapshot().snapshot_id


def roll_back(bench, table, to):
    bench.lake.sql(f"CALL system.rollback_to_snapshot('{table}', {to})")


def bodies(bench, table):
    return Counter(bench.lake.catalog().load_table(table).scan().to_arrow()["body"].to_pylist())


def test_rows_are_set_aside_again_only_where_the_rejected_table_lacks_them(bench):
    ids = []
    for name in ("x", "y", "z"):
        bench.send(Signal.LOGS, name)
        bench.run()
        ids.append([snapshot_id(bench, table) for table in ("otel.logs", "otel.logs_rejected")])
    roll_back(bench, "otel.logs", ids[0][0])
    # The rejected table still has the row of y, and lacks the one of z.
    roll_back(bench, "otel.logs_rejected", ids[1][1])
    report = replay_table(bench.worker(), "otel.logs")
    assert bodies(bench, "otel.logs") == Counter(["x 0", "y 0", "z 0"])
    assert bodies(bench, "otel.logs_rejected") == Counter(["x 1", "y 1", "z 1"])
    assert (report.rows, report.rows_set_aside) == (2, 1)
    assert replay_table(bench.worker(), "otel.logs").segments == 0


def test_rows_that_fail_only_now_are_set_aside_although_others_of_their_batch_were(bench, tmp_path):
    """As of an audit that asks the clock: all rows are old by the time of a replay."""
    ids = []
    for name in ("x", "y"):
        bench.send(Signal.LOGS, name)
        bench.run()
        ids.append(snapshot_id(bench, "otel.logs"))
    roll_back(bench, "otel.logs", ids[0])
    strict = audit("expression", "set_aside", expression="body like 'x%'")
    audits = settings(tmp_path, strict).audits
    bench.lake.settings = bench.lake.settings.model_copy(update={"audits": audits})
    report = replay_table(bench.worker(), "otel.logs")
    assert bodies(bench, "otel.logs") == Counter(["x 0"])
    assert bodies(bench, "otel.logs_rejected") == Counter(["x 1", "y 0", "y 1"])
    assert (report.rows, report.rows_set_aside) == (0, 2)


def test_rows_that_were_cherry_picked_are_not_written_again(bench):
    bench.send(Signal.LOGS, "x")
    bench.run()
    first = snapshot_id(bench, "otel.logs")
    for name in ("y", "z"):
        bench.send(Signal.LOGS, name)
        bench.run()
    picked = snapshot_id(bench, "otel.logs")
    roll_back(bench, "otel.logs", first)
    bench.lake.sql(f"CALL system.cherrypick_snapshot('otel.logs', {picked})")
    assert bodies(bench, "otel.logs") == Counter(["x 0", "z 0"])
    assert replay_table(bench.worker(), "otel.logs").rows == 1
    assert bodies(bench, "otel.logs") == Counter(["x 0", "y 0", "z 0"])
