"""A changelog whose columns change while its mirror lives."""

from __future__ import annotations

from datetime import time
from decimal import Decimal

import pyarrow as pa
import pytest
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    StringType,
)

from neve.errors import CatalogError, ConfigError
from neve.merge import merger as merger_module
from neve.merge.strategy import Strategy
from tests.support.merging import SCHEMA, Mirrored, event, evolving

FAR = 2**40


def rejected(mirrored):
    return mirrored.table("rows_rejected").scan().to_arrow()["reason"].to_pylist()


def test_columns_come_widen_and_go_also_of_keys_and_sequence(embedded_lake):
    schema = pa.schema(
        [
            ("id", pa.int32()),
            ("part", pa.decimal128(5, 2)),
            ("name", pa.string()),
            ("ratio", pa.float32()),
            ("place", pa.struct([("x", pa.int32())])),
            ("op", pa.string()),
            ("lsn", pa.int32()),
        ]
    )
    mirrored = Mirrored(embedded_lake, schema, primary_keys=("id", "part"))

    def change(op, lsn, key, part="1.50", **values):
        return {"op": op, "lsn": lsn, "id": key, "part": Decimal(part), **values}

    mirrored.append(
        change("I", 5, 1, name="a", ratio=0.5, place={"x": 1}),
        change("I", 5, 2, name="b"),
        change("D", 6, 3),
        {"op": "T", "lsn": 4},
    )
    mirrored.merge()
    with evolving(mirrored) as update:
        update.update_column("id", LongType())
        update.update_column("lsn", LongType())
        update.update_column("part", DecimalType(9, 2))
        update.update_column("ratio", DoubleType())
        update.add_column("city", StringType())
        update.add_column(("place", "y"), StringType())
        update.delete_column("name")
    mirrored.append(
        change("U", FAR, 1, ratio=0.1, place={"x": 2, "y": "why"}, city="Rome"),
        change("I", 5, FAR, "9999999.25", city="Oslo"),
        # The same sequence as what is merged, with something in a column that was not there.
        change("I", 5, 2, city="Bern"),
        # Behind a tombstone and a TRUNCATE from before.
        change("I", 5, 3, city="late"),
        change("I", 3, 4, city="late"),
        change("D", FAR, 5),
    )
    report = mirrored.merge()
    assert report.notes == [
        f"{mirrored.mirror}: columns added: city",
        f"{mirrored.mirror}: columns widened: id, part, ratio, place, lsn",
        f"{mirrored.mirror}: 1 keys have different events of the same sequence",
    ]
    rows = {key: {**row, "lsn": row["lsn"]} for key, row in mirrored.found().items()}
    nothing = {"name": None, "ratio": None, "place": None, "city": None}
    part = Decimal("1.50")
    assert rows == {
        (1, part): {
            "id": 1,
            "part": part,
            "name": None,
            "ratio": 0.1,
            "place": {"x": 2, "y": "why"},
            "lsn": FAR,
            "city": "Rome",
        },
        # The columns are compared from left to right, and the first merged has a name.
        (2, part): {**nothing, "id": 2, "part": part, "lsn": 5, "name": "b"},
        (FAR, Decimal("9999999.25")): {
            **nothing,
            "id": FAR,
            "part": Decimal("9999999.25"),
            "lsn": 5,
            "city": "Oslo",
        },
    }
    tombstones = mirrored.table("rows_tombstones")
    assert str(tombstones.schema().find_type("id")) == "long"
    assert str(tombstones.schema().find_type("part")) == "decimal(9, 2)"
    # Wide tombstones hold, too.
    mirrored.append(change("I", FAR - 1, 5, city="late"), change("I", 7, 3, city="new"))
    assert mirrored.merge().late_dropped == 1
    assert {key[0] for key in mirrored.found()} == {1, 2, 3, FAR}


def test_a_renamed_column_sets_its_rows_aside_until_the_mirror_s_is_renamed(embedded_lake):
    mirrored = Mirrored(embedded_lake)
    mirrored.append(event("I", 1, 1, "a"))
    mirrored.merge()
    with evolving(mirrored) as update:
        update.rename_column("name", "title")

    def titled(op, lsn, key, title, amount=0):
        return {"op": op, "lsn": lsn, "id": key, "title": title, "amount": amount}

    reason = f"column name of {mirrored.changelog} was renamed to title"
    # Not only in the batch in which it is seen for the first time.
    for number in (1, 2):
        mirrored.append(titled("I", 2, 10 + number, "aside"), titled("I", 2, 20 + number, None))
        report = mirrored.merge()
        assert report.set_aside == 1
        assert "ALTER TABLE" in report.notes[0]
        assert rejected(mirrored) == [reason] * number
        assert "title" not in mirrored.table().schema().column_names
    # A delete says nothing of the column; an event of a sequence that is merged changes nothing.
    mirrored.append(titled("D", 3, 21, None), titled("I", 1, 1, None))
    mirrored.merge()
    assert mirrored.found().keys() == {(1,), (22,)}
    assert mirrored.found()[(1,)]["name"] == "a"
    mirrored.lake.sql(f"ALTER TABLE {mirrored.mirror} RENAME COLUMN name TO title")
    mirrored.append(titled("U", 4, 1, "new", 4))
    report = mirrored.merge()
    assert (report.set_aside, report.notes) == (0, [])
    assert mirrored.found()[(1,)] == {"id": 1, "title": "new", "amount": 4, "lsn": 4}
    # What was set aside is in the changelog still.
    mirrored.merger().rebuild()
    assert {key: row["title"] for key, row in mirrored.found().items()} == {
        (1,): "new",
        (11,): "aside",
        (12,): "aside",
        (22,): None,
    }


