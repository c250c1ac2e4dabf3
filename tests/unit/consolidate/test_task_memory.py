"""A task needs at most a gibibyte, whatever it reads."""

import gzip
import hashlib
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

import neve
from benchmarks import decode as samples
from neve import limits
from neve.buffer.buffer import open_buffer
from neve.buffer.payload import Codec
from neve.consolidate.gathered_rows import SMALLEST_ROW_BYTES, GatheredRows
from neve.consolidate.spec import MIB
from tests.support.consolidation import Bench
from tests.support.lakes import sqlite_settings
from tests.support.peak_memory import grown_megabytes
from tests.support.requests import buffered
from tests.support.wire import request

WANTED_MEGABYTES = 1024


def filled_bench(directory, signal, size):
    """Return a worker with so many bytes of usual requests to consolidate, in one segment."""
    lake = neve.open(sqlite_settings(Path(directory)))
    bench = Bench(lake, Path(directory), task_bytes=1024 * MIB)
    made = [getattr(samples, signal)(Random(seed)).SerializeToString() for seed in range(8)]
    stored = [gzip.compress(one, 6) for one in made]
    count = size // len(stored[0])
    with open_buffer(bench.buffer, [signal]) as buffer:
        for number in range(count):
            usual = replace(
                buffered(made[number % 8]),
                payload=stored[number % 8],
                codec=Codec.GZIP,
                content_hash=hashlib.sha256(number.to_bytes(8, "big")).digest(),
            )
            last = buffer.append(signal, usual)
        last.durable.result(60)
    return bench, count * samples.RECORDS


def filled_with_tiny_records(directory, millions, *, of_request=100_000, stored_count=None):
    """Return a worker with so many million empty log records, of two bytes each, in one task.

    Args:
        of_request: how many one request has.
        stored_count: what the buffer says of that; without it, the truth.
    """
    lake = neve.open(sqlite_settings(Path(directory)))
    bench = Bench(lake, Path(directory), task_bytes=1024 * MIB)
    body = request([b""] * of_request)
    stored = gzip.compress(body, 6)
    with open_buffer(bench.buffer, ["logs"]) as buffer:
        for number in range(millions * 1_000_000 // of_request):
            tiny = replace(
                buffered(body),
                payload=stored,
                records=of_request if stored_count is None else stored_count,
                codec=Codec.GZIP,
                content_hash=hashlib.sha256(number.to_bytes(8, "big")).digest(),
            )
            last = buffer.append("logs", tiny)
        last.durable.result(60)
    return bench, millions * 1_000_000


def peak_of_task(filled_bench: str) -> float:
    """Return the high-water mark of a process that does a task, in MiB."""
    return grown_megabytes(
        f"""
        from neve.lake.workers import use_system_memory
        from tests.unit.consolidate import test_task_memory

        use_system_memory()
        bench, records = test_task_memory.{filled_bench}
        """,
        """
        assert bench.run().rows == records
        before = 0
        """,
    )


@pytest.mark.parametrize(
    ("signal", "mib"),
    [
        # More than is gathered at once, so that runs are merged: a longer task takes no more.
        ("logs", 40),
        # As much as a task may have.
        pytest.param("logs", 88, marks=pytest.mark.soak),
        pytest.param("traces", 88, marks=pytest.mark.soak),
    ],
)
def test_a_task_of_usual_records_stays_below_a_gibibyte(tmp_path, signal, mib):
    peak = peak_of_task(f"filled_bench({str(tmp_path)!r}, {signal!r}, {mib} << 20)")
    assert peak < WANTED_MEGABYTES


@pytest.mark.soak
@pytest.mark.parametrize("of_request", [100_000, limits.MAX_RECORDS])
@pytest.mark.parametrize("stored_count", [None, 0])
def test_a_task_of_ten_million_tiny_records_stays_below_a_gibibyte(
    tmp_path, of_request, stored_count
):
    """Where the buffer did not say how many there are, it took 2,457 MiB."""
    options = f"of_request={of_request}, stored_count={stored_count}"
    peak = peak_of_task(f"filled_with_tiny_records({str(tmp_path)!r}, 10, {options})")
    assert peak < WANTED_MEGABYTES


def test_tiny_records_count_as_what_it_takes_to_sort_them(tmp_path, monkeypatch):
    """Of 95 bytes each, twice as many were gathered, and sorting them took more than they did."""
    gathered = []
    relieve = GatheredRows.relieve

    def counted(self):
        gathered.append(sum(map(len, self._own)))
        return relieve(self)

    monkeypatch.setattr(GatheredRows, "relieve", counted)
    monkeypatch.setattr(limits, "DECODE_GROUP_RECORDS", 100)
    with neve.open(sqlite_settings(tmp_path)) as lake:
        bench = Bench(lake, tmp_path, flush_bytes=1000 * SMALLEST_ROW_BYTES)
        with open_buffer(bench.buffer, ["logs"]) as buffer:
            for number in range(50):
                body = request([b""] * 100)
                tiny = replace(
                    buffered(body),
                    records=100,
                    content_hash=hashlib.sha256(number.to_bytes(8, "big")).digest(),
                )
                last = buffer.append("logs", tiny)
            last.durable.result(60)
        assert bench.run().rows == 5000
    assert 500 < max(gathered) <= 1000
