"""From rows that appear and disappear to changes: cancel what is the same, pair what was updated.

Columns are called c0, c1, … here, so that no name of a table's can be in the way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everywhere
from pyspark.sql import types as T  # noqa: N812 - as everywhere

STEP = "step"
TYPE = "type"
INSERT, DELETE = "insert", "delete"
_FLOATS = (T.FloatType, T.DoubleType)
BEFORE_UPDATE, AFTER_UPDATE = "update_preimage", "update_postimage"


def cancel(rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Remove pairs of a deleted and an inserted row of a step that have the same values.

    Rows are sorted by a hash first, which brings the same values together at the least cost; what
    counts are the values. Grouping would keep a copy of every row in hash tables, twice.
    """
    types = {one.name: one.dataType for one in rows.schema.fields}
    values = _comparables({name: types[name] for name in columns})
    # Columns of their own, as Spark would else sort again for each of the windows below.
    compared = rows.select(*rows.columns, *(column.alias(name) for name, column in values.items()))
    keys = [STEP, *(name for name in columns if _compares(types[name])), *values]
    hashed = compared.withColumn("hash", F.xxhash64(*keys)).repartition("hash")
    same = Window.partitionBy("hash", *keys).orderBy(TYPE)
    all_of_them = same.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    is_insert = F.when(F.col(TYPE) == INSERT, 1).otherwise(0)
    counted = hashed.select(
        *columns,
        TYPE,
        STEP,
        F.row_number().over(same).alias("number"),
        F.count("*").over(all_of_them).alias("rows"),
        F.sum(is_insert).over(all_of_them).alias("inserts"),
    )
    # Deletes come first. Of n deletes and m inserts only what is too many on one side stays.
    is_surplus = F.expr(
        f"CASE WHEN {TYPE} = '{DELETE}' THEN number <= rows - inserts - inserts "
        "ELSE number > 2 * (rows - inserts) END"
    )
    return counted.where(is_surplus).select(*columns, TYPE, STEP)


def pair_updates(rows: DataFrame, keys: Sequence[Column]) -> DataFrame:
    """Call a delete and an insert of one key in one step an update, if the key has no others."""
    same_key = Window.partitionBy(STEP, *keys)
    inserts = F.count_if(F.col(TYPE) == INSERT).over(same_key)
    deletes = F.count_if(F.col(TYPE) == DELETE).over(same_key)
    updated = F.when(F.col(TYPE) == INSERT, AFTER_UPDATE).otherwise(BEFORE_UPDATE)
    is_update = (inserts == 1) & (deletes == 1)
    return rows.withColumn(TYPE, F.when(is_update, updated).otherwise(F.col(TYPE)))


def _comparables(types: Mapping[str, T.DataType]) -> dict[str, Column]:
    """Return what must be compared besides the columns that can be compared."""
    others = {
        f"key_{name}": _comparable(F.col(name), kind)
        for name, kind in types.items()
        if not _compares(kind)
    }
    floats = [name for name, kind in types.items() if isinstance(kind, _FLOATS)]
    zeros = [F.when(_is_negative_zero(F.col(name)), "-").otherwise("+") for name in floats]
    return others | ({"zeros": F.concat(*zeros)} if zeros else {})


def _compares(kind: T.DataType) -> bool:
    """Tell whether Spark can compare values, and takes no others than 0.0 and -0.0 for equal."""
    return isinstance(kind, _FLOATS) or _compares_exactly(kind)


def _compares_exactly(kind: T.DataType) -> bool:
    """Tell whether Spark takes exactly the same values for equal."""
    if isinstance(kind, T.StructType):
        return all(_compares_exactly(one.dataType) for one in kind.fields)
    if isinstance(kind, T.ArrayType):
        return _compares_exactly(kind.elementType)
    return not isinstance(kind, (*_FLOATS, T.MapType, T.VariantType))


def _is_negative_zero(value: Column) -> Column:
    return (value == 0) & value.cast("string").startswith("-")


def _comparable(value: Column, kind: T.DataType) -> Column:
    """Return what is equal exactly where two values are the same."""
    if _compares_exactly(kind):
        return value
    if isinstance(kind, _FLOATS):
        return F.struct(value.alias("value"), _is_negative_zero(value).alias("is_negative_zero"))
    if isinstance(kind, T.StructType):
        fields = [_comparable(value.getField(one.name), one.dataType) for one in kind.fields]
        numbered = F.struct(*(one.alias(f"f{number}") for number, one in enumerate(fields)))
        return F.when(value.isNotNull(), numbered)
    if isinstance(kind, T.ArrayType):
        return F.transform(value, lambda one: _comparable(one, kind.elementType))
    if isinstance(kind, T.MapType):
        entries = F.transform(
            F.map_entries(value),
            lambda one: F.struct(
                _comparable(one["key"], kind.keyType).alias("key"),
                _comparable(one["value"], kind.valueType).alias("value"),
            ),
        )
        return F.array_sort(entries)
    # A variant: its text does not tell 1 from 1.0, its type does.
    return F.struct(F.to_json(value).alias("text"), F.schema_of_variant(value).alias("type"))
