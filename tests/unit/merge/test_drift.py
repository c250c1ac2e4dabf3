"""How a changelog's columns go into a mirror's: what fits, what is added, what cannot."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimeType,
)

from neve.merge.check import check_columns
from neve.merge.drift import Fit, find_drift, fit_of, origin_ids
from neve.merge.mirror import changed_schema, mirror_schema
from neve.merge.spec import MergeSpec

SPEC = MergeSpec(("ns", "changes"), ("ns", "rows"), ("id",), ("lsn",))


def struct(**fields):
    return StructType(
        *(
            NestedField(100 + number, name, kind, required=False)
            for number, (name, kind) in enumerate(fields.items())
        )
    )


def items(kind):
    return ListType(50, kind, element_required=False)


def mapped(key, value):
    return MapType(60, key, 61, value, value_required=False)


def schema(*fields):
    """Fields as (id, name, type); keys, sequence and operation are always there."""
    own = ((1, "id", LongType()), (2, "lsn", LongType()), (3, "op", StringType()))
    return Schema(*(NestedField(*one, required=False) for one in (*own, *fields)))


def drift_of(changelog, before, spec=SPEC):
    """Compare a changelog with a mirror that was made of it when it had other columns."""
    mirror = mirror_schema(spec, before)
    made = find_drift(spec, before, mirror, {})
    return find_drift(spec, changelog, mirror, origin_ids(made, before, mirror, {}))


@pytest.mark.parametrize(
    ("column", "value", "fit"),
    [
        (LongType(), LongType(), Fit.FITS),
        (IntegerType(), LongType(), Fit.WIDENS),
        (LongType(), IntegerType(), Fit.FITS),
        (FloatType(), DoubleType(), Fit.WIDENS),
        (DoubleType(), FloatType(), Fit.FITS),
        (DecimalType(9, 2), DecimalType(18, 2), Fit.WIDENS),
        (DecimalType(18, 2), DecimalType(9, 2), Fit.FITS),
        (DecimalType(9, 2), DecimalType(9, 3), Fit.INCOMPATIBLE),
        (DecimalType(9, 2), DecimalType(18, 3), Fit.INCOMPATIBLE),
        (IntegerType(), DoubleType(), Fit.INCOMPATIBLE),
        (IntegerType(), StringType(), Fit.INCOMPATIBLE),
        (StringType(), IntegerType(), Fit.INCOMPATIBLE),
        (DateType(), StringType(), Fit.INCOMPATIBLE),
        (BooleanType(), IntegerType(), Fit.INCOMPATIBLE),
        (struct(a=LongType()), LongType(), Fit.INCOMPATIBLE),
        (struct(a=IntegerType()), struct(a=LongType()), Fit.WIDENS),
        (struct(a=LongType()), struct(a=LongType(), b=StringType()), Fit.WIDENS),
        (struct(a=LongType(), b=StringType()), struct(a=LongType()), Fit.FITS),
        (struct(a=LongType()), struct(a=StringType(), b=LongType()), Fit.INCOMPATIBLE),
        (items(IntegerType()), items(LongType()), Fit.WIDENS),
        (items(struct(a=LongType())), items(struct(a=DateType())), Fit.INCOMPATIBLE),
        (mapped(StringType(), FloatType()), mapped(StringType(), DoubleType()), Fit.WIDENS),
        (mapped(IntegerType(), LongType()), mapped(LongType(), LongType()), Fit.INCOMPATIBLE),
    ],
)
def test_types_fit_widen_or_do_neither(column, value, fit):
    assert fit_of(column, value) is fit


def test_a_mirror_just_made_has_no_drift():
    now = schema((4, "name", StringType()))
    drift = drift_of(now, now)
    assert not drift.changes_mirror
    assert (drift.mirrored, drift.incompatible) == (("id", "lsn", "name"), ())


def test_new_and_wider_columns_are_united_and_dropped_ones_kept():
    before = schema((4, "name", StringType()), (5, "amount", IntegerType()))
    now = schema((5, "amount", LongType()), (6, "city", StringType()))
    drift = drift_of(now, before)
    assert (drift.added, drift.widened) == (("city",), ("amount",))
    changed = changed_schema(drift)
    assert [field.name for field in changed.fields] == ["amount", "city"]
    assert not any(field.required for field in changed.fields)


def test_a_rename_is_known_by_the_field_and_says_what_to_do():
    before = schema((4, "name", StringType()))
    now = schema((4, "title", StringType()))
    (column,) = drift_of(now, before).incompatible
    assert column.name == "title"
    assert column.reason == "column name of ns.changes was renamed to title"
    assert "ALTER TABLE ns.rows RENAME COLUMN name TO title" in column.remedy
    # Once the mirror's column has the new name, too, they fit again.
    mirror = Schema(*mirror_schema(SPEC, now).fields)
    assert find_drift(SPEC, now, mirror, {4: 4}).incompatible == ()


def test_two_columns_that_swap_their_names_are_two_renames():
    before = schema((4, "a", StringType()), (5, "b", StringType()))
    now = schema((4, "b", StringType()), (5, "a", StringType()))
    assert {each.name for each in drift_of(now, before).incompatible} == {"a", "b"}


def test_a_column_made_anew_with_another_type_is_incompatible():
    before = schema((4, "amount", LongType()))
    drift = drift_of(schema((5, "amount", DateType())), before)
    (column,) = drift.incompatible
    assert column.reason == "column amount of ns.changes is date now, and long in the mirror"
    assert "exclude_columns" in column.remedy
    assert drift.mirrored == ("id", "lsn")
    assert not drift.changes_mirror
    # With the same type, nobody can tell.
    assert drift_of(schema((5, "amount", LongType())), before).incompatible == ()


def test_a_rename_stays_known_and_a_column_that_does_not_fit_comes_from_nowhere():
    before, mirror = schema((4, "name", StringType())), schema((4, "name", StringType()))
    for now, known in (
        (schema((4, "title", StringType())), {1: 1, 2: 2, 4: 4}),
        (schema((7, "name", DateType())), {1: 1, 2: 2, 4: 4}),
    ):
        drift = drift_of(now, before)
        assert origin_ids(drift, now, mirror, {4: 4}) == known


def test_columns_that_are_left_out_never_drift():
    spec = MergeSpec(("ns", "changes"), ("ns", "rows"), ("id",), ("lsn",), exclude=frozenset({"x"}))
    drift = drift_of(schema((4, "x", DateType())), schema((4, "x", LongType())), spec)
    assert (drift.incompatible, drift.added, drift.mirrored) == ((), (), ("id", "lsn"))


def test_a_rename_that_the_configuration_tells_is_followed():
    before = schema((4, "name", StringType()), (5, "amount", IntegerType()))
    spec = replace(SPEC, rename={"name": "title", "title": "caption"})
    for field_id in (4, 9):  # renamed, or dropped and added
        now = schema((field_id, "caption", StringType()), (5, "amount", IntegerType()))
        drift = drift_of(now, before, spec)
        assert (drift.renamed, drift.incompatible, drift.added) == ((("name", "caption"),), (), ())
        assert drift.changes_mirror
    # Once it is renamed, nothing is left to be done.
    assert not drift_of(now, now, spec).changes_mirror
    # It may stay in the configuration, also when the column is dropped.
    check_columns(spec, schema((5, "amount", IntegerType())), (now, before))


def test_dropped_columns_are_read_by_their_field_with_the_widest_type():
    place = struct(x=LongType(), y=StringType())
    made = schema((4, "amount", IntegerType()), (5, "place", place))
    wide = schema((4, "amount", LongType()), (5, "place", place))
    now = schema((5, "place", struct(x=LongType())), (6, "amount", IntegerType()))
    mirror = mirror_schema(SPEC, made)
    origins = {4: 4, 5: 5, 1: 1, 2: 2}
    drift = find_drift(SPEC, now, mirror, origins, (wide, made))
    ((dropped,), read) = drift.dropped, drift.read_schema
    assert (dropped.read_as, dropped.column.name) == ("_neve_dropped_4_amount", "amount")
    assert drift.widened == ("amount",)
    assert str(read.find_type("_neve_dropped_4_amount")) == "long"
    assert read.find_field("place.y").field_id == 101
    # Nothing was dropped that the mirror has: the changelog's own schema will do.
    assert find_drift(SPEC, made, mirror, origins, (wide,)).read_schema is None


def test_a_column_that_is_left_out_is_not_read_when_spark_cannot():
    clock = schema((4, "name", StringType()), (5, "clock", TimeType()), (6, "other", StringType()))
    spec = replace(SPEC, exclude=frozenset({"clock", "other"}))
    read = drift_of(clock, clock, spec).read_schema
    assert [field.name for field in read.fields] == ["id", "lsn", "op", "name"]
