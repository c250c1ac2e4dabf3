"""Events that were set aside come back as what they were, exactly once, or stay."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal

import pyarrow as pa
import pytest

from neve.merge.strategy import Strategy
from tests.support.merging import SCHEMA as PLAIN
from tests.support.merging import Mirrored, event
from tests.support.power_cut import power_cut

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("price", pa.decimal128(20, 4)),
        ("at", pa.timestamp("us", tz="UTC")),
        ("local_at", pa.timestamp("us")),
        ("day", pa.date32()),
        ("raw", pa.binary()),
        ("ratio", pa.float64()),
        ("share", pa.float32()),
        ("items", pa.list_(pa.struct([("sku", pa.string()), ("count", pa.int32())]))),
        ("attributes", pa.map_(pa.string(), pa.string())),
        ("by_number", pa.map_(pa.int32(), pa.string())),
        ("op", pa.string()),
        ("lsn", pa.int64()),
    ]
)
VALUES = {
    "name": 'a "quoted"\n\u2028 text',
    "price": Decimal("1234567890123456.7890"),
    "at": datetime(2024, 2, 29, 23, 59, 59, 123456, tzinfo=timezone.utc),
    "local_at": datetime.fromisoformat("1969-12-31T00:00:00.000001"),
    "day": date(1, 1, 1),
    "raw": b"\x00\xff\xfe",
    "ratio": float("-inf"),
    "share": 0.10000000149011612,
    "items": [{"sku": None, "count": 2}, None],
    "attributes": [("a.b", "1"), ("none", None)],
    "by_number": None,
}
# As Neve 0.1 wrote a time at first: what it lacks may have been there.
INEXACT = '{"id":7,"label":"x","at":"2024-01-01T00:00:00.123Z","op":"I","lsn":9}'


def renamed(mirrored):
    """Rename a column of the changelog; what has a value there is set aside from now on."""
    mirrored.lake.sql(f"ALTER TABLE {mirrored.changelog} RENAME COLUMN name TO label")
    mirrored.schema = pa.schema(
        [field.with_name("label") if field.name == "name" else field for field in mirrored.schema]
    )


def row(op, lsn, key, **values):
    filled = {"label" if name == "name" else name: value for name, value in VALUES.items()}
    return {"op": op, "lsn": lsn, "id": key, **filled, **values}


def rejected(mirrored):
    rows = mirrored.table("rows_rejected").scan().to_arrow().to_pylist()
    return sorted(one["event"] for one in rows)


# What a cut leaves behind at the last of them is all that it leaves at those before.
@pytest.mark.parametrize(
    "points",
    [
        ("merge.applied",),
        pytest.param(("merge.tombstones_written", "merge.rejected"), marks=pytest.mark.soak),
    ],
)
def test_events_set_aside_after_a_rename_come_back_exactly_once(embedded_lake, points):
    mirrored = Mirrored(embedded_lake, SCHEMA, strategy=Strategy.SCAN)
    mirrored.append({"op": "I", "lsn": 1, "id": 1, "name": "first"})
    mirrored.merge()
    renamed(mirrored)
    mirrored.append(
        row("U", 2, 1),
        row("I", 3, 2),
        row("I", 4, 3),
        row("D", 5, 3),
        row("I", 6, 4, by_number=[(1, "x")]),
        row("?", 7, 5),
    )
    assert mirrored.merge().set_aside == 6
    inexact = {"reason": "a rename", "event": INEXACT}
    stored = mirrored.table("rows_rejected")
    stored.append(pa.Table.from_pylist([inexact], schema=stored.schema().as_arrow()))
    # A column that is dropped meanwhile is in the events still, and in the mirror.
    mirrored.lake.sql(f"ALTER TABLE {mirrored.changelog} DROP COLUMN share")
    mirrored.schema = mirrored.schema.remove(mirrored.schema.get_field_index("share"))
    # Nothing has changed: nothing can be taken, and nothing is committed.
    assert mirrored.merger().retry_rejected().outcome == "idle"
    mirrored.lake.sql(f"ALTER TABLE {mirrored.mirror} RENAME COLUMN name TO label")
    mirrored.append(row("U", 8, 2, label="newer"))
    mirrored.merge()
    before = mirrored.past()
    preview = mirrored.merger().preview(retry_rejected=True)
    assert (preview.counts.scanned, preview.counts.upserted, preview.counts.late) == (4, 1, 1)
    assert "4 events can be taken now, 3 cannot and stay" in preview.notes[0]
    for point in points:
        with power_cut(point):
            mirrored.merger().retry_rejected()
    assert mirrored.past() == before
    with power_cut("merge.published"):
        mirrored.merger().retry_rejected()
    found = mirrored.found()
    assert found.keys() == {(1,), (2,)}
    expected = row("U", 2, 1)
    del expected["op"]
    assert found[1,] == expected
    assert (found[2,]["label"], found[2,]["share"]) == ("newer", None)
    left = rejected(mirrored)
    assert len(left) == 3
    assert INEXACT in left
    assert [text for text in left if '"by_number":{"1":"x"}' in text]
    assert [text for text in left if '"op":"?"' in text]
    # Deleted for good, though the delete was set aside, too.
    assert mirrored.table("rows_tombstones").scan().to_arrow()["id"].to_pylist() == [3]
    assert mirrored.merger().retry_rejected().outcome == "idle"
    assert rejected(mirrored) == left
    mirrored.append(row("I", 9, 6))
    assert mirrored.merge().rows_upserted == 1
    assert rejected(mirrored) == left


def test_a_retried_event_is_not_taken_for_merged_where_it_stands_in_the_changelog(embedded_lake):
    mirrored = Mirrored(embedded_lake, PLAIN, strategy=Strategy.SCAN)
    mirrored.append(event("I", 5, 1, "b"), event("I", 5, 2, "y"))
    mirrored.merge()
    mirrored.append(event("?", 5, 1, "z"), event("?", 5, 2, "x"))
    assert mirrored.merge().set_aside == 2
    mirrored.settings = mirrored.settings.model_copy(update={"operations": {"?": "update"}})
    mirrored.merger().retry_rejected()
    # At equal sequence the greater content wins, whichever came first.
    assert {key: row["name"] for key, row in mirrored.found().items()} == {(1,): "z", (2,): "y"}
