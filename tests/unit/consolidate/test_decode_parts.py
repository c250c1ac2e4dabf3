"""Requests are decoded a few at a time, whatever the buffer says of them."""

from random import Random

import pyarrow as pa
import pytest

from benchmarks import decode as samples
from neve import limits
from neve.consolidate import decode_parts as module
from neve.consolidate.decode_parts import TOO_MANY, decode_parts
from neve.otlp.wire_scan import count_messages
from neve.signals import Signal
from tests.support.wire import request, wrapped


def requests_of(*payloads):
    return pa.record_batch(
        {"payload": pa.array(payloads, pa.binary()), "records": [0] * len(payloads)}
    )


def contents(parts):
    return [part.column("payload").to_pylist() for part in parts]


def test_requests_are_cut_by_what_they_hold(monkeypatch):
    monkeypatch.setattr(limits, "DECODE_GROUP_RECORDS", 100)
    small, large = request([b""] * 38), request([b""] * 98)
    found = decode_parts(Signal.LOGS, requests_of(small, small, small, large, b"", small))
    assert contents(found.parts) == [[small, small], [small], [large, b"", small]]
    assert found.refused == []
    assert contents(decode_parts(Signal.LOGS, requests_of()).parts) == []


def test_containers_without_records_count_as_well(monkeypatch):
    monkeypatch.setattr(limits, "DECODE_GROUP_RECORDS", 100)
    empty = wrapped(b"", 1) * 60
    assert contents(decode_parts(Signal.TRACES, requests_of(empty, empty)).parts) == [
        [empty],
        [empty],
    ]


def test_a_request_that_no_receiver_would_store_is_set_aside(monkeypatch):
    monkeypatch.setattr(module, "_MOST_MESSAGES", 50)
    usual, large = request([b""] * 10), request([b""] * 49)
    found = decode_parts(Signal.LOGS, requests_of(usual, large, usual))
    assert contents(found.parts) == [[usual, usual]]
    assert [(each.request, each.reason) for each in found.refused] == [(1, TOO_MANY)]


@pytest.mark.parametrize("signal", list(Signal))
def test_messages_are_counted_as_protobuf_has_them(signal):
    message = getattr(samples, signal.value)(Random(1))
    body = message.SerializeToString()
    count = count_messages(signal, body)
    assert count == _count(message, signal)
    # What comes before the damage counts; of a resource that is cut off, nothing is read.
    assert count_messages(signal, body + b"\xff" + body) == count
    assert count_messages(signal, body[:-1]) < count
    assert count_messages(signal, b"") == 0


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
