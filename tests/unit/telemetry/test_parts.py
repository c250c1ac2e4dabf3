"""Rows come in parts of bounded size, and no request is too wide for them."""

import pyarrow as pa
import pytest

from neve import limits
from neve.signals import Signal
from neve.telemetry import decode as decoder
from neve.telemetry import values
from neve.telemetry.decode import decode
from tests.support.decoding import decode_whole
from tests.support.peak_memory import grown_megabytes
from tests.support.wire import attribute, request, wrapped

PART_BYTES = 50_000
WIDE = attribute("wide", "x" * 10_000, 1)


def log(name):
    return wrapped(wrapped(name.encode(), 1), 5)


def parts(signal, *payloads, senders=None):
    columns = pa.array(payloads, pa.binary()), pa.array([1] * len(payloads), pa.int64())
    return decode(signal, *columns, pa.array(senders or [None] * len(payloads), pa.string()))


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(limits, "DECODED_PART_BYTES", PART_BYTES)


def test_what_a_resource_says_is_repeated_a_part_at_a_time(small_parts):
    names = [f"log {number}" for number in range(100)]
    payload = request([log(name) for name in names], resource=WIDE)
    tables = [part.tables["logs"] for part in parts(Signal.LOGS, payload)]
    assert len(tables) >= 20
    assert max(table.nbytes for table in tables) < 1.3 * PART_BYTES
    assert [name for table in tables for name in table["body"].to_pylist()] == names
    for table in tables:
        for stored in table["resource_attributes"].to_pylist():
            assert stored == [("wide", "x" * 10_000)]


def test_what_a_metric_says_is_repeated_a_part_at_a_time(small_parts):
    points = wrapped(b"".join(wrapped(b"\x18" + bytes([n]), 1) for n in range(100)), 5)
    metric = wrapped(b"m", 1) + wrapped(b"d" * 10_000, 2) + points
    tables = [part.tables["metrics_gauge"] for part in parts(Signal.METRICS, request([metric]))]
    assert len(tables) >= 20
    assert sum(len(table) for table in tables) == 100
    assert max(table.nbytes for table in tables) < 1.4 * PART_BYTES


def test_the_sender_of_a_later_group_counts(small_parts, monkeypatch):
    monkeypatch.setattr(limits, "DECODE_GROUP_BYTES", 100)
    payloads = [request([log("first") for _ in range(10)]), request([log("x")] * 1000)]
    tables = [
        part.tables["logs"] for part in parts(Signal.LOGS, *payloads, senders=["a", "b" * 1000])
    ]
    assert [len(table) for table in tables[:1]] == [10]
    assert sum(len(table) for table in tables) == 1010
    assert max(table.nbytes for table in tables) < 1.4 * PART_BYTES


def test_rows_that_are_large_themselves_come_in_parts(small_parts):
    bodies = [letter * 20_000 for letter in "abcdefgh"]
    tables = [
        part.tables["logs"] for part in parts(Signal.LOGS, request([log(body) for body in bodies]))
    ]
    assert len(tables) >= 4
    assert max(table.nbytes for table in tables) < 1.5 * PART_BYTES
    assert [body for table in tables for body in table["body"].to_pylist()] == bodies


def test_a_row_larger_than_a_part_is_stored(small_parts):
    sizes = [10, 200_000, 10]
    payload = request([log("x" * size) for size in sizes], resource=attribute("k", "y" * 70_000, 1))
    result = decode_whole(Signal.LOGS, [payload], [1])
    assert [len(body) for body in result.tables["logs"]["body"].to_pylist()] == sizes
    assert result.dead_letters == []


def test_a_record_at_fault_is_set_aside_from_the_midst_of_parts(small_parts):
    late = b"\x09" + (2**63).to_bytes(8, "little")
    logs = [log(f"log {number}") for number in range(50)]
    logs[25] = late
    result = decode_whole(Signal.LOGS, [request(logs, resource=WIDE)], [1])
    bodies = result.tables["logs"]["body"].to_pylist()
    assert bodies == [f"log {number}" for number in range(50) if number != 25]
    assert [letter.path for letter in result.dead_letters] == [
        "resource_logs[0].scope_logs[0].log_records[25]"
    ]


def test_parts_are_made_when_they_are_asked_for():
    # All rows would take 60 GB.
    payload = request([b""] * 1_000_000, resource=attribute("wide", "x" * 60_000, 1))
    rows = parts(Signal.LOGS, payload)
    for _ in range(3):
        table = next(rows).tables["logs"]
        assert table.nbytes < 1.1 * limits.DECODED_PART_BYTES
        assert len(table) > 1000


def test_a_request_longer_than_a_group_is_read_alone(monkeypatch):
    monkeypatch.setattr(limits, "DECODE_GROUP_BYTES", 1000)
    payloads = [b"x" * size for size in (9, 4900, 9, 9, 4900, 400, 400, 400, 400, 0)]
    groups = [end - start for start, end in decoder._groups(pa.array(payloads, pa.binary()))]
    assert groups == [1, 1, 2, 1, 2, 3]


def test_values_of_one_depth_are_read_together_whatever_holds_them(monkeypatch):
    reads = []
    real = values.read_messages
    monkeypatch.setattr(values, "read_messages", lambda *what: reads.append(1) or real(*what))
    value = wrapped(b"x", 1)
    text = '"x"'
    for _ in range(8):
        in_map = wrapped(wrapped(wrapped(b"k", 1) + wrapped(value, 2), 1), 6)
        value = wrapped(wrapped(value, 1) + wrapped(in_map, 1), 5)
        text = f'[{text},{{"k":{text}}}]'
    result = decode_whole(Signal.LOGS, [request([wrapped(value, 5)])], [1])
    assert result.tables["logs"]["body"].to_pylist() == [text]
    # 16 depths. One read for each path to a value would be some 500.
    assert len(reads) <= 32


def test_deep_values_take_no_more_memory_for_each_depth():
    grown = grown_megabytes(
        """
        from neve.signals import Signal
        from tests.support.decoding import decode_whole
        from tests.support.wire import request, wrapped

        size = 10 << 20
        value = wrapped(b"x" * size, 1)
        for _ in range(24):
            in_map = wrapped(wrapped(wrapped(b"k", 1) + wrapped(value, 2), 1), 6)
            value = wrapped(wrapped(in_map, 1), 5)
        payload = request([wrapped(value, 5)])
        decode_whole(Signal.LOGS, [request([wrapped(b"", 5)])], [1])
        """,
        """
        (body,) = decode_whole(Signal.LOGS, [payload], [1]).tables["logs"]["body"].to_pylist()
        assert len(body) > size
        """,
    )
    # The value has 10 MiB; with all depths in memory it was 1,000.
    assert grown < 200


def test_each_row_says_which_request_it_came_from(small_parts, monkeypatch):
    monkeypatch.setattr(limits, "DECODE_GROUP_BYTES", 40_000)
    late = b"\x09" + (2**63).to_bytes(8, "little")
    payloads = [
        request([late, *(log(str(number)) for _ in range(number % 3))], resource=WIDE)
        for number in range(12)
    ]
    rows = [
        (int(body), position)
        for part in parts(Signal.LOGS, *payloads)
        for table, positions in zip(part.tables.values(), part.row_requests.values(), strict=True)
        for body, position in zip(table["body"].to_pylist(), positions.tolist(), strict=True)
    ]
    assert rows == [(number, number) for number in range(12) for _ in range(number % 3)]
