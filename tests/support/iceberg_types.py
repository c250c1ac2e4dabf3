"""Every type of Iceberg with a few values in rising order, for tests over all of them."""

from __future__ import annotations

import uuid
from datetime import date, datetime, timezone
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.types import IcebergType, LongType, NestedField, StringType

from neve.config.merging import MergeTableSettings
from neve.errors import ConfigError
from neve.merge.check import check_columns
from neve.merge.mirror import mirror_schema, partition_spec
from neve.merge.spec import merge_spec

_DAYS = [datetime(year, 2, 3, 4, 5, 6, 7) for year in (1969, 2024, 2025)]  # noqa: DTZ001 - without a zone

# Arrow's type and values in rising order, by the type's name in Iceberg.
TYPES = MappingProxyType(
    {
        "boolean": (pa.bool_(), [False, True, True]),
        "int": (pa.int32(), [-5, 7, 2**31 - 1]),
        "long": (pa.int64(), [-5, 7, 2**60]),
        "float": (pa.float32(), [-1.5, 0.5, 2.5]),
        "double": (pa.float64(), [-1.5, 0.5, 2.5]),
        "decimal(9, 2)": (
            pa.decimal128(9, 2),
            [Decimal("-1.50"), Decimal("0.25"), Decimal("9.99")],
        ),
        "decimal(38, 10)": (
            pa.decimal128(38, 10),
            [Decimal(text).quantize(Decimal("1.0000000000")) for text in ("-1", "2", "3e15")],
        ),
        "date": (pa.date32(), [date(1969, 2, 3), date(2024, 2, 3), date(2025, 2, 3)]),
        "timestamp": (pa.timestamp("us"), _DAYS),
        "timestamptz": (
            pa.timestamp("us", tz="UTC"),
            [day.replace(tzinfo=timezone.utc) for day in _DAYS],
        ),
        "string": (pa.string(), ["", "a/b=c é", "z"]),
        "uuid": (pa.uuid(), [uuid.UUID(int=number) for number in (1, 2, 2**127)]),
        "fixed[3]": (pa.binary(3), [b"\x00\x00\x01", b"abc", b"\xff\xff\xff"]),
        "binary": (pa.binary(), [b"", b"abc", b"\xff\xfe"]),
        "list<string>": (pa.list_(pa.string()), [[], ["a", None], ["b"]]),
        "map<string, long>": (pa.map_(pa.string(), pa.int64()), [[], [("a", 1)], [("b", None)]]),
        "struct<x: long>": (pa.struct([("x", pa.int64())]), [{"x": None}, {"x": 1}, {"x": 2}]),
    }
)

# Partitions of a column `v`.
TRANSFORMS = (
    *("v", "bucket(4, v)", "truncate(2, v)"),
    *("year(v)", "month(v)", "day(v)", "hour(v)"),
)


def iceberg_type(name: str) -> IcebergType:
    schema = pa.schema([pa.field("v", TYPES[name][0])])
    return assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(schema)).find_type("v")


def allows(kind: IcebergType, **settings: Any) -> bool:
    """Tell whether `neve config check` allows a mirror with a column `v` of a type."""
    table = {
        "namespace": "ns",
        "changelog_table": "changes",
        "mirror_table": "rows",
        "primary_keys": "id",
        "sequence_column": "lsn",
        **settings,
    }
    spec = merge_spec(MergeTableSettings.model_validate(table), 1)
    fields = {"id": LongType(), "v": kind, "op": StringType(), "lsn": LongType()}
    schema = Schema(
        *(
            NestedField(number, name, field, required=False)
            for number, (name, field) in enumerate(fields.items(), 1)
        )
    )
    try:
        check_columns(spec, schema)
        partition_spec(spec, mirror_schema(spec, schema))
    except ConfigError:
        return False
    return True
