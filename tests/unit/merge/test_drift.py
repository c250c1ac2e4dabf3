"""How a changelog's columns go into a mirror's: what fits, what is added, what cannot."""

from __future__ import annotations

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
)

from neve.merge.drift import Fit, find_drift, fit_of, origin_ids
from neve.merge.mirror import mirror_schema, united_schema
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
    assert (drift.taken, drift.kept, drift.unfit) == (("id", "lsn", "name"), (), ())


def test_new_and_wider_columns_are_united_and_dropped_ones_kept():
    before = schema((4, "name", StringType()), (5, "amount", IntegerType()))
    now = schema((5, "amount", LongType()), (6, "city", StringType()))
    drift = drift_of(now, before)
    assert (drift.added, drift.widened, drift.kept) == (("city",), ("amount",), ("name",))
    united = united_schema(drift)
    assert [field.name for field in united.fields] == ["amount", "city"]
    assert not any(field.required for field in united.fields)


def test_a_rename_is_known_by_the_field_and_says_what_to_do():
    before = schema((4, "name", StringType()))
    now = schema((4, "title", StringType()))
    (unfit,) = drift_of(now, before).unfit
    assert unfit.column == "title"
    assert unfit.why == "column name of ns.changes was renamed to title"
    assert "ALTER TABLE ns.rows RENAME COLUMN name TO title" in unfit.remedy
    # Once the mirror's column has the new name, too, they fit again.
    mirror = Schema(*mirror_schema(SPEC, now).fields)
    assert find_drift(SPEC, now, mirror, {4: 4}).unfit == ()


def test_two_columns_that_swap_their_names_are_two_renames():
    before = schema((4, "a", StringType()), (5, "b", StringType()))
    now = schema((4, "b", StringType()), (5, "a", StringType()))
    assert {one.column for one in drift_of(now, before).unfit} == {"a", "b"}


def test_a_column_made_anew_with_another_type_is_incompatible():
    before = schema((4, "amount", LongType()))
    drift = drift_of(schema((5, "amount", DateType())), before)
    (unfit,) = drift.unfit
    assert unfit.why == "column amount of ns.changes is date now, and long in the mirror"
    assert "exclude_columns" in unfit.remedy
    assert drift.taken == ("id", "lsn")
    assert not drift.changes_mirror
    # With the same type, nobody can tell.
    assert drift_of(schema((5, "amount", LongType())), before).unfit == ()


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
    assert (drift.unfit, drift.added, drift.taken) == ((), (), ("id", "lsn"))
