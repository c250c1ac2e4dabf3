"""Metrics by the OpenTelemetry SDK, sent over OTLP/HTTP; loaded only where they are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import ExplicitBucketHistogramAggregation, View

from neve.observe.metrics import COMMIT_BUCKETS
from neve.observe.otlp import EXPORT_SECONDS, otlp_address, otlp_resource

if TYPE_CHECKING:
    from neve.config import Settings


def meter_provider(settings: Settings) -> MeterProvider:
    """Return what counts and sends metrics, on a thread of its own; `shutdown` sends the last.

    Its own and not the process's: an application that uses Neve has one itself.
    """
    exporter = OTLPMetricExporter(
        otlp_address(settings, "metrics"), timeout=EXPORT_SECONDS, compression=Compression.Gzip
    )
    # The SDK's buckets are for milliseconds.
    seconds = View(
        instrument_type=Histogram,
        instrument_name="*",
        aggregation=ExplicitBucketHistogramAggregation(COMMIT_BUCKETS),
    )
    return MeterProvider(
        [PeriodicExportingMetricReader(exporter)],
        resource=otlp_resource(settings),
        # Ends with its writer, whose `close` sends the last.
        shutdown_on_exit=False,
        views=[seconds],
    )
