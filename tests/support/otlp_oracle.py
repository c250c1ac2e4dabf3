"""OTLP requests to rows, slowly and obviously: one loop over message objects.

What TABLES.md says, written down a second time and on nothing but protobuf's own classes, to hold
the decoder against. It is also the loop that `benchmarks/decode.py` measures against.
"""

import base64
import json
import math
from dataclasses import dataclass, field
from decimal import Decimal

import pyarrow as pa
from google.protobuf.unknown_fields import UnknownFieldSet

from neve.signals import Signal
from neve.telemetry.schemas import SCHEMAS, TABLES_OF

SPAN_KINDS = ["unspecified", "internal", "server", "client", "producer", "consumer"]
STATUS_CODES = ["unset", "ok", "error"]
TEMPORALITIES = ["unspecified", "delta", "cumulative"]
KIND_WORDS = {
    "string_value": "string",
    "int_value": "int",
    "double_value": "double",
    "bool_value": "bool",
    "array_value": "array",
    "kvlist_value": "map",
    "bytes_value": "bytes",
}
YEAR_2262 = 9_214_646_400 * 10**9
LONG_MAX = 2**63 - 1


@dataclass
class Rows:
    tables: dict
    dead_letters: list = field(default_factory=list)
    duplicate_keys: int = 0

    def arrow(self):
        return {
            name: pa.Table.from_pylist(rows, schema=SCHEMAS[name])
            for name, rows in self.tables.items()
        }


def decode(signal, requests, received_at, senders=None):
    rows = Rows({name: [] for name in TABLES_OF[signal]})
    senders = [None] * len(requests) if senders is None else senders
    together = zip(requests, received_at, senders, strict=True)
    for position, (request, received, sender) in enumerate(together):
        message = signal.request.FromString(request)
        _LOOPS[signal](_Request(rows, position, received, sender), message)
    return rows


class _Request:
    def __init__(self, rows, position, received, sender):
        self.rows = rows
        self.position = position
        self.received = received
        self.sender = sender
        self.faults = []

    def store(self, table, path, make, message, context):
        self.faults = []
        row = make(self, message)
        if self.faults:
            self.rows.dead_letters.append((self.position, path, self.faults[0]))
            return
        if row["timestamp"] is None:
            row["timestamp"] = self.received
        self.rows.tables[table].append({**context, **row})

    def attributes(self, name, pairs):
        texts = {}
        types = {}
        for pair in pairs:
            if pair.key in texts:
                self.rows.duplicate_keys += 1
                del texts[pair.key]
                types.pop(pair.key, None)
            text, kind = self.text(pair.value)
            texts[pair.key] = text
            if kind not in (None, "string"):
                types[pair.key] = kind
        types_name = name[:-1] + "_types" if name.endswith("s") else name + "_types"
        return {name: list(texts.items()), types_name: list(types.items()) or None}

    def text(self, value):
        kind = value.WhichOneof("value")
        if kind not in KIND_WORDS:
            return None, None
        if kind == "string_value":
            text = value.string_value
        elif kind == "int_value":
            text = str(value.int_value)
        elif kind == "bool_value":
            text = "true" if value.bool_value else "false"
        elif kind == "double_value":
            text = double_text(value.double_value)
        elif kind == "bytes_value":
            text = base64.b64encode(value.bytes_value).decode()
        else:
            text = self.json(value)
        return text, KIND_WORDS[kind]

    def json(self, value):
        kind = value.WhichOneof("value")
        if kind == "array_value":
            return "[" + ",".join(self.json(member) for member in value.array_value.values) + "]"
        if kind == "kvlist_value":
            members = {}
            for pair in value.kvlist_value.values:
                if pair.key in members:
                    self.rows.duplicate_keys += 1
                    del members[pair.key]
                members[pair.key] = self.json(pair.value)
            return "{" + ",".join(f"{quoted(k)}:{text}" for k, text in members.items()) + "}"
        text, word = self.text(value)
        if word is None:
            return "null"
        if word in ("string", "bytes"):
            return quoted(text)
        if word == "double" and not math.isfinite(value.double_value):
            return quoted(text)
        if word == "double" and text.lstrip("-").isdigit():
            return text + ".0"
        return text

    def time(self, name, nanos):
        if nanos >= YEAR_2262:
            self.faults.append(f"{name} is after the year 2261")
        return nanos or None

    def long(self, name, value):
        if value > LONG_MAX:
            self.faults.append(f"{name} does not fit a long")
        return value

    def longs(self, name, values):
        return [self.long(name, value) for value in values]

    def resource(self, message):
        resource = message.resource
        attributes = self.attributes("resource_attributes", resource.attributes)
        texts = dict(attributes["resource_attributes"])
        return {
            "received_at": self.received,
            "sender": self.sender,
            "service_name": texts.get("service.name"),
            "service_namespace": texts.get("service.namespace"),
            "service_instance_id": texts.get("service.instance.id"),
            **attributes,
            "resource_entity_refs": [
                {
                    "schema_url": ref.schema_url,
                    "type": ref.type,
                    "id_keys": list(ref.id_keys),
                    "description_keys": list(ref.description_keys),
                }
                for ref in resource.entity_refs
            ],
            "resource_dropped_attributes_count": resource.dropped_attributes_count,
            "resource_schema_url": message.schema_url,
        }

    def scope(self, message):
        scope = message.scope
        return {
            "scope_name": scope.name,
            "scope_version": scope.version,
            **self.attributes("scope_attributes", scope.attributes),
            "scope_dropped_attributes_count": scope.dropped_attributes_count,
            "scope_schema_url": message.schema_url,
        }


