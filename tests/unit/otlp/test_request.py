"""What decodes is counted and passed on as it came, what does not is refused."""

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from neve.errors import Code, MalformedError
from neve.otlp.request import check
from neve.signals import Signal


def nested(levels: int) -> bytes:
    """A trace request with an attribute of so many arrays in one another, built from the inside."""
    wire = b""
    for field in [1, 5] * levels + [2, 9, 2, 2, 1]:
        size = len(wire)
        varint = bytes([size & 127 | 128, size >> 7]) if size > 127 else bytes([size])
        wire = bytes([field << 3 | 2]) + varint + wire
    return wire


@pytest.mark.parametrize("signal", Signal)
def test_an_empty_request_is_a_request(signal):
    assert check(signal, b"", json=False).records == 0
    assert check(signal, b"{}", json=True).records == 0


def test_protobuf_passes_byte_for_byte():
    # A field nobody knows yet, and a length that wastes a byte: what was sent is what is kept.
    body = b"\x0a\x80\x00" + b"\x98\x06\x01"
    assert check(Signal.TRACES, body, json=False).payload == body


def test_records_are_what_partial_success_counts():
    request = ExportMetricsServiceRequest()
    metrics = request.resource_metrics.add().scope_metrics.add().metrics
    for kind in ("gauge", "sum", "histogram", "exponential_histogram", "summary"):
        for _ in range(3):
            getattr(metrics.add(name=kind), kind).data_points.add()
    metrics.add(name="no data at all")
    assert check(Signal.METRICS, request.SerializeToString(), json=False).records == 15


def test_records_are_counted_over_resources_and_scopes():
    request = ExportTraceServiceRequest()
    for _ in range(2):
        resource = request.resource_spans.add()
        for spans in (1, 0, 4):
            scope = resource.scope_spans.add()
            for _ in range(spans):
                scope.spans.add()
    assert check(Signal.TRACES, request.SerializeToString(), json=False).records == 10


@pytest.mark.parametrize(
    "body",
    [b"\xff", b"\x0a\x05abc", b"{}", b"\x0a\x06\x12\x04\x12\x02\x2a\xff", nested(60)],
    ids=["garbage", "cut", "json", "inner cut", "too deep"],
)
def test_undecodable_protobuf_is_malformed(body):
    with pytest.raises(MalformedError) as failure:
        check(Signal.TRACES, body, json=False)
    assert failure.value.code is Code.MALFORMED


def test_text_that_is_not_utf8_is_stored_repaired():
    request = ExportTraceServiceRequest()
    request.resource_spans.add().scope_spans.add().spans.add(name="name")
    body = request.SerializeToString().replace(b"name", b"n\xe9me")
    checked = check(Signal.TRACES, body, json=False)
    stored = ExportTraceServiceRequest.FromString(checked.payload)
    assert stored.resource_spans[0].scope_spans[0].spans[0].name == "n\ufffdme"
    assert (checked.records, checked.invalid_texts) == (1, 1)


def test_the_sender_is_told_of_unknown_fields():
    assert check(Signal.TRACES, b"", json=False).warning == ""
    checked = check(Signal.TRACES, b"\x0a\x00\x98\x06\x01", json=False)
    assert "ExportTraceServiceRequest.99" in checked.warning
    checked = check(Signal.LOGS, b'{"future":{"a":1}}', json=True)
    assert "ExportLogsServiceRequest.future" in checked.warning
