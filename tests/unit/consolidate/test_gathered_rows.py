"""Rows that do not fit into memory at once: sorted runs, merged into one file."""

import random
from collections import Counter
from dataclasses import replace

import pyarrow.parquet as pq
import pytest

import neve
from neve import limits
from neve.buffer.buffer import open_buffer
from neve.consolidate import gathered_rows
from neve.signals import Signal
from tests.support.consolidation import Bench
from tests.support.lakes import sqlite_settings
from tests.support.requests import buffered

DAY = 86_400 * 10**9
NOON = 1_700_000_000 // 86_400 * DAY + DAY // 2
REQUESTS, LOGS = 20, 1000
# Logs that compress well, and more of them than may be gathered.
PADDING = "x" * 400
FLUSH_BYTES = 4_500_000


@pytest.fixture
def runs(monkeypatch):
    """Count the runs that are compressed."""
    lengths = []
    real = gathered_rows.compressed

    def counted(run):
        lengths.append(len(run))
        return real(run)

    monkeypatch.setattr(gathered_rows, "compressed", counted)
    # However many segments there are: two requests are decoded at once.
    monkeypatch.setattr(limits, "DECODE_GROUP_BYTES", 1_000_000)
    # Row groups of some hundred rows.
    monkeypatch.setattr(gathered_rows, "ROW_GROUP_BYTES", 200_000)
    return lengths


def send(bench, days):
    """Send logs of five services, one of them without a name; return what the logs say."""
    rng = random.Random(5)
    bodies = []
    # One segment: where the requests of a run end must not depend on when segments are sealed.
    with open_buffer(replace(bench.buffer, seal_seconds=3600), ["logs"]) as buffer:
        for number in range(REQUESTS):
            request = Signal.LOGS.request()
            resource = request.resource_logs.add()
            if service := rng.choice(["", "a", "b", "c", "d"]):
                resource.resource.attributes.add(key="service.name").value.string_value = service
            scope = resource.scope_logs.add()
            for one in range(LOGS):
                time = NOON - rng.randrange(days) * DAY + rng.randrange(10**9)
                log = scope.log_records.add(time_unix_nano=time)
                log.body.string_value = f"{number} {one} {service} {PADDING}"
                bodies.append(log.body.string_value)
            body = buffered(request.SerializeToString())
            buffer.append("logs", body).durable.result(10)
    return bodies


@pytest.mark.parametrize("days", [1, 3])
def test_a_file_is_sorted_and_whole_whatever_fits_into_memory(tmp_path, runs, days):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        bench = Bench(lake, tmp_path, flush_bytes=FLUSH_BYTES)
        bodies = send(bench, days)
        assert bench.run().rows == len(bodies)
        assert len(runs) >= 3, runs
        assert sum(runs) == len(bodies)
        table = lake.catalog().load_table("otel.logs")
        files = [task.file for task in table.scan().plan_files()]
        found = []
        for file in files:
            rows = pq.ParquetFile(file.file_path.removeprefix("file://"))
            assert rows.num_row_groups > 3
            rows = rows.read().to_pylist()
            order = [(row["service_name"] or "", row["timestamp"]) for row in rows]
            assert order == sorted(order)
            for row in rows:
                assert row["body"].split(" ")[2] == (row["service_name"] or "")
            assert len({row["timestamp"].date() for row in rows}) == 1
            assert file.sort_order_id == table.sort_order().order_id
            found += [row["body"] for row in rows]
        assert len(files) == days
        assert Counter(found) == Counter(bodies)


def test_runs_that_are_too_large_even_compressed_become_a_file(tmp_path, runs, monkeypatch):
    monkeypatch.setattr(gathered_rows, "RUNS_BYTES", 500_000)
    with neve.open(sqlite_settings(tmp_path)) as lake:
        bench = Bench(lake, tmp_path, flush_bytes=FLUSH_BYTES)
        bodies = send(bench, 1)
        bench.run()
        assert bench.names("logs") == Counter(bodies)
        assert len(list(lake.catalog().load_table("otel.logs").scan().plan_files())) > 1
    assert runs


def test_runs_of_very_many_rows_become_a_file_before_they_are_merged(tmp_path, runs, monkeypatch):
    """To merge runs takes memory for each row, however small it is compressed."""
    monkeypatch.setattr(gathered_rows, "RUNS_ROWS", 10_000)
    with neve.open(sqlite_settings(tmp_path)) as lake:
        bench = Bench(lake, tmp_path, flush_bytes=FLUSH_BYTES)
        bodies = send(bench, 1)
        assert bench.run().rows == len(bodies)
        assert max(runs) < 10_000, runs
        table = lake.catalog().load_table("otel.logs")
        assert len(list(table.scan().plan_files())) > 1
        assert Counter(table.scan().to_arrow()["body"].to_pylist()) == Counter(bodies)
