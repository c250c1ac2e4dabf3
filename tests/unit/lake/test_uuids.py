"""Text as Spark has it becomes the bytes that files hold, however deep it lies."""

from __future__ import annotations

from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, MapType, NestedField, StructType, UUIDType

from neve.lake.table_columns import with_table_columns
from neve.lake.uuids import with_uuids

A, B = UUID("00000000-0000-0000-0000-00000000000a"), UUID("f81d4fae-7dec-11d0-a765-00a0c91e6bf6")
TABLE = schema_to_pyarrow(
    Schema(
        NestedField(1, "one", UUIDType()),
        NestedField(2, "many", ListType(3, UUIDType(), element_required=False)),
        NestedField(
            4,
            "inner",
            StructType(NestedField(5, "one", UUIDType()), NestedField(6, "n", LongType())),
        ),
        NestedField(7, "pairs", MapType(8, UUIDType(), 9, UUIDType(), value_required=False)),
        NestedField(10, "missing", UUIDType()),
    )
)
SENT = pa.schema(
    [
        ("one", pa.string()),
        ("many", pa.list_(pa.string())),
        ("inner", pa.struct([("one", pa.string()), ("n", pa.int32())])),
        ("pairs", pa.map_(pa.string(), pa.string())),
    ]
)
ROWS = [
    {"one": A, "many": [A, None, B], "inner": {"one": B, "n": 1}, "pairs": [(A, B), (B, None)]},
    {"one": None, "many": None, "inner": None, "pairs": None},
    {"one": B, "many": [], "inner": {"one": None, "n": 2}, "pairs": []},
]


def sent(value):
    """Return a value as Spark hands it over."""
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, dict):
        return {key: sent(one) for key, one in value.items()}
    return type(value)(sent(one) for one in value) if isinstance(value, list | tuple) else value


@pytest.mark.parametrize(("start", "count"), [(0, 6), (1, 4), (3, 0)])
def test_text_becomes_bytes_wherever_the_table_has_uuids(start, count):
    rows = pa.Table.from_pylist([sent(row) for row in ROWS * 2], SENT).slice(start, count)
    found = with_table_columns(rows, TABLE)
    assert found.schema == TABLE
    wanted = [{**row, "missing": None} for row in (ROWS * 2)[start : start + count]]
    assert found.to_pylist() == wanted


def test_bytes_stay_bytes():
    table = pa.schema([("one", pa.uuid())])
    rows = pa.table({"one": pa.array([A.bytes, None], pa.binary(16))})
    assert with_table_columns(rows, table)["one"].to_pylist() == [A, None]


@pytest.mark.parametrize("text", ["", "x", str(A)[:-1], "g" * 32])
def test_what_is_no_uuid_is_not_taken_for_one(text):
    with pytest.raises(ValueError, match=r"cast|hexadecimal"):
        with_uuids(pa.array([text]), pa.uuid())
