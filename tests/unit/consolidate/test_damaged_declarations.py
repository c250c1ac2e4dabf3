"""A declaration that is damaged says nothing, and stops neither its signal nor any other."""

import logging
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

import neve
from neve.buffer import part_index
from neve.buffer.buffer import open_buffer
from neve.buffer.disk import DiskStore
from neve.buffer.disk_log import LOCK_NAME
from neve.buffer.reader import BufferReader
from neve.consolidate.memory import SignalMemory
from neve.consolidate.watch import look
from neve.errors import StorageError
from neve.signals import Signal
from tests.support.buffer_stores import disk, memory
from tests.support.consolidation import SIGNALS, Bench
from tests.support.lakes import sqlite_settings
from tests.support.observers import Listening
from tests.support.otlp_bodies import protobuf
from tests.support.requests import buffered
from tests.support.wait import until

TABLE = {Signal.LOGS: "logs", Signal.TRACES: "traces", Signal.METRICS: "metrics_gauge"}


@pytest.fixture
def bench(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        yield Bench(lake, tmp_path)


def send(bench, buffer, name):
    waiting = bench.waiting_segments()
    for signal in Signal:
        request = buffered(protobuf(signal, name, 1))
        buffer.append(signal.value, request).durable.result(10)
    until(lambda: bench.waiting_segments() == waiting + len(Signal))


def damage_declarations(bench):
    """Flip a byte in the header of the last declaration of each stream."""
    paths = sorted(Path(bench.buffer.location).rglob("*.retired"))
    for path in paths:
        data = bytearray(path.read_bytes())
        data[20] ^= 255
        path.write_bytes(data)
    return paths


@pytest.mark.parametrize("is_ended", [False, True])
def test_all_signals_go_on_beside_damaged_declarations(bench, caplog, is_ended):
    with open_buffer(bench.buffer, SIGNALS) as buffer:
        send(bench, buffer, "a")
        worker, observer = bench.worker(), Listening()
        look(worker, threading.Event(), observer)
        if not is_ended:
            damaged = damage_declarations(bench)
            send(bench, buffer, "b")
    look(worker, threading.Event(), observer)
    if is_ended:
        damaged = damage_declarations(bench)
    assert damaged
    # A worker that has read them before, and one that has not.
    workers = [worker, bench.worker()]
    with caplog.at_level(logging.WARNING):
        for name, one in zip("cde", [*workers, worker], strict=True):
            for signal in Signal:
                bench.send(signal, name, records=1)
            look(one, threading.Event(), observer)
    assert observer.troubles == [None] * 5
    names = "acde" if is_ended else "abcde"
    for signal in Signal:
        assert bench.names(TABLE[signal]) == Counter(f"{name} 0" for name in names)
    if is_ended:
        assert bench.waiting_segments() == 0
        told = Counter(
            record.args[0] for record in caplog.records if record.name == part_index.__name__
        )
        for path in damaged:
            # Each worker says it once (one may know what it has put itself), and nothing is
            # removed that somebody could put right.
            assert 1 <= told[str(path.relative_to(bench.buffer.location))] <= 2
            assert path.exists()


@pytest.mark.parametrize("error", [StorageError("no access"), KeyError("a defect")])
def test_a_signal_that_cannot_be_looked_at_is_told_of_and_stops_no_other(bench, monkeypatch, error):
    bench.spec = replace(bench.spec, trigger_seconds=0.0)
    worker, observer, now = bench.worker(), Listening(), 0.0
    worker.memories[Signal.LOGS] = SignalMemory(clock=lambda: now)
    files = worker.store.files

    def listed(prefix):
        if prefix == "logs":
            raise error
        return files(prefix)

    monkeypatch.setattr(worker.store, "files", listed)
    for signal in Signal:
        bench.send(signal, "a", records=1)
    reports = [look(worker, threading.Event(), observer) for _ in range(3)]
    assert bench.names("traces") == bench.names("metrics_gauge") == Counter(["a 0"])
    assert all(text.startswith("otel.logs: ") for text in observer.troubles)
    assert [len(report.failures) for report in reports] == [1, 0, 0], "told once, and then later"
    monkeypatch.undo()
    now = 60.0
    look(worker, threading.Event(), observer)
    assert observer.troubles[-1] is None
    assert bench.names("logs") == Counter(["a 0"])


def test_a_stream_whose_end_is_damaged_is_ended_again(tmp_path):
    """Whoever looks for abandoned streams stopped at the damage, and all signals with it."""
    for open_store in (memory(), disk(tmp_path)):
        store = open_store()
        log = store.begin("logs")
        log.commit([buffered(b"a")])
        log.close()
        path = store.files(log.stream)[-1].path
        data = bytearray(store.read(path))
        data[20] ^= 255
        store.delete([path])
        store.put_new(path, bytes(data))
        if isinstance(store, DiskStore):
            (tmp_path / log.stream / LOCK_NAME).touch()
        assert store.close_abandoned() == [log.stream]
        [stream] = BufferReader(store, dedup_seconds=300).streams("logs")
        assert (stream.segments, stream.closed) == (3, True)
