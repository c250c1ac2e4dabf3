"""Columns that Arrow reads from Parquet exactly as Spark does: by type and by file. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T  # noqa: N812 - as everywhere

FIELD_ID = b"PARQUET:field_id"
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_MICROSECONDS = pa.timestamp("us")
_UTC_MICROSECONDS = pa.timestamp("us", tz="UTC")
# Of each type of a table: what Spark calls it, and what files may have, narrower ones included.
_PRIMITIVES: dict[str, tuple[T.DataType, tuple[pa.DataType, ...]]] = {
    "boolean": (T.BooleanType(), (pa.bool_(),)),
    "int": (T.IntegerType(), (pa.int32(),)),
    "long": (T.LongType(), (pa.int64(), pa.int32())),
    "float": (T.FloatType(), (pa.float32(),)),
    "double": (T.DoubleType(), (pa.float64(), pa.float32())),
    "date": (T.DateType(), (pa.date32(),)),
    "timestamp": (T.TimestampNTZType(), (_MICROSECONDS,)),
    "timestamptz": (T.TimestampType(), (_UTC_MICROSECONDS,)),
    "string": (T.StringType(), (pa.string(), pa.large_string())),
    "binary": (T.BinaryType(), (pa.binary(), pa.large_binary())),
}
_DEFAULTS = ("initial-default", "write-default")


class NeedsSparkError(Exception):
    """What is to be read is not plain, or too much: only Spark reads it as Spark does."""


def spark_field(field: Mapping[str, Any]) -> T.StructField:
    """Return what Iceberg's own reader calls a field of a schema.

    Raises:
        NeedsSparkError: it has a type or a default that is not plain.
    """
    if any(field.get(name) is not None for name in _DEFAULTS):
        raise NeedsSparkError("a column has a default")
    comment = {"comment": field["doc"]} if field.get("doc") is not None else None
    return T.StructField(
        field["name"], _spark_type(field["type"]), not field["required"], metadata=comment
    )


def _spark_type(kind: Any) -> T.DataType:
    if isinstance(kind, str):
        if decimal := _DECIMAL.fullmatch(kind):
            return T.DecimalType(int(decimal[1]), int(decimal[2]))
        if kind not in _PRIMITIVES:
            raise NeedsSparkError(f"a column has the type {kind}")
        return _PRIMITIVES[kind][0]
    if kind["type"] == "struct":
        return T.StructType([spark_field(each) for each in kind["fields"]])
    if kind["type"] == "list":
        return T.ArrayType(_spark_type(kind["element"]), not kind["element-required"])
    if kind["type"] == "map":
        return T.MapType(
            _spark_type(kind["key"]), _spark_type(kind["value"]), not kind["value-required"]
        )
    raise NeedsSparkError(f"a column has the type {kind['type']}")


def holds(field: Mapping[str, Any], present: pa.Field) -> bool:
    """Tell whether a column of a file, found by its id, has the values of a field as they are."""
    is_optional_only_in_file = field["required"] and present.nullable
    return not is_optional_only_in_file and _holds_type(field["type"], present.type)


def field_id(present: pa.Field) -> int | None:
    text = (present.metadata or {}).get(FIELD_ID)
    return None if text is None else int(text)


def _holds_type(kind: Any, present: pa.DataType) -> bool:
    if isinstance(kind, str):
        return _holds_primitive(kind, present)
    if kind["type"] == "struct":
        # By place and name: Arrow matches the fields of a struct by name, Iceberg by id.
        return (
            pa.types.is_struct(present)
            and present.num_fields == len(kind["fields"])
            and all(
                _is_same(each["id"], each, present.field(place))
                and present.field(place).name == each["name"]
                for place, each in enumerate(kind["fields"])
            )
        )
    if kind["type"] == "list":
        return pa.types.is_list(present) and _is_same(
            kind["element-id"], _part(kind, "element"), present.value_field
        )
    return (
        pa.types.is_map(present)
        and _is_same(kind["key-id"], _part(kind, "key"), present.key_field)
        and _is_same(kind["value-id"], _part(kind, "value"), present.item_field)
    )


def _part(kind: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {"type": kind[name], "required": kind.get(f"{name}-required", True)}


def _is_same(number: int, field: Mapping[str, Any], present: pa.Field) -> bool:
    return field_id(present) == number and holds(field, present)


def _holds_primitive(kind: str, present: pa.DataType) -> bool:
    if decimal := _DECIMAL.fullmatch(kind):
        return bool(
            pa.types.is_decimal128(present)
            and present.precision <= int(decimal[1])
            and present.scale == int(decimal[2])
        )
    return present in _PRIMITIVES[kind][1]
