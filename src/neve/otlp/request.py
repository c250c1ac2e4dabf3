"""Take a request at the door: is it OTLP, and how many records does it carry?

The door checks that a request decodes, and counts; it looks into no record. A record that decodes
but cannot be stored (a time after the year 2261, say) is accepted with its request and set aside
as a dead letter when the request becomes rows (`neve.telemetry`). So it is reported once, whole
and with its reason, where an operator can look at it again, and the hot path pays nothing for it.
`partial_success` is left to callers that make rows before they answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from google.protobuf.message import DecodeError

from neve.errors import MalformedError
from neve.otlp.json_mapping import from_json
from neve.otlp.signals import Signal

if TYPE_CHECKING:
    from google.protobuf.message import Message
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
        ExportMetricsServiceRequest,
    )
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class ParsedRequest:
    """A request that decodes."""

    payload: bytes
    """Protobuf: the sender's own bytes, or the translation of its JSON."""
    records: int
    """How many log records, spans or data points it carries."""


def parse(signal: Signal, body: bytes, *, json: bool) -> ParsedRequest:
    """Check an uncompressed request and count its records.

    Raises:
        MalformedError: the body is not an OTLP request; sending it again will not help.
    """
    if json:
        message = from_json(body, signal.request)
        return ParsedRequest(message.SerializeToString(), count_records(signal, message))
    try:
        message = signal.request.FromString(body)
    except DecodeError as error:
        raise MalformedError(f"the body is not a protobuf {signal.request.__name__}") from error
    return ParsedRequest(body, count_records(signal, message))


def count_records(signal: Signal, request: Message) -> int:
    """Count log records, spans or data points: what `partial_success` counts."""
    if signal is Signal.LOGS:
        logs = cast("ExportLogsServiceRequest", request)
        return sum(len(s.log_records) for r in logs.resource_logs for s in r.scope_logs)
    if signal is Signal.TRACES:
        traces = cast("ExportTraceServiceRequest", request)
        return sum(len(s.spans) for r in traces.resource_spans for s in r.scope_spans)
    metrics = cast("ExportMetricsServiceRequest", request)
    return sum(
        len(getattr(metric, kind).data_points)
        for resource in metrics.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if (kind := metric.WhichOneof("data"))
    )
