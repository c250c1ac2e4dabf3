"""Nothing is silently skipped: every field of every record is in a table, or set aside and told."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

import neve
from neve.buffer.buffer import open_buffer, open_store
from neve.buffer.dead_letters import PREFIX, read_dead_letters
from neve.consolidate.spec import MIB
from neve.signals import Signal
from neve.telemetry.schemas import TABLES_OF
from tests.support import otlp_oracle
from tests.support.consolidation import Bench
from tests.support.lakes import sqlite_settings
from tests.support.otlp_messages import fill
from tests.support.requests import buffered

# With these there are rows for every table, and something to set aside of every signal.
REQUESTS, SEED = 30, 4
# The names of tokens: a token without one, and one with.
SENDERS = ["", "shop"]
FIRST_MICROS = 1_700_000_000_000_000


@pytest.fixture
def bench(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        yield Bench(lake, tmp_path)


def as_text(rows):
    """As text NaN equals itself, and 0.0 differs from -0.0."""
    return Counter(repr(sorted(row.items())) for row in rows)


@pytest.mark.parametrize("flush_bytes", [256 * MIB, 10_000])
@pytest.mark.parametrize("signal", Signal)
def test_every_field_of_every_record_is_in_its_table_or_told_of(tmp_path, signal, flush_bytes):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        check_every_field(Bench(lake, tmp_path, flush_bytes=flush_bytes), signal)


def check_every_field(bench, signal):
    rng = random.Random(SEED)
    # One that is sent twice is stored once.
    filled = (fill(signal.request(), rng).SerializeToString() for _ in range(REQUESTS))
    requests = list(dict.fromkeys(filled))
    received = [FIRST_MICROS + number for number in range(len(requests))]
    with open_buffer(bench.buffer, [signal.value]) as buffer:
        for request, micros in zip(requests, received, strict=True):
            stored = buffered(
                request, received_unix_nano=micros * 1000 + 999, sender_name=SENDERS[micros % 2]
            )
            buffer.append(signal.value, stored).durable.result(10)
    report = bench.run()
    senders = [SENDERS[micros % 2] or None for micros in received]
    wanted = otlp_oracle.decode(signal, requests, received, senders)
    counts = {}
    for name, rows in wanted.arrow().items():
        found = bench.lake.catalog().load_table(f"otel.{name}").scan().to_arrow()
        assert as_text(found.to_pylist()) == as_text(rows.to_pylist()), name
        counts[name] = len(rows)
    assert set(counts) == set(TABLES_OF[signal])
    assert min(counts.values()) > 0
    assert report.rows == sum(counts.values())
    letters = [
        (reason["path"], reason["reason"])
        for letter in read_dead_letters(open_store(bench.buffer))
        for reason in letter["reasons"]
    ]
    assert Counter(letters) == Counter((path, why) for _, path, why in wanted.dead_letters)
    assert report.dead_letters == len(letters) > 0


# In its preamble, in the head of a frame, among the entries, and in a payload.
@pytest.mark.parametrize("damaged_byte", [3, 20, 60, -1])
def test_a_damaged_segment_is_kept_whole_and_told_of_and_blocks_nothing(bench, damaged_byte):
    bench.send(Signal.LOGS, "good")
    bench.send(Signal.LOGS, "bad")
    worker = bench.worker()
    stream = max(one.stream for one in worker.reader.streams("logs"))
    segment = worker.reader.segments(stream)[0]
    (batch,) = worker.reader.read(segment)
    lost = "bad" if b"bad" in batch["payload"][0].as_py() else "good"
    path = Path(bench.buffer.location, segment.path)
    data = bytearray(path.read_bytes())
    data[damaged_byte] ^= 255
    path.write_bytes(data)
    report = bench.run()
    kept = {"good", "bad"} - {lost}
    assert bench.names("logs") == Counter(f"{name} {n}" for name in kept for n in range(2))
    assert report.dead_letters == 1
    (letter,) = read_dead_letters(open_store(bench.buffer))
    assert letter["stream"] == stream
    assert letter["reasons"][0]["reason"]
    (whole,) = Path(bench.buffer.location, PREFIX).rglob("*.segment")
    assert whole.read_bytes() == data
    assert bench.waiting_segments() == 0
