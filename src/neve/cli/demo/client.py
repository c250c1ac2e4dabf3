"""A shop that reports through the OpenTelemetry SDK."""

from __future__ import annotations

import random
import time
from types import MappingProxyType
from typing import Any
from urllib.request import Request, urlopen

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

from neve.errors import UnavailableError
from neve.otlp.answer import PROTOBUF
from neve.signals import Signal
from neve.telemetry import schemas

CHECKOUTS = 100
SEED = 7
_CITIES = ("Chamonix", "Zermatt", "Grindelwald", "Courmayeur")
_SCOPE = "neve.demo"
_RESOURCE = Resource({"service.name": "shop"})
_BATCH = 50

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
    _send_checkouts(address, pick)
    _send_metrics(address, pick)
    summary = _summary_request()
    post_metrics(address, summary)
    return summary


def post_metrics(address: str, body: bytes) -> None:
    """Send a request as it is.

    Raises:
        UnavailableError: it was not acknowledged.
    """
    url = f"http://{address}{Signal.METRICS.http_path}"
    try:
        urlopen(Request(url, body, {"content-type": PROTOBUF})).close()
    except OSError as error:
        raise UnavailableError(f"the receiver did not acknowledge a request: {error}") from error


def _send_checkouts(address: str, pick: random.Random) -> None:
    """Send spans, and log records that carry their ids."""
    spans = OTLPSpanExporter(**_target(address, Signal.TRACES))
    tracing = TracerProvider(resource=_RESOURCE, shutdown_on_exit=False)
    tracing.add_span_processor(BatchSpanProcessor(spans, max_export_batch_size=_BATCH))
    records = OTLPLogExporter(**_target(address, Signal.LOGS))
    logging = LoggerProvider(_RESOURCE, shutdown_on_exit=False)
    logging.add_log_record_processor(BatchLogRecordProcessor(records, max_export_batch_size=_BATCH))
    tracer, logger = tracing.get_tracer(_SCOPE), logging.get_logger(_SCOPE)
    for order in range(CHECKOUTS):
        attributes: dict[str, Any] = {"order.id": order, "city": pick.choice(_CITIES)}
        with tracer.start_as_current_span("checkout", attributes=attributes):
            logger.emit(_log("order taken", attributes))
            with tracer.start_as_current_span("charge"):
                logger.emit(_log("card charged", {"amount": pick.randrange(500, 20_000) / 100}))
            logger.emit(_log("order confirmed", attributes))
    tracing.shutdown()
    logging.shutdown()


def _log(body: str, attributes: dict[str, Any]) -> LogRecord:
    return LogRecord(
        timestamp=time.time_ns(),
        severity_number=SeverityNumber.INFO,
        severity_text="INFO",
        body=body,
        attributes=attributes,
    )


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
