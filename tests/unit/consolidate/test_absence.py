"""What is not found in the buffer was not consumed, unless a declaration says so."""

from collections import Counter
from dataclasses import replace

import pytest

import neve
from neve import failpoints
from neve.buffer import listing, retire
from neve.buffer.layout import IDENTITY
from neve.buffer.part_index import PartIndexes
from neve.buffer.reader import BufferReader
from neve.buffer.stream_states import put_drop_note
from neve.consolidate.tables import ensure_telemetry_table
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


def test_a_copy_of_a_dropped_stream_is_told_and_not_decoded_for_ever(bench):
    bench.send(Signal.LOGS, "a")
    worker = bench.worker()
    (stream,) = worker.reader.streams("logs")
    put_drop_note(worker.store, stream.stream, retired_through=1)
    report = worker.run_once()
    assert f"stream {stream.stream} was consumed and dropped" in report.trouble


@pytest.mark.parametrize("step", ["look", "known_requests", "drop"])
def test_a_worker_beside_another_that_retires_what_it_has_listed_does_not_fail(
    bench, monkeypatch, step
):
    bench.buffer = replace(bench.buffer, dedup_seconds=0 if step == "drop" else 300)
    bench.spec = replace(bench.spec, buffer=bench.buffer, lease_seconds=0)
    bench.send(Signal.LOGS, "a")
    original = getattr(BufferReader, step)
    owner, read = {
        "look": (listing, "is_closed"),
        "known_requests": (PartIndexes, "load"),
        "drop": (retire, "is_closed"),
    }[step]
    raced = []

    def rival(*arguments):
        if not raced:
            raced.append(step)
            bench.run()
        return reading(*arguments)

    def interrupted(*arguments):
        monkeypatch.setattr(BufferReader, step, original)
        with monkeypatch.context() as patch:
            patch.setattr(owner, read, rival)
            return original(*arguments)

    reading = getattr(owner, read)
    monkeypatch.setattr(BufferReader, step, interrupted)
    assert not bench.run().failed
    assert raced
    assert bench.names("logs") == Counter(["a 0", "a 1"])


def test_a_table_that_was_made_anew_meanwhile_is_named(bench):
    bench.send(Signal.LOGS, "a")
    bench.run()

    def make_anew(job):
        written = list(run_inline(job))
        bench.lake.catalog().drop_table("otel.logs")
        ensure_telemetry_table(bench.lake, bench.spec, "logs")
        return written

    bench.send(Signal.LOGS, "b")
    bench.runner = make_anew
    assert bench.run().trouble == (
        "otel.logs: table otel.logs was dropped and created again (begin with the new table)"
    )
    bench.runner = run_inline
    bench.run()
    assert bench.names("logs") == Counter(["b 0", "b 1"])
