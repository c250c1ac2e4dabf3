"""The tables are a contract: nothing of OTLP is without a column, no column changes by accident."""

import pyarrow as pa

from neve.signals import Signal
from neve.telemetry.schemas import ATTRIBUTES, SCHEMAS, TABLES_OF, types_column

# Fields whose column has another name, or that are containers of what has columns.
ELSEWHERE = {
    "Resource": {"attributes": "resource_attributes", "entity_refs": "resource_entity_refs"},
    "NumberDataPoint": {"as_double": "value", "as_int": "value_int"},
    "Exemplar": {"as_double": "value", "as_int": "value_int"},
    "SummaryDataPoint": {"quantile_values": "quantiles"},
    "Metric": {"metadata": "metric_metadata"},
}
PREFIXES = {"Resource": "resource_", "InstrumentationScope": "scope_", "Metric": "metric_"}
CONTAINERS = {"gauge", "sum", "histogram", "exponential_histogram", "summary"}


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


def test_seven_tables():
    assert sorted(SCHEMAS) == sorted(name for tables in TABLES_OF.values() for name in tables)
    assert len(SCHEMAS) == 7
