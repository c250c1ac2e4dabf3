"""The seven telemetry tables: names, columns, types. Queries are written against these.

A field that was not sent has protobuf's default (an empty string, zero, an empty list), as the wire
does not tell the two apart. NULL stands for: a time of zero; an id that is empty or all zeros; a
field that protobuf knows to be unset (`sum`, `min`, `max`, a point's value); the value of an
attribute or a body that has none; `…_types` where all values are strings; the sender of a request
that came without a named token.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from neve.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Mapping

LOGS = "logs"
TRACES = "traces"
METRICS_GAUGE = "metrics_gauge"
METRICS_SUM = "metrics_sum"
METRICS_HISTOGRAM = "metrics_histogram"
METRICS_EXPONENTIAL_HISTOGRAM = "metrics_exponential_histogram"
METRICS_SUMMARY = "metrics_summary"

TIMESTAMP = pa.timestamp("us", tz="UTC")
ATTRIBUTES = pa.map_(pa.string(), pa.string())
STRINGS = pa.list_(pa.string())
LONGS = pa.list_(pa.int64())
DOUBLES = pa.list_(pa.float64())


def types_column(attributes: str) -> str:
    """Return the column with the kinds of `attributes`: for that one, `attribute_types`."""
    return attributes.removesuffix("s") + "_types"


def _attributes(name: str) -> list[pa.Field[Any]]:
    return [pa.field(name, ATTRIBUTES), pa.field(types_column(name), ATTRIBUTES)]


def _fields(kind: pa.DataType, *names: str) -> list[pa.Field[Any]]:
    return [pa.field(name, kind) for name in names]


ENTITY_REF = pa.struct(
    [
        *_fields(pa.string(), "schema_url", "type"),
        *_fields(STRINGS, "id_keys", "description_keys"),
    ]
)
EVENT = pa.struct(
    [
        pa.field("time_unix_nano", pa.int64()),
        pa.field("name", pa.string()),
        *_attributes("attributes"),
        pa.field("dropped_attributes_count", pa.int64()),
    ]
)
LINK = pa.struct(
    [
        *_fields(pa.string(), "trace_id", "span_id", "trace_state"),
        pa.field("flags", pa.int64()),
        *_attributes("attributes"),
        pa.field("dropped_attributes_count", pa.int64()),
    ]
)
EXEMPLAR = pa.struct(
    [
        pa.field("time_unix_nano", pa.int64()),
        pa.field("value", pa.float64()),
        pa.field("value_int", pa.int64()),
        *_fields(pa.string(), "trace_id", "span_id"),
        *_attributes("filtered_attributes"),
    ]
)
QUANTILE = pa.struct(_fields(pa.float64(), "quantile", "value"))

_EVERY_TABLE = [
    pa.field("timestamp", TIMESTAMP, nullable=False),
    pa.field("received_at", TIMESTAMP, nullable=False),
    pa.field("sender", pa.string()),
    *_fields(pa.string(), "service_name", "service_namespace", "service_instance_id"),
    *_attributes("resource_attributes"),
    pa.field("resource_entity_refs", pa.list_(ENTITY_REF)),
    pa.field("resource_dropped_attributes_count", pa.int64()),
    *_fields(pa.string(), "resource_schema_url", "scope_name", "scope_version"),
    *_attributes("scope_attributes"),
    pa.field("scope_dropped_attributes_count", pa.int64()),
    pa.field("scope_schema_url", pa.string()),
    *_attributes("attributes"),
]
_EVERY_METRIC = [
    *_EVERY_TABLE,
    *_fields(pa.string(), "metric_name", "metric_description", "metric_unit"),
    *_attributes("metric_metadata"),
    *_fields(pa.int64(), "start_time_unix_nano", "time_unix_nano", "flags"),
]
_EXEMPLARS: pa.Field[Any] = pa.field("exemplars", pa.list_(EXEMPLAR))
_NUMBER: list[pa.Field[Any]] = [pa.field("value", pa.float64()), pa.field("value_int", pa.int64())]
_TEMPORALITY: pa.Field[Any] = pa.field("aggregation_temporality", pa.string())

SCHEMAS: Mapping[str, pa.Schema] = MappingProxyType(
    {
        LOGS: pa.schema(
            [
                *_EVERY_TABLE,
                *_fields(pa.int64(), "time_unix_nano", "observed_time_unix_nano"),
                pa.field("severity_number", pa.int32()),
                *_fields(pa.string(), "severity_text", "body", "body_kind", "event_name"),
                *_fields(pa.string(), "trace_id", "span_id"),
                *_fields(pa.int64(), "flags", "dropped_attributes_count"),
            ]
        ),
        TRACES: pa.schema(
            [
                *_EVERY_TABLE,
                *_fields(pa.string(), "trace_id", "span_id", "parent_span_id", "trace_state"),
                pa.field("flags", pa.int64()),
                *_fields(pa.string(), "name", "kind"),
                *_fields(pa.int64(), "start_time_unix_nano", "end_time_unix_nano", "duration_nano"),
                *_fields(pa.string(), "status_code", "status_message"),
                *_fields(
                    pa.int64(),
                    "dropped_attributes_count",
                    "dropped_events_count",
                    "dropped_links_count",
                ),
                pa.field("events", pa.list_(EVENT)),
                pa.field("links", pa.list_(LINK)),
            ]
        ),
        METRICS_GAUGE: pa.schema([*_EVERY_METRIC, *_NUMBER, _EXEMPLARS]),
        METRICS_SUM: pa.schema(
            [
                *_EVERY_METRIC,
                *_NUMBER,
                _TEMPORALITY,
                pa.field("is_monotonic", pa.bool_()),
                _EXEMPLARS,
            ]
        ),
        METRICS_HISTOGRAM: pa.schema(
            [
                *_EVERY_METRIC,
                pa.field("count", pa.int64()),
                *_fields(pa.float64(), "sum", "min", "max"),
                pa.field("bucket_counts", LONGS),
                pa.field("explicit_bounds", DOUBLES),
                _TEMPORALITY,
                _EXEMPLARS,
            ]
        ),
        METRICS_EXPONENTIAL_HISTOGRAM: pa.schema(
            [
                *_EVERY_METRIC,
                pa.field("count", pa.int64()),
                *_fields(pa.float64(), "sum", "min", "max"),
                pa.field("scale", pa.int32()),
                pa.field("zero_count", pa.int64()),
                pa.field("zero_threshold", pa.float64()),
                pa.field("positive_offset", pa.int32()),
                pa.field("positive_bucket_counts", LONGS),
                pa.field("negative_offset", pa.int32()),
                pa.field("negative_bucket_counts", LONGS),
                _TEMPORALITY,
                _EXEMPLARS,
            ]
        ),
        METRICS_SUMMARY: pa.schema(
            [
                *_EVERY_METRIC,
                pa.field("count", pa.int64()),
                pa.field("sum", pa.float64()),
                pa.field("quantiles", pa.list_(QUANTILE)),
            ]
        ),
    }
)

TABLES_OF: Mapping[Signal, tuple[str, ...]] = MappingProxyType(
    {
        Signal.LOGS: (LOGS,),
        Signal.TRACES: (TRACES,),
        Signal.METRICS: (
            METRICS_GAUGE,
            METRICS_SUM,
            METRICS_HISTOGRAM,
            METRICS_EXPONENTIAL_HISTOGRAM,
            METRICS_SUMMARY,
        ),
    }
)
