"""A shop that reports through the OpenTelemetry SDK."""

from __future__ import annotations

import gzip
import random
import time
from types import MappingProxyType
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from google.rpc.status_pb2 import Status
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, StatusCode, use_span

from neve.errors import UnavailableError
from neve.otlp.answer import PROTOBUF
from neve.signals import Signal
from neve.telemetry import schemas

CHECKOUTS = 1_000
NAMELESS = 20
JOB_RECORDS = 5
_BOMB_BYTES = 60_000_000
SEED = 7
_CITIES = ("Chamonix", "Zermatt", "Grindelwald", "Courmayeur")
_SCOPE = "neve.demo"
_RESOURCE = Resource({"service.name": "shop"})
_BATCH = 250
_MILLI = 1_000_000
_PAUSE_NANOS = 50 * _MILLI
_DECLINED = 0.03

# Records by the table they belong to; of metrics one data point for each city.
SENT = MappingProxyType(
    {
        schemas.LOGS: 3 * CHECKOUTS,
        schemas.TRACES: 2 * CHECKOUTS,
        schemas.METRICS_GAUGE: len(_CITIES),
        schemas.METRICS_SUM: len(_CITIES),
        schemas.METRICS_HISTOGRAM: len(_CITIES),
        schemas.METRICS_EXPONENTIAL_HISTOGRAM: len(_CITIES),
        schemas.METRICS_SUMMARY: 1,
    }
)


def send(address: str) -> bytes:
    """Send what `SENT` counts, each request until it is acknowledged; return the last of them."""
    pick = random.Random(SEED)  # noqa: S311 - data for a demo
    shop, payments = _Service("shop", address), _Service("payments", address)
    first = time.time_ns() - CHECKOUTS * _PAUSE_NANOS
    for order in range(CHECKOUTS):
        _check_out(shop, payments, order, first + order * _PAUSE_NANOS, pick)
    shop.shutdown()
    payments.shutdown()
    _send_metrics(address, pick)
    summary = _summary_request()
    post(address, Signal.METRICS, summary)
    return summary


def post(address: str, signal: Signal, body: bytes) -> None:
    """Send a request as it is.

    Raises:
        UnavailableError: it was not acknowledged.
    """
    url = f"http://{address}{signal.http_path}"
    try:
        urlopen(Request(url, body, {"content-type": PROTOBUF})).close()
    except OSError as error:
        raise UnavailableError(f"the receiver did not acknowledge a request: {error}") from error


