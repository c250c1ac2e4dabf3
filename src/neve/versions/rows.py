"""From rows that appear and disappear to changes: cancel what is the same, pair what was updated.

Columns are called c0, c1, … here, so that no name of a table's can be in the way.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everywhere
from pyspark.sql import types as T  # noqa: N812 - as everywhere

STEP = "step"
TYPE = "type"
INSERT, DELETE = "insert", "delete"
BEFORE_UPDATE, AFTER_UPDATE = "update_preimage", "update_postimage"


def cancel(rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Remove pairs of a deleted and an inserted row of a step that have the same values."""
    types = {one.name: one.dataType for one in rows.schema.fields}
    keys = {name: _comparable(F.col(name), types[name]) for name in columns}
    # What groups as it is needs no second copy.
    plain = [name for name in columns if _groups_as_it_is(types[name])]
    others = [name for name in columns if name not in plain]
    grouped = rows.groupBy(STEP, *plain, *(keys[name].alias(f"key_{name}") for name in others)).agg(
        F.sum(F.when(F.col(TYPE) == INSERT, 1).otherwise(-1)).alias("surplus"),
        *(F.first(name).alias(name) for name in others),
    )
    changed = grouped.where("surplus != 0")
    copies = F.explode(F.expr("array_repeat(0, CAST(abs(surplus) AS INT))"))
    kind = F.when(F.col("surplus") > 0, INSERT).otherwise(DELETE)
    return changed.select(*columns, kind.alias(TYPE), STEP, copies.alias("copy")).drop("copy")


def pair_updates(rows: DataFrame, keys: Sequence[Column]) -> DataFrame:
    """Call a delete and an insert of one key in one step an update, if the key has no others."""
    same_key = Window.partitionBy(STEP, *keys)
    inserts = F.count_if(F.col(TYPE) == INSERT).over(same_key)
    deletes = F.count_if(F.col(TYPE) == DELETE).over(same_key)
    updated = F.when(F.col(TYPE) == INSERT, AFTER_UPDATE).otherwise(BEFORE_UPDATE)
    is_update = (inserts == 1) & (deletes == 1)
    return rows.withColumn(TYPE, F.when(is_update, updated).otherwise(F.col(TYPE)))


def _groups_as_it_is(kind: T.DataType) -> bool:
    """Tell whether Spark's grouping takes exactly the same values together."""
    if isinstance(kind, T.StructType):
        return all(_groups_as_it_is(one.dataType) for one in kind.fields)
    if isinstance(kind, T.ArrayType):
        return _groups_as_it_is(kind.elementType)
    return not isinstance(kind, (T.FloatType, T.DoubleType, T.MapType, T.VariantType))


def _comparable(value: Column, kind: T.DataType) -> Column:
    """Return what is equal exactly where two values are the same.

    Grouping takes 0.0 and -0.0 together, orders no maps, and knows no variants.
    """
    if _groups_as_it_is(kind):
        return value
    if isinstance(kind, (T.FloatType, T.DoubleType)):
        is_negative_zero = (value == 0) & value.cast("string").startswith("-")
        return F.struct(value.alias("value"), is_negative_zero.alias("is_negative_zero"))
    if isinstance(kind, T.StructType):
        fields = [_comparable(value.getField(one.name), one.dataType) for one in kind.fields]
        return F.when(
            value.isNotNull(),
            F.struct(*(one.alias(f"f{number}") for number, one in enumerate(fields))),
        )
    if isinstance(kind, T.ArrayType):
        return F.transform(value, lambda one: _comparable(one, kind.elementType))
    if isinstance(kind, T.MapType):
        return F.array_sort(
            F.transform(
                F.map_entries(value),
                lambda one: F.struct(
                    _comparable(one["key"], kind.keyType).alias("key"),
                    _comparable(one["value"], kind.valueType).alias("value"),
                ),
            )
        )
    # A variant: its text does not tell 1 from 1.0, its type does.
    return F.struct(F.to_json(value).alias("text"), F.schema_of_variant(value).alias("type"))
