"""A batch carries its counts from the first record read to the commit, and they add up."""

import json
from collections import Counter
from dataclasses import replace

import pytest

import neve
from neve.consolidate.replay import replay_table
from neve.errors import UnbalancedError
from neve.lake.staged_snapshot import COUNTS
from neve.publish.batch_counts import BatchCounts
from neve.publish.staged_batches import discard, release
from neve.publish.staged_list import list_staged
from neve.signals import Signal
from tests.support.consolidation import Bench, run_inline
from tests.support.lakes import sqlite_settings
from tests.support.requests import buffered
from tests.support.wire import request, wrapped

LATE = b"\x09" + (2**63).to_bytes(8, "little")


@pytest.fixture
def bench(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        yield Bench(lake, tmp_path)


def losing(table, rows):
    """Return a runner whose tasks wrote files of one table that the driver never hears of."""

    def run(job):
        for row in run_inline(job):
            if not (row["table"] == table and row["data_file"] and rows.pop(0)):
                yield row

    return run


def ledger(bench):
    rows = bench.lake.catalog().load_table("neve.batches").scan().to_arrow().to_pylist()
    names = ("table", "outcome", "records", "rows", "set_aside", "dead_letters", "duplicates")
    return [tuple(row[name] for name in names) for row in rows]


def test_every_record_is_a_row_a_dead_letter_or_a_duplicate(bench):
    body = wrapped(wrapped(b"log", 1), 5)
    odd = buffered(request([body, LATE + body, body]))
    for _ in range(2):
        # Another receiver got the same requests.
        bench.send(Signal.LOGS, "a", records=5, received_unix_nano=10**18)
        bench.append(Signal.LOGS, replace(odd, received_unix_nano=10**18))
    report = bench.run()
    assert (report.rows, report.dead_letters, report.duplicate_records) == (7, 1, 8)
    (staged,) = bench.lake.catalog().load_table("otel.logs").snapshots()
    counts = {"read": 16, "dead_letters": 1, "duplicates": 8, "set_aside": 0}
    assert json.loads(staged.summary[COUNTS]) == counts
    assert ledger(bench) == [("otel.logs", "published", 16, 7, 0, 1, 8)]


def test_each_table_has_its_own_counts(bench):
    bench.send(Signal.METRICS, "m", records=3)
    bench.send_gauge_and_sum("a", "b")
    bench.run()
    assert set(ledger(bench)) == {
        ("otel.metrics_gauge", "published", 5, 5, 0, 0, 0),
        ("otel.metrics_sum", "published", 2, 2, 0, 0, 0),
    }


@pytest.mark.parametrize("lost", [[True, False], [True, True]])
def test_a_batch_that_lost_a_file_is_neither_published_nor_retired(bench, lost):
    """With one file left it is staged, with its numbers; with none there is nothing to stage."""
    day = 86_400 * 10**9
    bench.send(Signal.LOGS, "a", records=3, received_unix_nano=day * 20_000)
    bench.send(Signal.LOGS, "b", records=2, received_unix_nano=day * 20_001)
    bench.send(Signal.TRACES, "t")
    bench.runner = losing("logs", list(lost))
    report = bench.run()
    (failure,) = report.failures
    assert failure.table == "otel.logs"
    assert "do not add up: 5 records were read" in failure.error
    assert bench.names("logs").total() == 0
    assert bench.names("traces").total() == 2
    staged = list_staged(bench.lake)
    assert len(staged) == (0 if all(lost) else 1)
    waiting = [stream.signal for stream in bench.worker().reader.streams() if stream.segments]
    assert set(waiting) == {"logs"}
    bench.runner = run_inline
    if staged:
        # A worker that starts anew has the numbers, too.
        assert "do not add up: 5 records were read" in bench.run().failures[0].error
        assert bench.names("logs").total() == 0
        assert "5 records were read" in staged[0].unbalanced
        with pytest.raises(UnbalancedError):
            release(bench.lake, "otel.logs", staged[0].batch_id)
        outcomes = {row[:2] for row in ledger(bench)}
        assert outcomes == {("otel.logs", "unbalanced"), ("otel.traces", "published")}
        discard(bench.lake, "otel.logs", staged[0].batch_id)
    bench.run()
    wanted = Counter([*(f"a {n}" for n in range(3)), *(f"b {n}" for n in range(2))])
    assert bench.names("logs") == wanted
    assert bench.waiting_segments() == 0


def test_a_replay_that_lost_a_file_publishes_nothing(bench):
    bench.spec = replace(bench.spec, buffer=replace(bench.buffer, retain_seconds=3600))
    bench.send(Signal.LOGS, "a")
    bench.run()
    bench.lake.catalog().drop_table("otel.logs")
    bench.runner = losing("logs", [True])
    with pytest.raises(UnbalancedError, match="2 records were read"):
        replay_table(bench.worker(), "otel.logs")
    assert bench.names("logs").total() == 0
    bench.runner = run_inline
    assert replay_table(bench.worker(), "otel.logs").rows == 2
    assert bench.names("logs").total() == 2


def test_the_error_says_the_numbers_and_what_to_do():
    counts = BatchCounts(read=1_000, dead_letters=1, duplicates=2, set_aside=3)
    counts.require_balance("otel.logs", "b1", 994)
    with pytest.raises(UnbalancedError) as failure:
        counts.require_balance("otel.logs", "b1", 993)
    assert failure.value.message == (
        "otel.logs: the counts of batch b1 do not add up: 1,000 records were read, but 993 rows + "
        "3 set aside + 1 dead letters + 2 duplicates are 999"
    )
    assert "neve staged discard otel.logs b1" in failure.value.hint
