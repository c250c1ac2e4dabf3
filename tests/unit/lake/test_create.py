"""Which tables take our rows: those with our columns, also where somebody has widened them."""

import pyarrow as pa
import pytest
from pyiceberg.types import DecimalType, DoubleType, LongType

import neve
from neve.errors import CatalogError
from neve.lake.create import TableSpec, ensure_table
from neve.signals import Signal
from tests.support.consolidation import Bench
from tests.support.lakes import sqlite_settings


@pytest.fixture
def lake(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        yield lake


INNER = pa.struct([("n", pa.int32()), ("text", pa.string())])
OURS = pa.schema(
    [
        ("n", pa.int32()),
        ("ratio", pa.float32()),
        ("price", pa.decimal128(9, 2)),
        ("nested", pa.list_(INNER)),
        ("by_name", pa.map_(pa.string(), INNER)),
    ]
)
SPEC = TableSpec(("ns", "t"), OURS)


def test_widened_columns_at_any_depth_still_hold_our_values(lake):
    table = ensure_table(lake.profile, lake.catalog(), SPEC)
    with table.update_schema() as update:
        update.update_column("n", LongType())
        update.update_column("ratio", DoubleType())
        update.update_column("price", DecimalType(18, 2))
        update.update_column("nested.element.n", LongType())
        update.update_column("by_name.value.n", LongType())
    assert ensure_table(lake.profile, lake.catalog(), SPEC).schema() == table.schema()


@pytest.mark.parametrize(
    "other",
    [
        {"n": pa.string()},
        {"ratio": pa.int64()},
        {"price": pa.decimal128(9, 3)},
        {"price": pa.decimal128(8, 2)},
        {"nested": INNER},
        {"nested": pa.list_(pa.struct([("n", pa.int32())]))},
        {"by_name": pa.map_(pa.string(), pa.string())},
    ],
)
def test_columns_that_cannot_hold_our_values_are_named(lake, other):
    (name,) = other
    fields = [pa.field(field.name, other.get(field.name, field.type)) for field in OURS]
    ensure_table(lake.profile, lake.catalog(), TableSpec(("ns", "t"), pa.schema(fields)))
    with pytest.raises(CatalogError, match=rf"ns\.t is in the way, with other columns: {name} is"):
        ensure_table(lake.profile, lake.catalog(), SPEC)


def test_rows_are_written_to_columns_that_were_widened(lake, tmp_path):
    bench = Bench(lake, tmp_path)
    bench.send(Signal.LOGS, "a")
    bench.run()
    table = lake.catalog().load_table("otel.logs")
    with table.update_schema() as update:
        update.update_column("severity_number", LongType())
    bench.send(Signal.LOGS, "b")
    assert not bench.run().failed
    rows = lake.catalog().load_table("otel.logs").scan().to_arrow()
    assert rows.schema.field("severity_number").type == pa.int64()
    assert sorted(rows["body"].to_pylist()) == ["a 0", "a 1", "b 0", "b 1"]