def test_a_column_of_another_type_sets_its_rows_aside_until_the_mirror_s_is_out_of_the_way(
    embedded_lake,
):
    from datetime import date

    mirrored = Mirrored(embedded_lake)
    mirrored.append(event("I", 1, 1, "a", 7), event("I", 1, 2, "b", 8))
    mirrored.merge()
    with evolving(mirrored) as update:
        update.delete_column("amount")
    with evolving(mirrored) as update:
        update.add_column("amount", DateType())
    day = date(2026, 1, 2)
    for _ in range(2):
        mirrored.append(
            {"op": "U", "lsn": 2, "id": 1, "name": "aside", "amount": day},
            {"op": "U", "lsn": 2, "id": 2, "name": "taken"},
            {"op": "I", "lsn": 1, "id": 1, "name": "aa"},
        )
        report = mirrored.merge()
        assert report.set_aside == 1
        assert "is date now, and long in the mirror" in report.notes[0]
    assert (
        rejected(mirrored)
        == [f"column amount of {mirrored.changelog} is date now, and long in the mirror"] * 2
    )
    assert mirrored.found() == {
        (1,): {"id": 1, "name": "aa", "amount": None, "lsn": 1},
        (2,): {"id": 2, "name": "taken", "amount": None, "lsn": 2},
    }
    mirrored.lake.sql(f"ALTER TABLE {mirrored.mirror} RENAME COLUMN amount TO amount_before")
    mirrored.append({"op": "U", "lsn": 3, "id": 1, "name": "c", "amount": day})
    report = mirrored.merge()
    assert report.set_aside == 0
    assert mirrored.found()[(1,)] == {
        "id": 1,
        "name": "c",
        "amount_before": None,
        "lsn": 3,
        "amount": day,
    }


@pytest.mark.parametrize("by_field", [pytest.param(True, marks=pytest.mark.soak), False])
def test_the_mirror_follows_a_rename_that_the_configuration_tells(embedded_lake, by_field):
    mirrored = Mirrored(embedded_lake, strategy=Strategy.SCAN, unchanged_marker="?")
    mirrored.append(event("I", 1, 1, "a"), event("I", 1, 2, "b"))
    mirrored.merge()
    mirrored.append(event("U", 2, 2, "before"))
    with evolving(mirrored) as update:
        if by_field:
            update.rename_column("name", "title")
        else:
            update.delete_column("name")
            update.add_column("title", StringType())
        update.add_column("city", StringType())
    mirrored.settings = mirrored.settings.model_copy(update={"rename": {"name": "title"}})
    mirrored.append({"op": "U", "lsn": 3, "id": 1, "title": "?", "amount": 3, "city": "Rome"})
    assert f"{mirrored.mirror}: column name renamed to title" in mirrored.merger().preview().notes
    report = mirrored.merge()
    assert report.set_aside == 0
    # Once more, with the snapshot's and the table's names the same again.
    mirrored.append({"op": "U", "lsn": 4, "id": 2, "title": "?", "amount": 4, "city": "?"})
    assert mirrored.merge().notes == []
    rows = {
        (1,): {"id": 1, "title": "a", "amount": 3, "lsn": 3, "city": "Rome"},
        (2,): {"id": 2, "title": "before", "amount": 4, "lsn": 4, "city": None},
    }
    assert mirrored.found() == rows
    mirrored.merger().rebuild()
    assert mirrored.found() == rows


def test_a_column_that_spark_cannot_read_is_left_out(embedded_lake):
    schema = pa.schema([*SCHEMA, ("clock", pa.time64("us")), ("NAME", pa.string())])
    mirrored = Mirrored(embedded_lake, schema, exclude_columns=("clock", "NAME"))
    # A snapshot without files, too.
    mirrored.append()
    mirrored.merge()
    for lsn in (1, 2):
        mirrored.append(
            {**event("I", lsn, lsn, "a"), "clock": time(12, 30), "NAME": "other"},
            event("?", lsn, 3),
            # Not what was merged at this sequence, so that what was merged is read.
            event("I", 1, 1, "b"),
        )
        assert mirrored.merge().set_aside == 1
    rows = {(key,): {"id": key, "name": "ab"[key == 1], "amount": 0, "lsn": key} for key in (1, 2)}
    assert mirrored.found() == rows
    assert mirrored.merger().preview(rebuild=True).counts.upserted == 2
    mirrored.merger().rebuild()
    assert mirrored.found() == rows


