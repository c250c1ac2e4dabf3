"""Spans by the OpenTelemetry SDK, sent over OTLP/HTTP; loaded only where they are asked for."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Span, StatusCode

from neve.errors import NeveError
from neve.observe.metrics import common_labels

if TYPE_CHECKING:
    from neve.config import Settings
    from neve.observe.traces import Attribute

logger = logging.getLogger(__name__)

# Of our own attributes; others have names of the OpenTelemetry conventions.
PREFIX = "neve."
# For a request with its repetitions: a receiver that is away does not delay the end of a process.
EXPORT_SECONDS = 3.0


def otlp_resource(settings: Settings) -> Resource:
    """Return who sends: the deployment, as OpenTelemetry's conventions name it."""
    labels = common_labels(settings)
    return Resource.create(
        {
            "service.name": labels["project"],
            "service.version": labels["version"],
            "deployment.environment.name": labels["environment"],
        }
    )


def otlp_address(settings: Settings, signal: str) -> str:
    return f"{(settings.observe.otlp_endpoint or '').rstrip('/')}/v1/{signal}"


class OtlpTracer:
    """Makes spans and sends them in batches, on a thread of its own. At most once."""

    def __init__(self, settings: Settings) -> None:
        exporter = OTLPSpanExporter(
            otlp_address(settings, "traces"), timeout=EXPORT_SECONDS, compression=Compression.Gzip
        )
        self._exporter = TellingExporter(exporter)
        # Its own and not the process's: an application that uses Neve has one itself.
        self._provider = TracerProvider(resource=otlp_resource(settings))
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer("neve", common_labels(settings)["version"])

    @contextmanager
    def span(self, name: str, attributes: Mapping[str, Attribute]) -> Iterator[OtlpSpan]:
        with self._tracer.start_as_current_span(
            name,
            attributes=_named(attributes),
            record_exception=False,
            set_status_on_exception=False,
        ) as started:
            try:
                yield OtlpSpan(started)
            except BaseException as error:
                started.set_attribute("error.type", _kind(error))
                started.set_status(StatusCode.ERROR)
                raise

    def close(self) -> None:
        self._exporter.ending = True
        self._provider.shutdown()


class OtlpSpan:
    """A span of the SDK, with attributes under our prefix."""

    def __init__(self, started: Span) -> None:
        self._started = started

    def set(self, **attributes: Attribute) -> None:
        self._started.set_attributes(_named(attributes))


class TellingExporter(SpanExporter):
    """Says when spans begin to be lost, and when they no longer are; not for every batch."""

    def __init__(self, exporter: SpanExporter) -> None:
        # At the end of the process nothing is tried again: it is being waited for.
        self.ending = False
        self._exporter = exporter
        self._losing = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if self.ending and self._losing:
            return SpanExportResult.FAILURE
        result = self._exporter.export(spans)
        losing = result is not SpanExportResult.SUCCESS
        if losing and not self._losing:
            logger.warning("observe.otlp_endpoint does not take spans: they are lost meanwhile")
        elif self._losing and not losing:
            logger.warning("observe.otlp_endpoint takes spans again")
        self._losing = losing
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()


def _kind(error: BaseException) -> str:
    return error.code.value if isinstance(error, NeveError) else type(error).__name__


def _named(attributes: Mapping[str, Attribute]) -> dict[str, Attribute]:
    return {f"{PREFIX}{key}": value for key, value in attributes.items()}
