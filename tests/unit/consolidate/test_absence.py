"""What is not found in the buffer was not consumed, unless a declaration says so."""

from collections import Counter
from dataclasses import replace

import pytest

import neve
from neve import failpoints
from neve.buffer.layout import IDENTITY
from neve.errors import StorageError
from neve.publish.ranges import read_marks
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


def marks(bench):
    return read_marks(bench.lake.catalog().load_table("otel.logs").properties)


def test_a_buffer_from_before_identities_goes_on_working(bench):
    """Its streams have no id in their names, and there is no file with one."""
    bench.buffer = replace(bench.buffer, dedup_seconds=0.0)
    bench.spec = replace(bench.spec, buffer=bench.buffer)
    bench.send(Signal.LOGS, "a")
    location = bench.directory / "buffer"
    [directory] = (location / "logs").iterdir()
    old = "logs/20260101T000000Z-0123456789ab"
    directory.rename(location / old)
    (location / IDENTITY).unlink()
    with failpoints.armed("consolidate.published"), pytest.raises(failpoints.PowerCut):
        bench.run()
    assert marks(bench) == {old: 2}
    bench.run()
    assert bench.worker().reader.dropped_streams("logs") == [old]
    bench.send(Signal.LOGS, "b")
    bench.run()
    assert bench.names("logs") == Counter(["a 0", "a 1", "b 0", "b 1"])
    assert old not in marks(bench), "it was dropped, and a note said so"
    assert old not in bench.worker().reader.dropped_streams("logs")
