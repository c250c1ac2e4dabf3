"""Types of SQL expressions, where Spark and DuckDB mean the same by them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class SqlType:
    """A type by DuckDB's name.

    Args:
        numbers: precision and scale of a decimal.
        fields: names and types inside a struct, a list (`child`) or a map (`key`, `value`).
    """

    name: str
    numbers: tuple[int, ...] = ()
    fields: tuple[tuple[str, SqlType], ...] = ()


BOOLEAN = SqlType("BOOLEAN")
INTEGER = SqlType("INTEGER")
BIGINT = SqlType("BIGINT")
FLOAT = SqlType("FLOAT")
DOUBLE = SqlType("DOUBLE")
DATE = SqlType("DATE")
TIMESTAMP = SqlType("TIMESTAMP")
TIMESTAMPTZ = SqlType("TIMESTAMP WITH TIME ZONE")
VARCHAR = SqlType("VARCHAR")
BLOB = SqlType("BLOB")
UUID = SqlType("UUID")

WHOLE_NUMBERS = (INTEGER, BIGINT)
# What both engines calculate with in the same way. Of decimals they choose other precisions, and a
# FLOAT meets other numbers as a DOUBLE in Spark, as a FLOAT in DuckDB.
NUMBERS = (INTEGER, BIGINT, DOUBLE)
# Spark calls the first TIMESTAMP and the second TIMESTAMP_NTZ.
TIMESTAMPS = (TIMESTAMPTZ, TIMESTAMP)
MAX_PRECISION = 38

_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_OF_ICEBERG = {
    "boolean": BOOLEAN,
    "int": INTEGER,
    "long": BIGINT,
    "float": FLOAT,
    "double": DOUBLE,
    "date": DATE,
    "timestamp": TIMESTAMP,
    "timestamptz": TIMESTAMPTZ,
    "string": VARCHAR,
    "binary": BLOB,
    "fixed": BLOB,
    "uuid": UUID,
}


def decimal(precision: int, scale: int) -> SqlType:
    return SqlType("DECIMAL", (precision, scale))


def is_decimal(kind: SqlType) -> bool:
    return kind.name == "DECIMAL"


def is_floating(kind: SqlType) -> bool:
    return kind in (FLOAT, DOUBLE)


def is_nested(kind: SqlType) -> bool:
    return bool(kind.fields)


def of_iceberg(kind: Any) -> SqlType:
    """Return the type that DuckDB gives a column, from its type in a table's metadata."""
    if isinstance(kind, str):
        if numbers := _DECIMAL.fullmatch(kind):
            return decimal(int(numbers[1]), int(numbers[2]))
        # Of other types no value is brought; the name is for the reason.
        return _OF_ICEBERG.get(kind.partition("[")[0]) or SqlType(kind.upper())
    if kind["type"] == "struct":
        fields = tuple((field["name"], of_iceberg(field["type"])) for field in kind["fields"])
        return SqlType("STRUCT", (), fields)
    if kind["type"] == "list":
        return SqlType("LIST", (), (("child", of_iceberg(kind["element"])),))
    inner = tuple((name, of_iceberg(kind[name])) for name in ("key", "value"))
    return SqlType("MAP", (), inner)


def arrow_type(kind: SqlType) -> pa.DataType | None:
    """Return the Arrow type in which Spark brings this type; None: Spark does not know it."""
    import pyarrow as pa

    if is_decimal(kind):
        return pa.decimal128(*kind.numbers)
    if is_nested(kind):
        inner = {name: arrow_type(field) for name, field in kind.fields}
        if None in inner.values():
            return None
        if kind.name == "LIST":
            return pa.list_(inner["child"])
        if kind.name == "MAP":
            return pa.map_(inner["key"], inner["value"])
        return pa.struct(list(inner.items()))
    simple = {
        BOOLEAN: pa.bool_(),
        INTEGER: pa.int32(),
        BIGINT: pa.int64(),
        FLOAT: pa.float32(),
        DOUBLE: pa.float64(),
        DATE: pa.date32(),
        TIMESTAMP: pa.timestamp("us"),
        TIMESTAMPTZ: pa.timestamp("us", "UTC"),
        VARCHAR: pa.string(),
        BLOB: pa.binary(),
        # Spark has no type for it and brings its text, as DuckDB does.
        UUID: pa.string(),
    }
    return simple.get(kind)