def hex_id(octets):
    """An id of zeros is no id, and neither is an empty one."""
    return octets.hex() if set(octets) - {0} else None


def quoted(text):
    return json.dumps(text, ensure_ascii=False)


def double_text(double):
    """The shortest digits that read back the same, with an exponent outside 1e-6 to 1e15."""
    if math.isnan(double):
        return "NaN"
    if math.isinf(double):
        return "Infinity" if double > 0 else "-Infinity"
    if double == 0 or 1e-4 <= abs(double) < 1e15:
        return repr(double).removesuffix(".0")
    sign, digits, exponent = Decimal(repr(double)).normalize().as_tuple()
    text = "".join(map(str, digits))
    power = exponent + len(digits) - 1
    if -6 <= power < 0:
        text = "0." + "0" * (-power - 1) + text
    else:
        text = (
            text[0] + ("." + text[1:] if len(text) > 1 else "") + f"e{power:+}".replace("e-0", "e-")
        )
    return "-" * sign + text


def micros(*times):
    known = [nanos for nanos in times if nanos]
    return known[0] // 1000 if known else None


def word(words, number):
    return words[number] if 0 <= number < len(words) else str(number)


def log_row(request, log):
    at = request.time("time_unix_nano", log.time_unix_nano)
    observed = request.time("observed_time_unix_nano", log.observed_time_unix_nano)
    body, body_kind = request.text(log.body)
    return {
        "timestamp": micros(at, observed),
        **request.attributes("attributes", log.attributes),
        "time_unix_nano": at,
        "observed_time_unix_nano": observed,
        "severity_number": log.severity_number,
        "severity_text": log.severity_text,
        "body": body,
        "body_kind": body_kind,
        "event_name": log.event_name,
        "trace_id": hex_id(log.trace_id),
        "span_id": hex_id(log.span_id),
        "flags": log.flags,
        "dropped_attributes_count": log.dropped_attributes_count,
    }


def span_row(request, span):
    start = request.time("start_time_unix_nano", span.start_time_unix_nano)
    end = request.time("end_time_unix_nano", span.end_time_unix_nano)
    return {
        "timestamp": micros(start),
        **request.attributes("attributes", span.attributes),
        "trace_id": hex_id(span.trace_id),
        "span_id": hex_id(span.span_id),
        "parent_span_id": hex_id(span.parent_span_id),
        "trace_state": span.trace_state,
        "flags": span.flags,
        "name": span.name,
        "kind": word(SPAN_KINDS, span.kind),
        "start_time_unix_nano": start,
        "end_time_unix_nano": end,
        "duration_nano": end - start if start and end else None,
        "status_code": word(STATUS_CODES, span.status.code),
        "status_message": span.status.message,
        "dropped_attributes_count": span.dropped_attributes_count,
        "dropped_events_count": span.dropped_events_count,
        "dropped_links_count": span.dropped_links_count,
        "events": [
            {
                "time_unix_nano": request.time("events.time_unix_nano", event.time_unix_nano),
                "name": event.name,
                **request.attributes("attributes", event.attributes),
                "dropped_attributes_count": event.dropped_attributes_count,
            }
            for event in span.events
        ],
        "links": [
            {
                "trace_id": hex_id(link.trace_id),
                "span_id": hex_id(link.span_id),
                "trace_state": link.trace_state,
                "flags": link.flags,
                **request.attributes("attributes", link.attributes),
                "dropped_attributes_count": link.dropped_attributes_count,
            }
            for link in span.links
        ],
    }


def number(message):
    kind = message.WhichOneof("value")
    if kind == "as_int":
        return {"value": float(message.as_int), "value_int": message.as_int}
    return {"value": message.as_double if kind else None, "value_int": None}


