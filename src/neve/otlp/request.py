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

from neve.errors import MalformedError, TooLargeError
from neve.otlp.json_mapping import from_json
from neve.signals import Signal

if TYPE_CHECKING:
    from google.protobuf.message import Message
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
        ExportMetricsServiceRequest,
    )
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


# A record that says anything takes a dozen bytes, so no honest request under the recommended limit
# of 64 MiB has this many; a dishonest one, of empty records, would fill memory as rows.
MAX_RECORDS = 1_000_000


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
        TooLargeError: it has more than `MAX_RECORDS` records.
    """
    message = from_json(body, signal.request) if json else _from_protobuf(body, signal.request)
    records = count_records(signal, message)
    if records > MAX_RECORDS:
        raise TooLargeError(
            f"the request has {records} records, more than {MAX_RECORDS}",
            hint="Send smaller batches.",
        )
    return ParsedRequest(message.SerializeToString() if json else body, records)


def _from_protobuf(body: bytes, message_type: type[Message]) -> Message:
    try:
        return message_type.FromString(body)
    except DecodeError as error:
        raise MalformedError(f"the body is not a protobuf {message_type.__name__}") from error


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
