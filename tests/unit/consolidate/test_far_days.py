"""Records of very many days: a bounded number of files, and every reader finds each record."""

from collections import Counter
from datetime import datetime, timedelta, timezone

import pytest
from pyiceberg.transforms import DayTransform

import neve
from neve import failpoints
from neve.buffer.buffer import open_buffer
from neve.lake.far_days import MOST_DAYS
from neve.lake.staging import StagingTable
from neve.publish.batch import HELD_PREFIX, STAGED_PREFIX
from neve.publish.publisher import Publisher
from neve.query.duckdb_connection import connect
from neve.signals import Signal
from tests.support.consolidation import Bench
from tests.support.lakes import sqlite_settings
from tests.support.requests import buffered

FIRST = datetime(1999, 3, 1, 12, tzinfo=timezone.utc)
DAYS = 1_000


@pytest.fixture
def bench(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        yield Bench(lake, tmp_path)


def send(bench, days, name):
    """Send a log for each of these days, and three for the last."""
    request = Signal.LOGS.request()
    scope = request.resource_logs.add().scope_logs.add()
    for number in [*days, days[-1], days[-1]]:
        time = int((FIRST + timedelta(days=number)).timestamp()) * 10**9
        scope.log_records.add(time_unix_nano=time).body.string_value = f"{name} {number}"
    with open_buffer(bench.buffer, ["logs"]) as buffer:
        buffer.append("logs", buffered(request.SerializeToString())).durable.result(10)


def table(bench):
    return bench.lake.catalog().load_table("otel.logs")


def files(bench):
    return [task.file for task in table(bench).scan().plan_files()]


def found(bench, first, end):
    start, stop = (FIRST.replace(hour=0) + timedelta(days=day) for day in (first, end))
    rows = table(bench).scan(
        row_filter=f"timestamp >= '{start.isoformat()}' and timestamp < '{stop.isoformat()}'"
    )
    return Counter(rows.to_arrow()["body"].to_pylist())


def wanted(days, name):
    return Counter(f"{name} {day}" for day in [*days, days[-1], days[-1]])


def test_a_thousand_days_make_a_few_files_and_filters_by_time_find_each_record(bench):
    days = range(DAYS)
    send(bench, days, "a")
    assert bench.run().rows == DAYS + 2
    partitions = sorted(len(file.partition) for file in files(bench))
    assert partitions == [0, *[1] * MOST_DAYS]
    assert bench.names("logs") == wanted(days, "a")
    for first, end in [(0, 1), (500, 510), (DAYS - MOST_DAYS - 2, DAYS)]:
        assert found(bench, first, end) == Counter(
            {body: n for body, n in wanted(days, "a").items() if first <= int(body[2:]) < end}
        )
    # The days with most rows have files of their own; days stay the way to write.
    (spec,) = (spec for spec in table(bench).specs().values() if spec.is_unpartitioned())
    assert spec.spec_id != table(bench).spec().spec_id
    assert isinstance(table(bench).spec().fields[0].transform, DayTransform)
    # The next such batch finds the spec there, and usual ones go on in days.
    send(bench, days, "b")
    send(bench, [5], "c")
    bench.run()
    assert len(table(bench).specs()) == 2
    assert len(files(bench)) <= 2 * (MOST_DAYS + 1) + 1
    assert bench.names("logs") == wanted(days, "a") + wanted(days, "b") + wanted([5], "c")


def test_days_that_are_few_have_files_of_their_own(bench):
    days = range(MOST_DAYS + 1)
    send(bench, days, "a")
    bench.run()
    assert [len(file.partition) for file in files(bench)] == [1] * len(days)
    assert len(table(bench).specs()) == 1


def test_far_days_are_staged_again_when_main_moves_and_released_when_held(bench):
    days = range(20)
    send(bench, days, "a")
    with failpoints.armed("publish.staged"), pytest.raises(failpoints.PowerCut):
        bench.run()
    publisher = Publisher(StagingTable(bench.lake.profile, table(bench)), bench.worker().reader)
    publisher.hold(*publisher.table.staged(STAGED_PREFIX))
    publisher.marks()
    publisher.release(*publisher.table.staged(HELD_PREFIX))
    assert bench.names("logs") == wanted(days, "a")
    assert found(bench, 0, 3) == Counter(["a 0", "a 1", "a 2"])


def test_duckdb_finds_records_of_far_days(bench):
    days = range(30)
    send(bench, days, "a")
    bench.run()
    location = table(bench).metadata_location
    with connect() as duckdb:
        rows = duckdb.execute(
            "select body from iceberg_scan(?) "
            "where timestamp >= '1999-03-04' and timestamp < '1999-03-06'",
            [location],
        ).fetchall()
    assert sorted(rows) == [("a 3",), ("a 4",)]
