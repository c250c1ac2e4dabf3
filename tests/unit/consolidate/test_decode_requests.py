"""Requests are decoded a few at a time, and each record becomes a row or a dead letter."""

from dataclasses import replace
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from benchmarks import decode as samples
from neve import limits
from neve.consolidate import decode_requests as module
from neve.consolidate.decode_requests import (
    NOT_ALL_READ,
    TOO_MANY,
    CountedRequests,
    decode_requests,
)
from neve.otlp.wire_scan import count_messages
from neve.signals import Signal
from neve.telemetry.schemas import TABLES_OF
from tests.support.otlp_bodies import protobuf
from tests.support.wire import request, wrapped


def counted(signal, *payloads):
    columns = {
        "payload": pa.array(payloads, pa.binary()),
        "received_unix_nano": pa.array([1] * len(payloads), pa.int64()),
        "sender_name": pa.nulls(len(payloads), pa.string()),
    }
    return CountedRequests.of(signal, pa.record_batch(columns))


def contents(counted_requests):
    return [part.requests["payload"].to_pylist() for part in counted_requests.parts()]


def test_requests_are_cut_by_what_they_hold(monkeypatch):
    monkeypatch.setattr(limits, "DECODE_GROUP_RECORDS", 100)
    small, large = request([b""] * 38), request([b""] * 98)
    found = counted(Signal.LOGS, small, small, small, large, b"", small)
    assert contents(found) == [[small, small], [small], [large, b"", small]]
    assert contents(counted(Signal.LOGS)) == []


def test_containers_without_records_count_as_well(monkeypatch):
    monkeypatch.setattr(limits, "DECODE_GROUP_RECORDS", 100)
    empty = wrapped(b"", 1) * 60
    assert contents(counted(Signal.TRACES, empty, empty)) == [[empty], [empty]]


def summed(decoded):
    """Return the rows, the dead letters as (request, reason), and the records that they are of."""
    decoded = list(decoded)
    rows = sum(len(table) for part in decoded for table in part.tables)
    letters = [(each.request, each.reason) for part in decoded for each in part.letters]
    return rows, letters, sum(int(part.dead_letters.sum()) for part in decoded)


def test_a_request_that_no_receiver_would_store_is_set_aside(monkeypatch):
    monkeypatch.setattr(module, "_MOST_MESSAGES", 50)
    usual, large = request([b""] * 10), request([b""] * 49)
    decoded = decode_requests(counted(Signal.LOGS, usual, large, usual))
    assert summed(decoded) == (20, [(1, TOO_MANY)], 49)


def kinds(*fields):
    """A metric with a kind of one point for each of these fields, on the wire."""
    point = wrapped(b"\x18\x01", 1)
    return wrapped(wrapped(wrapped(b"".join(wrapped(point, n) for n in fields), 2), 2), 1)


@pytest.mark.parametrize(
    ("fields", "gauges", "sums"),
    [((5, 7), 0, 1), ((7, 5), 1, 0), ((5, 5), 2, 0), ((5, 7, 7), 0, 2), ((5, 7, 5), 1, 0)],
)
def test_a_metric_with_two_kinds_has_the_points_of_the_last(fields, gauges, sums):
    """As protobuf reads it; one kind that comes in parts has the points of all."""
    usual, odd = protobuf(Signal.METRICS, "usual", 5), kinds(*fields)
    requests = counted(Signal.METRICS, usual, odd, usual)
    assert requests.records.sum(axis=0).tolist()[:2] == [10 + gauges, sums]
    assert summed(decode_requests(requests)) == (10 + gauges + sums, [], 0)


def test_a_row_that_the_decoder_loses_makes_its_request_a_dead_letter(monkeypatch):
    """A batch would not add up, and a sender could stop the table with it."""
    decode_groups = module.decode_groups

    def losing(*arguments):
        for group in decode_groups(*arguments):
            (rows,) = group.tables
            is_kept = np.arange(len(rows)) != 5
            yield replace(group, tables=[rows.only(is_kept)])

    monkeypatch.setattr(module, "decode_groups", losing)
    body = protobuf(Signal.LOGS, "a", 4)
    assert summed(decode_requests(counted(Signal.LOGS, body, body, body))) == (
        8,
        [(1, NOT_ALL_READ)],
        4,
    )


def test_a_request_with_very_many_unfit_records_is_set_aside_as_a_whole(monkeypatch):
    """A dead letter names each record: 20 KiB could write 100 MiB, and push out those of others."""
    monkeypatch.setattr(limits, "MAX_UNFIT_RECORDS", 3)
    unfit = b"\x09" + b"\xff" * 8
    few, many = request([unfit] * 3 + [b""] * 2), request([b""] * 2 + [unfit] * 4)
    rows, letters, dead = summed(decode_requests(counted(Signal.LOGS, few, many, few)))
    assert (rows, dead) == (4, 12)
    assert sorted(place for place, _ in letters) == [0, 0, 0, 1, 2, 2, 2]
    (reason,) = (reason for place, reason in letters if place == 1)
    assert "log_records[2]: time_unix_nano is after the year 2261" in reason


@pytest.mark.parametrize("signal", list(Signal))
def test_messages_are_counted_as_protobuf_has_them(signal):
    message = getattr(samples, signal.value)(Random(1))
    body = message.SerializeToString()
    count = count_messages(signal, body)
    assert count.messages == _count(message, signal)
    assert dict(zip(TABLES_OF[signal], count.records, strict=True)) == _records(message, signal)
    # What comes before the damage counts; of a resource that is cut off, nothing is read.
    assert count_messages(signal, body + b"\xff" + body) == count
    assert count_messages(signal, body[:-1]).messages < count.messages
    assert count_messages(signal, b"").messages == 0
    # A group is skipped, as protobuf's own parser does: OTLP has none.
    assert count_messages(signal, b"\xa3\x01\xa4\x01" + body) == count


def _records(message, signal):
    resources, scopes, records = signal.levels
    of_scopes = [scope for each in getattr(message, resources) for scope in getattr(each, scopes)]
    members = [member for each in of_scopes for member in getattr(each, records)]
    if signal is not Signal.METRICS:
        return {signal.value: len(members)}
    kinds = [name.removeprefix("metrics_") for name in TABLES_OF[signal]]
    return {
        f"metrics_{kind}": sum(len(getattr(each, kind).data_points) for each in members)
        for kind in kinds
    }


def _count(message, signal):
    resources, scopes, records = signal.levels
    of_resources = getattr(message, resources)
    of_scopes = [scope for each in of_resources for scope in getattr(each, scopes)]
    members = [member for each in of_scopes for member in getattr(each, records)]
    count = len(of_resources) + len(of_scopes) + len(members)
    if signal is Signal.METRICS:
        kinds = [getattr(each, each.WhichOneof("data")) for each in members]
        count += sum(len(kind.data_points) for kind in kinds)
    return count
