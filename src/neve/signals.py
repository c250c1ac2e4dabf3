"""The three signals Neve takes, and what the protocol calls everything about each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING

from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

if TYPE_CHECKING:
    from google.protobuf.message import Message


class Signal(str, Enum):
    """A kind of telemetry."""

    LOGS = "logs"
    TRACES = "traces"
    METRICS = "metrics"

    @property
    def http_path(self) -> str:
        """The path of OTLP/HTTP, such as `/v1/logs`."""
        return f"/v1/{self.value}"

    @property
    def grpc_service(self) -> str:
        """The full name of the gRPC service, without a method."""
        return _PROTOCOL[self].service

    @property
    def grpc_method(self) -> str:
        """The path of the gRPC call, such as `/opentelemetry…LogsService/Export`."""
        return f"/{self.grpc_service}/Export"

    @property
    def request(self) -> type[Message]:
        """The class of `Export…ServiceRequest`."""
        return _PROTOCOL[self].request

    @property
    def response(self) -> type[Message]:
        """The class of `Export…ServiceResponse`."""
        return _PROTOCOL[self].response

    @property
    def levels(self) -> tuple[str, str, str]:
        """The fields that lead from a request to its resources, their scopes, and what those list.

        That is log records, spans or metrics.
        """
        return _PROTOCOL[self].levels

    @property
    def rejected_field(self) -> str:
        """The field of `partial_success` that counts what was rejected."""
        return _PROTOCOL[self].rejected_field


@dataclass(frozen=True)
class _Protocol:
    service: str
    request: type[Message]
    response: type[Message]
    levels: tuple[str, str, str]
    rejected_field: str


_PROTOCOL = MappingProxyType(
    {
        Signal.LOGS: _Protocol(
            "opentelemetry.proto.collector.logs.v1.LogsService",
            logs_service_pb2.ExportLogsServiceRequest,
            logs_service_pb2.ExportLogsServiceResponse,
            ("resource_logs", "scope_logs", "log_records"),
            "rejected_log_records",
        ),
        Signal.TRACES: _Protocol(
            "opentelemetry.proto.collector.trace.v1.TraceService",
            trace_service_pb2.ExportTraceServiceRequest,
            trace_service_pb2.ExportTraceServiceResponse,
            ("resource_spans", "scope_spans", "spans"),
            "rejected_spans",
        ),
        Signal.METRICS: _Protocol(
            "opentelemetry.proto.collector.metrics.v1.MetricsService",
            metrics_service_pb2.ExportMetricsServiceRequest,
            metrics_service_pb2.ExportMetricsServiceResponse,
            ("resource_metrics", "scope_metrics", "metrics"),
            "rejected_data_points",
        ),
    }
)