def exemplars(request, point):
    return [
        {
            "time_unix_nano": request.time("exemplars.time_unix_nano", exemplar.time_unix_nano),
            **number(exemplar),
            "trace_id": hex_id(exemplar.trace_id),
            "span_id": hex_id(exemplar.span_id),
            **request.attributes("filtered_attributes", exemplar.filtered_attributes),
        }
        for exemplar in point.exemplars
    ]


def optional(point, name):
    return getattr(point, name) if point.HasField(name) else None


def point_row(request, point):
    start = request.time("start_time_unix_nano", point.start_time_unix_nano)
    at = request.time("time_unix_nano", point.time_unix_nano)
    row = {
        "timestamp": micros(at),
        **request.attributes("attributes", point.attributes),
        "start_time_unix_nano": start,
        "time_unix_nano": at,
        "flags": point.flags,
    }
    fields = {f.name for f in point.DESCRIPTOR.fields}
    if "as_int" in fields:
        row |= number(point)
    else:
        row["count"] = request.long("count", point.count)
        row["sum"] = point.sum if "quantile_values" in fields else optional(point, "sum")
    if "min" in fields:
        row |= {"min": optional(point, "min"), "max": optional(point, "max")}
    if "explicit_bounds" in fields:
        row["bucket_counts"] = request.longs("bucket_counts", point.bucket_counts)
        row["explicit_bounds"] = list(point.explicit_bounds)
    if "scale" in fields:
        row["scale"] = point.scale
        row["zero_count"] = request.long("zero_count", point.zero_count)
        row["zero_threshold"] = point.zero_threshold
        row["positive_offset"] = point.positive.offset
        row["positive_bucket_counts"] = request.longs(
            "positive.bucket_counts", point.positive.bucket_counts
        )
        row["negative_offset"] = point.negative.offset
        row["negative_bucket_counts"] = request.longs(
            "negative.bucket_counts", point.negative.bucket_counts
        )
    if "quantile_values" in fields:
        row["quantiles"] = [
            {"quantile": q.quantile, "value": q.value} for q in point.quantile_values
        ]
    else:
        row["exemplars"] = exemplars(request, point)
    return row


def _logs(request, message):
    for r, of_resource in enumerate(message.resource_logs):
        resource = request.resource(of_resource)
        for s, of_scope in enumerate(of_resource.scope_logs):
            context = {**resource, **request.scope(of_scope)}
            for i, log in enumerate(of_scope.log_records):
                path = f"resource_logs[{r}].scope_logs[{s}].log_records[{i}]"
                request.store("logs", path, log_row, log, context)


def _traces(request, message):
    for r, of_resource in enumerate(message.resource_spans):
        resource = request.resource(of_resource)
        for s, of_scope in enumerate(of_resource.scope_spans):
            context = {**resource, **request.scope(of_scope)}
            for i, span in enumerate(of_scope.spans):
                path = f"resource_spans[{r}].scope_spans[{s}].spans[{i}]"
                request.store("traces", path, span_row, span, context)


def _metrics(request, message):
    for r, of_resource in enumerate(message.resource_metrics):
        resource = request.resource(of_resource)
        for s, of_scope in enumerate(of_resource.scope_metrics):
            scope = request.scope(of_scope)
            for m, metric in enumerate(of_scope.metrics):
                path = f"resource_metrics[{r}].scope_metrics[{s}].metrics[{m}]"
                _metric(request, path, metric, {**resource, **scope})


def _metric(request, path, metric, context):
    context |= {
        "metric_name": metric.name,
        "metric_description": metric.description,
        "metric_unit": metric.unit,
        **request.attributes("metric_metadata", metric.metadata),
    }
    kind = metric.WhichOneof("data")
    if kind is None:
        # Length-delimited (wire type 2) is what a message of a newer version would be.
        newer = [f.field_number for f in UnknownFieldSet(metric) if f.wire_type == 2 and f.data]
        if newer:
            reason = f"this version does not know the metric's kind (field {newer[0]})"
            request.rows.dead_letters.append((request.position, path, reason))
        return
    data = getattr(metric, kind)
    if kind in ("sum", "histogram", "exponential_histogram"):
        context["aggregation_temporality"] = word(TEMPORALITIES, data.aggregation_temporality)
    if kind == "sum":
        context["is_monotonic"] = data.is_monotonic
    for i, point in enumerate(data.data_points):
        point_path = f"{path}.{kind}.data_points[{i}]"
        request.store(f"metrics_{kind}", point_path, point_row, point, context)


_LOOPS = {Signal.LOGS: _logs, Signal.TRACES: _traces, Signal.METRICS: _metrics}