def test_a_new_column_that_is_the_same_to_spark_is_refused_before_anything_is_written(
    embedded_lake,
):
    mirrored = Mirrored(embedded_lake)
    mirrored.append(event("I", 1, 1, "a"))
    mirrored.merge()
    with evolving(mirrored) as update:
        update.delete_column("name")
    with evolving(mirrored) as update:
        update.add_column("NAME", StringType())
    mirrored.append({"op": "U", "lsn": 2, "id": 1, "amount": 0, "NAME": "b"})
    before = mirrored.table().metadata
    with pytest.raises(ConfigError, match=r"has a column name, and .* has NAME") as caught:
        mirrored.merge()
    assert mirrored.table().metadata == before
    assert "rename: {name: NAME}" in caught.value.hint
    mirrored.settings = mirrored.settings.model_copy(update={"rename": {"name": "NAME"}})
    mirrored.append({"op": "I", "lsn": 2, "id": 2, "amount": 0, "NAME": "c"})
    mirrored.merge()
    assert {key: row["NAME"] for (key,), row in mirrored.found().items()} == {1: "b", 2: "c"}


def test_strict_stops_before_anything_is_written_and_says_what_to_do(embedded_lake):
    mirrored = Mirrored(embedded_lake, schema_policy="strict")
    mirrored.append(event("I", 1, 1, "a"), event("D", 1, 2), event("?", 1, 3))
    mirrored.merge()
    with evolving(mirrored) as update:
        update.add_column("city", StringType())
        update.rename_column("name", "title")
    mirrored.append({"op": "I", "lsn": 2, "id": 4, "title": "x", "city": "Rome"})
    tables = ("rows", "rows_tombstones", "rows_rejected")
    before = [mirrored.table(name).metadata for name in tables]
    for attempt in (mirrored.merge, mirrored.merger().preview, mirrored.merger().rebuild):
        with pytest.raises(CatalogError, match=r"column name of .* was renamed to title") as caught:
            attempt()
        assert f"ALTER TABLE {mirrored.mirror} RENAME COLUMN name TO title" in caught.value.hint
    assert [mirrored.table(name).metadata for name in tables] == before
    mirrored.lake.sql(f"ALTER TABLE {mirrored.mirror} RENAME COLUMN name TO title")
    mirrored.merge()
    assert mirrored.found()[(4,)] == {
        "id": 4,
        "title": "x",
        "amount": None,
        "lsn": 2,
        "city": "Rome",
    }
    # Another type stops it as well.
    with evolving(mirrored) as update:
        update.delete_column("amount")
    with evolving(mirrored) as update:
        update.add_column("amount", StringType())
    with pytest.raises(CatalogError, match=r"amount of .* is string now, and long in the mirror"):
        mirrored.merge()


def test_keys_and_sequence_cannot_be_set_aside(embedded_lake):
    mirrored = Mirrored(embedded_lake)
    mirrored.append(event("I", 1, 1, "a"))
    mirrored.merge()
    before = mirrored.table().metadata
    with evolving(mirrored) as update:
        update.delete_column("id")
    with evolving(mirrored) as update:
        update.add_column("id", StringType())
    with pytest.raises(ConfigError, match=r"id of .* is string now.*merging needs it"):
        mirrored.merge()
    with evolving(mirrored) as update:
        update.rename_column("id", "number")
    with pytest.raises(ConfigError, match="primary_keys names id"):
        mirrored.merge()
    assert mirrored.table().metadata == before


def test_columns_that_change_between_the_look_and_the_read(embedded_lake, monkeypatch):
    """A column renamed just then would be taken for one without values."""
    mirrored = Mirrored(embedded_lake)
    mirrored.append(event("I", 1, 1, "a"))
    mirrored.merge()
    mirrored.append(event("U", 2, 1, "b"), event("I", 2, 2, "c"))
    chosen = merger_module.next_batch

    def renaming(*given):
        monkeypatch.setattr(merger_module, "next_batch", chosen)
        with evolving(mirrored) as update:
            update.rename_column("name", "title")
        return chosen(*given)

    monkeypatch.setattr(merger_module, "next_batch", renaming)
    assert mirrored.merge().conflicts == 1
    # The second look has seen it: such rows are set aside, as of any renamed column.
    assert len(rejected(mirrored)) == 2
    assert {row["name"] for row in mirrored.found().values()} == {"a"}


def test_a_tie_is_decided_by_the_value_of_a_column_that_was_renamed_since(embedded_lake):
    mirrored = Mirrored(embedded_lake, strategy=Strategy.SCAN)
    mirrored.append(event("I", 1, 1, "z"), event("I", 1, 2, "a"))
    mirrored.merge()
    with evolving(mirrored) as update:
        update.rename_column("name", "title")
    mirrored.settings = mirrored.settings.model_copy(update={"rename": {"name": "title"}})

    def titled(lsn, key, title):
        return {"op": "U", "lsn": lsn, "id": key, "title": title, "amount": 0}

    mirrored.append(titled(1, 1, "b"), titled(1, 2, "b"))
    report = mirrored.merge()
    assert (report.rows_upserted, report.ties) == (1, 2)
    assert {key[0]: row["title"] for key, row in mirrored.found().items()} == {1: "z", 2: "b"}
