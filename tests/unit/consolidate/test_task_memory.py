"""A task needs at most a gibibyte, whatever it reads."""

import gzip
import hashlib
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

import neve
from benchmarks import decode as samples
from neve.buffer.buffer import open_buffer
from neve.buffer.payload import Codec
from neve.consolidate.spec import MIB
from tests.support.consolidation import Bench
from tests.support.lakes import sqlite_settings
from tests.support.peak_memory import grown_megabytes
from tests.support.requests import buffered

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
            request = replace(
                buffered(made[number % 8]),
                payload=stored[number % 8],
                codec=Codec.GZIP,
                content_hash=hashlib.sha256(number.to_bytes(8, "big")).digest(),
            )
            buffer.append(signal, request).durable.result(60)
    return bench, count * samples.RECORDS


@pytest.mark.parametrize("signal", ["logs", pytest.param("traces", marks=pytest.mark.soak)])
def test_a_task_of_64_mib_of_segments_stays_below_a_gibibyte(tmp_path, signal):
    peak = grown_megabytes(
        f"""
        from neve.lake.workers import use_system_memory
        from tests.unit.consolidate.test_task_memory import filled_bench

        use_system_memory()
        bench, records = filled_bench({str(tmp_path)!r}, {signal!r}, 64 << 20)
        """,
        """
        assert bench.run().rows == records
        before = 0
        """,
    )
    assert peak < WANTED_MEGABYTES
