"""The telemetry tables as tables of a page."""

from collections.abc import Iterable

import pyarrow as pa

from neve.telemetry.schemas import SCHEMAS

_METRICS = "metrics_"
_NAMES = {
    pa.string(): "string",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float64(): "double",
    pa.bool_(): "boolean",
}


def schemas_page() -> str:
    """Return every table's columns: those of all, those of all metrics, and each table's own."""
    shared = _shared(SCHEMAS)
    metrics = _shared(name for name in SCHEMAS if name.startswith(_METRICS))
    lines = ["### On every table", "", *_rows(shared)]
    told = False
    for name, schema in SCHEMAS.items():
        known = shared
        if name.startswith(_METRICS):
            known = metrics
            if not told:
                own = [field for field in metrics if field not in shared]
                lines += ["### On every metric table", "", *_rows(own)]
                told = True
        lines += [f"### `{name}`", "", *_rows([field for field in schema if field not in known])]
    return "\n".join(lines)


def _shared(names: Iterable[str]) -> list[pa.Field]:
    """Return the fields that all these tables have, in their order."""
    first, *others = (list(SCHEMAS[name]) for name in names)
    return [field for field in first if all(field in other for other in others)]


def _rows(fields: Iterable[pa.Field]) -> list[str]:
    rows = [f"| `{field.name}` | {_type(field)} |" for field in fields]
    return ["| column | type |", "|---|---|", *rows, ""]


def _type(field: pa.Field) -> str:
    return f"`{_name(field.type)}`" + ("" if field.nullable else ", never NULL")


def _name(kind: pa.DataType) -> str:
    """Write a type as Iceberg and Spark SQL do."""
    if pa.types.is_timestamp(kind):
        return "timestamptz"
    if pa.types.is_map(kind):
        return f"map<{_name(kind.key_type)}, {_name(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"array<{_name(kind.value_type)}>"
    if pa.types.is_struct(kind):
        inner = ", ".join(f"{field.name}: {_name(field.type)}" for field in kind)
        return f"struct<{inner}>"
    return _NAMES[kind]
