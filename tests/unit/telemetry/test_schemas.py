"""The tables are a contract: nothing of OTLP is without a column, no column changes by accident."""

import pyarrow as pa

from neve.signals import Signal
from neve.telemetry.schemas import ATTRIBUTES, SCHEMAS, TABLES_OF, types_column

# TABLES.md, written down once more: a change here is a change of what people query.
MAP = "map<string, string>"
CONTEXT = [
    "timestamp timestamp[us, tz=UTC]",
    "received_at timestamp[us, tz=UTC]",
    "sender string",
    "service_name string",
    "service_namespace string",
    "service_instance_id string",
    f"resource_attributes {MAP}",
    f"resource_attribute_types {MAP}",
    (
        "resource_entity_refs list<struct<schema_url: string, type: string, "
        "id_keys: list<string>, description_keys: list<string>>>"
    ),
    "resource_dropped_attributes_count int64",
    "resource_schema_url string",
    "scope_name string",
    "scope_version string",
    f"scope_attributes {MAP}",
    f"scope_attribute_types {MAP}",
    "scope_dropped_attributes_count int64",
    "scope_schema_url string",
    f"attributes {MAP}",
    f"attribute_types {MAP}",
]
METRIC = [
    *CONTEXT,
    "metric_name string",
    "metric_description string",
    "metric_unit string",
    f"metric_metadata {MAP}",
    f"metric_metadata_types {MAP}",
    "start_time_unix_nano int64",
    "time_unix_nano int64",
    "flags int64",
]
EXEMPLARS = (
    "exemplars list<struct<time_unix_nano: int64, value: double, value_int: int64, "
    f"trace_id: string, span_id: string, filtered_attributes: {MAP}, "
    f"filtered_attribute_types: {MAP}>>"
)
DISTRIBUTION = ["count int64", "sum double", "min double", "max double"]
TEMPORALITY = "aggregation_temporality string"
COLUMNS = {
    "logs": [
        *CONTEXT,
        "time_unix_nano int64",
        "observed_time_unix_nano int64",
        "severity_number int32",
        "severity_text string",
        "body string",
        "body_kind string",
        "event_name string",
        "trace_id string",
        "span_id string",
        "flags int64",
        "dropped_attributes_count int64",
    ],
    "traces": [
        *CONTEXT,
        "trace_id string",
        "span_id string",
        "parent_span_id string",
        "trace_state string",
        "flags int64",
        "name string",
        "kind string",
        "start_time_unix_nano int64",
        "end_time_unix_nano int64",
        "duration_nano int64",
        "status_code string",
        "status_message string",
        "dropped_attributes_count int64",
        "dropped_events_count int64",
        "dropped_links_count int64",
        (
            f"events list<struct<time_unix_nano: int64, name: string, attributes: {MAP}, "
            f"attribute_types: {MAP}, dropped_attributes_count: int64>>"
        ),
        (
            "links list<struct<trace_id: string, span_id: string, trace_state: string, "
            f"flags: int64, attributes: {MAP}, attribute_types: {MAP}, "
            "dropped_attributes_count: int64>>"
        ),
    ],
    "metrics_gauge": [*METRIC, "value double", "value_int int64", EXEMPLARS],
    "metrics_sum": [
        *METRIC,
        "value double",
        "value_int int64",
        TEMPORALITY,
        "is_monotonic bool",
        EXEMPLARS,
    ],
    "metrics_histogram": [
        *METRIC,
        *DISTRIBUTION,
        "bucket_counts list<int64>",
        "explicit_bounds list<double>",
        TEMPORALITY,
        EXEMPLARS,
    ],
    "metrics_exponential_histogram": [
        *METRIC,
        *DISTRIBUTION,
        "scale int32",
        "zero_count int64",
        "zero_threshold double",
        "positive_offset int32",
        "positive_bucket_counts list<int64>",
        "negative_offset int32",
        "negative_bucket_counts list<int64>",
        TEMPORALITY,
        EXEMPLARS,
    ],
    "metrics_summary": [
        *METRIC,
        "count int64",
        "sum double",
        "quantiles list<struct<quantile: double, value: double>>",
    ],
}

# Fields whose column has another name, or that are containers of what has columns.
ELSEWHERE = {
    "Resource": {"attributes": "resource_attributes", "entity_refs": "resource_entity_refs"},
    "NumberDataPoint": {"as_double": "value", "as_int": "value_int"},
    "Exemplar": {"as_double": "value", "as_int": "value_int"},
    "SummaryDataPoint": {"quantile_values": "quantiles"},
    "Metric": {"metadata": "metric_metadata"},
}
PREFIXES = {"Resource": "resource_", "InstrumentationScope": "scope_", "Metric": "metric_"}


def names(kind):
    """All column names of a table, and those of structs inside it."""
    found = set()
    for field in kind:
        found.add(field.name)
        inner = field.type
        if pa.types.is_list(inner) and pa.types.is_struct(inner.value_type):
            found |= names(inner.value_type)
    return found


def messages(descriptor, seen):
    for field in descriptor.fields:
        inner = field.message_type
        if inner and inner.full_name not in seen:
            seen[inner.full_name] = inner
            messages(inner, seen)
    return seen


def test_every_field_of_otlp_has_a_column():
    # Attribute values and keys become maps; these are tested by value.
    maps = {"KeyValue", "AnyValue", "ArrayValue", "KeyValueList"}
    for signal in Signal:
        columns = set().union(*(names(SCHEMAS[table]) for table in TABLES_OF[signal]))
        for message in messages(signal.request.DESCRIPTOR, {}).values():
            if message.name in maps or message.name.startswith("Scope"):
                continue
            for field in message.fields:
                if field.message_type and field.name not in ("attributes", "metadata"):
                    continue
                name = ELSEWHERE.get(message.name, {}).get(field.name, field.name)
                candidates = {name, PREFIXES.get(message.name, "") + name}
                if message.name == "Buckets":
                    candidates = {f"positive_{name}", f"negative_{name}"}
                if message.name == "Status":
                    candidates = {f"status_{name}"}
                if message.name.startswith("Resource") and name == "schema_url":
                    candidates = {"resource_schema_url"}
                assert candidates & columns, f"{message.full_name}.{field.name}"


def test_beside_every_map_stands_its_types():
    def check(kind):
        fields = {field.name: field.type for field in kind}
        for name, inner in fields.items():
            if inner == ATTRIBUTES and not name.endswith("_types"):
                assert fields[types_column(name)] == ATTRIBUTES
            if pa.types.is_list(inner) and pa.types.is_struct(inner.value_type):
                check(inner.value_type)

    for schema in SCHEMAS.values():
        check(schema)


def test_names_of_types_columns():
    assert types_column("attributes") == "attribute_types"
    assert types_column("resource_attributes") == "resource_attribute_types"
    assert types_column("metric_metadata") == "metric_metadata_types"


def test_only_the_two_times_are_required():
    for schema in SCHEMAS.values():
        assert [f.name for f in schema if not f.nullable] == ["timestamp", "received_at"]


def test_the_columns_are_those_of_the_contract():
    def columns(schema):
        return [f"{f.name} {f.type}".replace("item: ", "").replace(" ('item')", "") for f in schema]

    assert {name: columns(schema) for name, schema in SCHEMAS.items()} == COLUMNS


def test_every_table_is_of_one_signal():
    assert sorted(SCHEMAS) == sorted(name for tables in TABLES_OF.values() for name in tables)
