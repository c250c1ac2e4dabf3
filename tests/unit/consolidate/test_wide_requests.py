"""A small request that becomes many rows of much text: stored whole, in bounded memory."""

from dataclasses import replace

import pyarrow.parquet as pq

import neve
from neve import limits
from neve.buffer.buffer import open_buffer, open_store
from neve.buffer.dead_letters import read_dead_letters
from neve.consolidate import decode_requests
from tests.support.consolidation import Bench
from tests.support.lakes import sqlite_settings
from tests.support.peak_memory import grown_megabytes
from tests.support.requests import buffered
from tests.support.wire import attribute, request, wrapped


def test_sixty_thousand_logs_under_a_wide_resource_are_stored(tmp_path):
    grown = grown_megabytes(
        f"""
        from pathlib import Path
        from tests.unit.consolidate.test_wide_requests import wide_bench

        bench, close = wide_bench(Path({str(tmp_path)!r}), records=60_000, flush_bytes=64 << 20)
        """,
        """
        report = bench.run()
        assert (report.rows, report.dead_letters) == (60_000, 0), report
        close()
        """,
    )
    # The rows have 600 MB, and the worker repeats what the resource says for some of them at once.
    assert grown < 450
    with neve.open(sqlite_settings(tmp_path)) as lake:
        table = lake.catalog().load_table("otel.logs")
        (one,) = table.scan().plan_files()
        assert pq.read_metadata(one.file.file_path.removeprefix("file://")).num_row_groups >= 5
        assert table.scan(selected_fields=("body",)).to_arrow().num_rows == 60_000
        some = table.scan(selected_fields=("resource_attributes",), limit=10).to_arrow()
    for stored in some["resource_attributes"].to_pylist():
        assert stored == [("wide", "x" * 10_000)]


def test_requests_of_many_records_are_decoded_a_few_at_a_time(tmp_path, monkeypatch):
    sizes = []
    real = decode_requests.decode_groups

    def counted(signal, payloads, *columns):
        sizes.append(len(payloads))
        return real(signal, payloads, *columns)

    monkeypatch.setattr(decode_requests, "decode_groups", counted)
    # A request has a resource, a scope and a record.
    monkeypatch.setattr(limits, "DECODE_GROUP_RECORDS", 30)
    late = b"\x09" + (2**63).to_bytes(8, "little")
    with neve.open(sqlite_settings(tmp_path)) as lake:
        bench = Bench(lake, tmp_path)
        # Closing it seals the one segment.
        with open_buffer(replace(bench.buffer, seal_seconds=600), ["logs"]) as buffer:
            for number in range(35):
                body = wrapped(wrapped(str(number).encode(), 1), 5)
                payload = request([late + body if number == 25 else body])
                buffer.append("logs", buffered(payload)).durable.result(10)
        report = bench.run()
        assert sum(sizes) == 35
        assert max(sizes) == 10
        assert (report.rows, report.dead_letters) == (34, 1)
        assert set(bench.names("logs")) == {str(number) for number in range(35) if number != 25}
        (letter,) = read_dead_letters(open_store(bench.buffer))
    assert letter["position"] == 25


def wide_bench(directory, *, records, flush_bytes):
    """Return a worker with a wide request to consolidate, and how to close its lake."""
    lake = neve.open(sqlite_settings(directory))
    bench = Bench(lake, directory, flush_bytes=flush_bytes)
    logs = [wrapped(wrapped(f"log {number}".encode(), 1), 5) for number in range(records)]
    payload = request(logs, resource=attribute("wide", "x" * 10_000, 1))
    with open_buffer(bench.buffer, ["logs"]) as buffer:
        buffer.append("logs", buffered(payload)).durable.result(10)
    return bench, lake.close