def send_bomb(address: str) -> tuple[int, int, str]:
    """Send little that would become millions of spans; return its size, the status, and why."""
    spans = b"\x12\x00" * (_BOMB_BYTES // 2)
    bomb = gzip.compress(_prefixed(1, _prefixed(2, spans)), compresslevel=6)
    headers = {"content-type": PROTOBUF, "content-encoding": "gzip"}
    try:
        with urlopen(
            Request(f"http://{address}{Signal.TRACES.http_path}", bomb, headers)
        ) as answer:
            return len(bomb), answer.status, ""
    except HTTPError as error:
        return len(bomb), error.code, Status.FromString(error.read()).message


def _prefixed(field: int, content: bytes) -> bytes:
    """Write a protobuf field that holds a message of less than 256 MiB."""
    size = len(content)
    length = bytes([size >> shift & 127 | 128 for shift in (0, 7, 14)]) + bytes([size >> 21])
    return bytes([field << 3 | 2]) + length + content


def nameless_request() -> bytes:
    """Build log records of a script that does not say which service it belongs to."""
    return _log_request(None, "cleaned up", NAMELESS)


def job_request() -> bytes:
    """Build log records of a small job."""
    return _log_request("nightly-report", "wrote page", JOB_RECORDS)


def _log_request(service: str | None, text: str, count: int) -> bytes:
    request = Signal.LOGS.request()
    resource: Any = request.resource_logs.add()  # type: ignore[attr-defined]
    if service:
        resource.resource.attributes.add(key="service.name").value.string_value = service
    scope = resource.scope_logs.add()
    for number in range(count):
        record = scope.log_records.add(time_unix_nano=time.time_ns())
        record.body.string_value = f"{text} {number}"
    return request.SerializeToString()


class _Service:
    """What one service sends: spans, and log records that carry their ids."""

    def __init__(self, name: str, address: str) -> None:
        resource = Resource({"service.name": name})
        # Nothing is dropped: the queues hold all of it.
        sizes: Any = {"max_queue_size": 3 * CHECKOUTS, "max_export_batch_size": _BATCH}
        spans = OTLPSpanExporter(**_target(address, Signal.TRACES))
        self._tracing = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._tracing.add_span_processor(BatchSpanProcessor(spans, **sizes))
        records = OTLPLogExporter(**_target(address, Signal.LOGS))
        self._logging = LoggerProvider(resource, shutdown_on_exit=False)
        self._logging.add_log_record_processor(BatchLogRecordProcessor(records, **sizes))
        self._tracer = self._tracing.get_tracer(_SCOPE)
        self._logger = self._logging.get_logger(_SCOPE)

    def start(self, name: str, kind: SpanKind, at: int, attributes: dict[str, Any]) -> Span:
        return self._tracer.start_span(name, kind=kind, start_time=at, attributes=attributes)

    def log(self, body: str, severity: SeverityNumber, at: int, attributes: dict[str, Any]) -> None:
        self._logger.emit(
            LogRecord(
                timestamp=at,
                severity_number=severity,
                severity_text=severity.name,
                body=body,
                attributes=attributes,
            )
        )

    def shutdown(self) -> None:
        """Send what is still queued."""
        self._tracing.shutdown()
        self._logging.shutdown()


def _check_out(
    shop: _Service, payments: _Service, order: int, at: int, pick: random.Random
) -> None:
    """One order: two services, two spans, three log records. Its times are made up, too."""
    attributes: dict[str, Any] = {"order.id": order, "city": pick.choice(_CITIES)}
    charged = at + _MILLI + int(pick.expovariate(1 / 200) * _MILLI)
    is_declined = pick.random() < _DECLINED
    info, error = SeverityNumber.INFO, SeverityNumber.ERROR
    checkout = shop.start("checkout", SpanKind.SERVER, at, attributes)
    with use_span(checkout):
        shop.log("order taken", info, at, attributes)
        charge = payments.start("charge", SpanKind.CLIENT, at + _MILLI, attributes)
        with use_span(charge):
            outcome = ("card declined", error) if is_declined else ("card charged", info)
            payments.log(*outcome, charged, attributes)
        if is_declined:
            charge.set_status(StatusCode.ERROR, "card declined")
        charge.end(charged)
        shop.log("order closed", info, charged, attributes)
    checkout.end(charged + pick.randrange(5, 50) * _MILLI)


def _send_metrics(address: str, pick: random.Random) -> None:
    exporter = OTLPMetricExporter(**_target(address, Signal.METRICS))
    # Once, at the end: the interval is longer than the demo.
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)
    sizes = View(
        instrument_name="shop.basket.size", aggregation=ExponentialBucketHistogramAggregation()
    )
    metering = MeterProvider([reader], _RESOURCE, shutdown_on_exit=False, views=[sizes])
    meter = metering.get_meter(_SCOPE)
    orders = meter.create_counter("shop.orders")
    stock = meter.create_gauge("shop.stock")
    durations = meter.create_histogram("shop.checkout.duration", unit="s")
    baskets = meter.create_histogram("shop.basket.size")
    for number in range(CHECKOUTS):
        city = {"city": _CITIES[number % len(_CITIES)]}
        orders.add(1, city)
        stock.set(CHECKOUTS - number, city)
        durations.record(pick.expovariate(2), city)
        baskets.record(pick.randrange(1, 30), city)
    metering.shutdown()


def _summary_request() -> bytes:
    """Build a summary by hand: old clients send them, and the SDK has no way to."""
    request = Signal.METRICS.request()
    resource: Any = request.resource_metrics.add()  # type: ignore[attr-defined]
    resource.resource.attributes.add(key="service.name").value.string_value = "shop"
    scope = resource.scope_metrics.add()
    scope.scope.name = _SCOPE
    point = scope.metrics.add(name="shop.answer.time", unit="s").summary.data_points.add(
        time_unix_nano=time.time_ns(), count=CHECKOUTS, sum=42.0
    )
    for quantile, value in ((0.5, 0.3), (0.99, 1.9)):
        point.quantile_values.add(quantile=quantile, value=value)
    return request.SerializeToString()


def _target(address: str, signal: Signal) -> dict[str, Any]:
    return {"endpoint": f"http://{address}{signal.http_path}", "compression": Compression.Gzip}
