"""When a consolidation is due: by the worker's own clock, whatever receivers' clocks say."""

import secrets
import time

import pytest

import neve
from neve.buffer.buffer import open_buffer, open_store
from neve.buffer.reader import BufferReader
from neve.consolidate.memory import REST_SECONDS, SignalMemory
from neve.consolidate.watch import Trigger
from neve.signals import Signal
from tests.support.consolidation import SIGNALS, Bench
from tests.support.lakes import sqlite_settings
from tests.support.otlp_bodies import protobuf
from tests.support.requests import buffered
from tests.support.wait import until

HOUR_NANOS = 3600 * 1_000_000_000


@pytest.fixture
def bench(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        yield Bench(lake, tmp_path)


class Watched:
    """A buffer, and a trigger whose clock the test moves."""

    def __init__(self, bench, trigger_bytes=1024 * 1024):
        self.now = 0.0
        self.reader = BufferReader(open_store(bench.buffer), dedup_seconds=0)
        self.trigger = Trigger(trigger_bytes, 2.0, clock=lambda: self.now)

    def is_due_at(self, seconds):
        self.now = seconds
        return self.trigger.is_due(self.reader.streams())


@pytest.mark.parametrize("clock_error", [HOUR_NANOS, -HOUR_NANOS, 0])
def test_a_receivers_clock_changes_nothing(bench, clock_error):
    bench.send(Signal.LOGS, "a", received_unix_nano=time.time_ns() + clock_error)
    watched = Watched(bench)
    assert [watched.is_due_at(seconds) for seconds in (100.0, 101.9, 102.0)] == [False, False, True]


def test_what_comes_after_a_batch_waits_anew(bench):
    bench.send(Signal.LOGS, "a", "b")
    watched = Watched(bench)
    assert not watched.is_due_at(0.0)
    assert watched.is_due_at(2.0)
    bench.run()
    assert not watched.is_due_at(3.0)
    bench.send(Signal.LOGS, "c")
    assert not watched.is_due_at(10.0)
    # A later segment does not make the first one younger.
    bench.send(Signal.TRACES, "d")
    assert not watched.is_due_at(11.0)
    assert watched.is_due_at(12.0)


def test_enough_bytes_are_due_at_once(bench):
    bench.send(Signal.LOGS, "a")
    assert Watched(bench, trigger_bytes=1).is_due_at(0.0)


def test_a_signal_of_which_nothing_waits_has_a_turn_now_and_then(bench):
    """A batch of logs asked the catalog 24 times, 18 of them for traces and metrics."""
    worker, now = bench.worker(), 0.0
    worker.memories = {signal: SignalMemory(clock=lambda: now) for signal in Signal}
    turns = []
    take_turn = worker._take_turn

    def taken(signal, *others, **more):
        turns.append(signal)
        return take_turn(signal, *others, **more)

    worker._take_turn = taken

    def send(buffer, *signals):
        for signal in signals:
            request = buffered(protobuf(signal, secrets.token_hex(4), 1))
            buffer.append(signal.value, request).durable.result(10)
        until(lambda: bench.waiting_segments() == len(signals))

    def turns_of_run():
        turns.clear()
        send(buffer, Signal.LOGS)
        assert worker.run_once().rows == 1
        return list(turns)

    with open_buffer(bench.buffer, SIGNALS) as buffer:
        send(buffer, *Signal)
        worker.run_once()
        assert turns_of_run() == turns_of_run() == [Signal.LOGS]
        worker.memories[Signal.TRACES].has_held = True
        assert turns_of_run() == [Signal.LOGS, Signal.TRACES]
        assert turns_of_run() == [Signal.LOGS], "they were looked at, and none is held"
        now = REST_SECONDS
        assert turns_of_run() == list(Signal)
        assert turns_of_run() == [Signal.LOGS]
