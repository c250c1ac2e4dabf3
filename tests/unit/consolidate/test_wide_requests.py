"""A small request that becomes many rows of much text: stored whole, in bounded memory."""

import neve
from neve.buffer.buffer import open_buffer
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
    # The rows have 600 MB, and the worker may gather 64 MiB of them.
    assert grown < 450
    with neve.open(sqlite_settings(tmp_path)) as lake:
        table = lake.catalog().load_table("otel.logs")
        assert len(list(table.scan().plan_files())) >= 9
        assert table.scan(selected_fields=("body",)).to_arrow().num_rows == 60_000
        some = table.scan(selected_fields=("resource_attributes",), limit=10).to_arrow()
    for stored in some["resource_attributes"].to_pylist():
        assert stored == [("wide", "x" * 10_000)]


def wide_bench(directory, *, records, flush_bytes):
    """Return a worker with a wide request to consolidate, and how to close its lake."""
    lake = neve.open(sqlite_settings(directory))
    bench = Bench(lake, directory, flush_bytes=flush_bytes)
    logs = [wrapped(wrapped(f"log {number}".encode(), 1), 5) for number in range(records)]
    payload = request(logs, resource=attribute("wide", "x" * 10_000, 1))
    with open_buffer(bench.buffer, ["logs"]) as buffer:
        buffer.append("logs", buffered(payload)).durable.result(10)
    return bench, lake.close
