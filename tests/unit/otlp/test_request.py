"""The door: what decodes is counted and passed on as it came, what does not is refused."""

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from neve.errors import Code, MalformedError, TooLargeError
from neve.otlp import request as request_module
from neve.otlp.request import parse
from neve.signals import Signal


def nested(levels: int) -> bytes:
    """A trace request with an attribute of so many arrays in one another, built from the inside."""
    wire = b""
    for field in [5, 1] * levels + [2, 9, 2, 2, 1]:
        size = len(wire)
        varint = bytes([size & 127 | 128, size >> 7]) if size > 127 else bytes([size])
        wire = bytes([field << 3 | 2]) + varint + wire
    return wire


@pytest.mark.parametrize("signal", Signal)
def test_an_empty_request_is_a_request(signal):
    assert parse(signal, b"", json=False).records == 0
    assert parse(signal, b"{}", json=True).records == 0


def test_protobuf_passes_byte_for_byte():
    # A field nobody knows yet, and a length that wastes a byte: what was sent is what is kept.
    body = b"\x0a\x80\x00" + b"\x98\x06\x01"
    assert parse(Signal.TRACES, body, json=False).payload == body


def test_records_are_what_partial_success_counts():
    request = ExportMetricsServiceRequest()
    metrics = request.resource_metrics.add().scope_metrics.add().metrics
    for kind in ("gauge", "sum", "histogram", "exponential_histogram", "summary"):
        for _ in range(3):
            getattr(metrics.add(name=kind), kind).data_points.add()
    metrics.add(name="no data at all")
    assert parse(Signal.METRICS, request.SerializeToString(), json=False).records == 15


def test_records_are_counted_over_resources_and_scopes():
    request = ExportTraceServiceRequest()
    for _ in range(2):
        resource = request.resource_spans.add()
        for spans in (1, 0, 4):
            scope = resource.scope_spans.add()
            for _ in range(spans):
                scope.spans.add()
    assert parse(Signal.TRACES, request.SerializeToString(), json=False).records == 10


@pytest.mark.parametrize(
    "body",
    [b"\xff", b"\x0a\x05abc", b"{}", b"\x0a\x06\x12\x04\x12\x02\x2a\xff", nested(60)],
    ids=["garbage", "cut", "json", "inner cut", "too deep"],
)
def test_undecodable_protobuf_is_malformed(body):
    with pytest.raises(MalformedError) as failure:
        parse(Signal.TRACES, body, json=False)
    assert failure.value.code is Code.MALFORMED


def test_text_that_is_not_utf8_is_malformed():
    request = ExportTraceServiceRequest()
    request.resource_spans.add().scope_spans.add().spans.add(name="name")
    body = request.SerializeToString().replace(b"name", b"\xff\xfe\xfd\xfc")
    with pytest.raises(MalformedError):
        parse(Signal.TRACES, body, json=False)


@pytest.mark.parametrize("level", ["resources", "scopes", "spans"])
def test_a_request_of_too_many_parts_is_too_large(level, monkeypatch):
    monkeypatch.setattr(request_module, "MAX_RECORDS", 3)
    request = ExportTraceServiceRequest()
    resources = request.resource_spans
    scopes = resources.add().scope_spans
    spans = scopes.add().spans
    members = {"resources": resources, "scopes": scopes, "spans": spans}[level]
    while len(members) < 3:
        members.add()
    parse(Signal.TRACES, request.SerializeToString(), json=False)
    members.add()
    with pytest.raises(TooLargeError, match="has 4 records, scopes or resources"):
        parse(Signal.TRACES, request.SerializeToString(), json=False)


def test_a_request_of_too_many_metrics_or_points_is_too_large(monkeypatch):
    monkeypatch.setattr(request_module, "MAX_RECORDS", 3)
    request = ExportMetricsServiceRequest()
    metrics = request.resource_metrics.add().scope_metrics.add().metrics
    for _ in range(2):
        metric = metrics.add()
        metric.gauge.data_points.add()
        metric.gauge.data_points.add()
    with pytest.raises(TooLargeError):
        parse(Signal.METRICS, request.SerializeToString(), json=False)
    for metric in metrics:
        metric.Clear()
    for _ in range(2):
        metrics.add()
    with pytest.raises(TooLargeError):
        parse(Signal.METRICS, request.SerializeToString(), json=False)
