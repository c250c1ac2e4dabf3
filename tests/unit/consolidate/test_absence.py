"""What is not found in the buffer was not consumed, unless a declaration says so."""

from collections import Counter

import pytest

import neve
from neve.errors import StorageError
from neve.signals import Signal
from tests.support.consolidation import Bench, run_inline
from tests.support.lakes import sqlite_settings


@pytest.fixture
def bench(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        yield Bench(lake, tmp_path)


def run_with_stream_away(bench, stream):
    """Return the text of the failure of a run whose tasks do not find a stream's directory."""
    directory = bench.directory / "buffer" / stream
    away = bench.directory / "away"

    def runner(job):
        directory.rename(away)
        try:
            yield from run_inline(job)
        finally:
            away.rename(directory)

    bench.runner = runner
    try:
        return str(bench.run().trouble)
    except StorageError as error:
        return error.message
    finally:
        bench.runner = run_inline


def test_a_stream_that_is_away_while_a_task_reads_is_consumed_later(bench):
    bench.send(Signal.LOGS, "a")
    bench.send(Signal.LOGS, "b")
    stream = bench.worker().reader.streams("logs")[0].stream
    failure = run_with_stream_away(bench, stream)
    assert f"segment 1 of stream {stream} is not in the buffer" in failure
    bench.run()
    assert bench.names("logs") == Counter(["a 0", "a 1", "b 0", "b 1"])
    assert bench.waiting_segments() == 0
