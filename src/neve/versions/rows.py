"""From rows that appear and disappear to changes: cancel what is the same, pair what was updated.

Columns are called c0, c1, … here, so that no name of a table's can be in the way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everywhere
from pyspark.sql import types as T  # noqa: N812 - as everywhere

STEP = "step"
TYPE = "type"
INSERT, DELETE = "insert", "delete"
BEFORE_UPDATE, AFTER_UPDATE = "update_preimage", "update_postimage"

_FLOATS = (T.FloatType, T.DoubleType)
_ZEROS = "zeros"
_MARKS_IN_ONE = 60
_HASH = "hash"


def cancel(
    rows: DataFrame, columns: Sequence[str], *, in_one_task: bool = False, is_net: bool = False
) -> DataFrame:
    """Remove pairs of a deleted and an inserted row of a step that have the same values.

    Args:
        is_net: of several steps, too. Each row that is left has the step since which it is there,
            or is not.
        in_one_task: the rows are in one partition. Otherwise those that may be the same are brought
            together first: to count in each task before that would find none, and takes as long.
    """
    types = {one.name: one.dataType for one in rows.schema.fields}
    values = _comparables({name: types[name] for name in columns})
    same = [*(name for name in columns if _compares(types[name])), *values]
    others = [name for name in columns if name not in same]
    signed = rows.select(
        STEP,
        *columns,
        *(column.alias(name) for name, column in values.items()),
        F.when(F.col(TYPE) == INSERT, 1).otherwise(-1).alias("sign"),
    )
    if not in_one_task:
        together = same if is_net else [STEP, *same]
        signed = signed.withColumn(_HASH, F.xxhash64(*together)).repartition(_HASH)
        same = [_HASH, *same]
    counted = (
        signed.groupBy(STEP, *same)
        .agg(F.sum("sign").alias("surplus"), *(F.first(name).alias(name) for name in others))
        .where("surplus != 0")
    )
    if is_net:
        counted = _lasting(counted, same)
    kind = F.when(F.col("surplus") > 0, INSERT).otherwise(DELETE)
    copies = F.explode(F.expr("array_repeat(0, CAST(abs(surplus) AS INT))"))
    return counted.select(
        *_with_negative_zeros(columns, types), kind.alias(TYPE), STEP, copies.alias("copy")
    ).drop("copy")


def _lasting(counted: DataFrame, same: Sequence[str]) -> DataFrame:
    """Keep what no later step undid.

    Seen from the last step back, rows last as far as the sum of `surplus` has not been as high
    before: up to what it comes to in all.
    """
    of_values = Window.partitionBy(*same)
    back = of_values.orderBy(F.desc(STEP))
    total = F.sum("surplus").over(of_values)
    here = F.sum("surplus").over(back.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    before = F.max("reached").over(back.rowsBetween(Window.unboundedPreceding, -1))
    return (
        counted.withColumn("sign", F.signum(total).cast("bigint"))
        .withColumn("reached", F.least(F.col("sign") * here, F.abs(total)))
        .withColumn("more", F.col("reached") - F.greatest(F.coalesce(before, F.lit(0)), F.lit(0)))
        .where("more > 0")
        .withColumn("surplus", F.col("sign") * F.col("more"))
    )


def _with_negative_zeros(columns: Sequence[str], types: Mapping[str, T.DataType]) -> list[Column]:
    """Return columns with the zeros that grouping has made positive as they were."""
    floats = [name for name in columns if isinstance(types[name], _FLOATS)]
    return [
        F.when(F.expr(_is_marked(floats.index(name))), -F.col(name))
        .otherwise(F.col(name))
        .alias(name)
        if name in floats
        else F.col(name)
        for name in columns
    ]


def _is_marked(place: int) -> str:
    group, bit = divmod(place, _MARKS_IN_ONE)
    return f"{_ZEROS}{group} & {1 << bit}L != 0"


def pair_updates(rows: DataFrame, keys: Sequence[Column], *, is_net: bool = False) -> DataFrame:
    """Call a delete and an insert of one key in one step an update, if the key has no others.

    Args:
        is_net: also of two steps; both rows then have the later one.
    """
    same_key = Window.partitionBy(*keys) if is_net else Window.partitionBy(STEP, *keys)
    inserts = F.count_if(F.col(TYPE) == INSERT).over(same_key)
    deletes = F.count_if(F.col(TYPE) == DELETE).over(same_key)
    updated = F.when(F.col(TYPE) == INSERT, AFTER_UPDATE).otherwise(BEFORE_UPDATE)
    is_update = (inserts == 1) & (deletes == 1)
    step = F.when(is_update, F.max(STEP).over(same_key)).otherwise(F.col(STEP))
    return rows.withColumns(
        {
            TYPE: F.when(is_update, updated).otherwise(F.col(TYPE)),
            STEP: step if is_net else F.col(STEP),
        }
    )


def _comparables(types: Mapping[str, T.DataType]) -> dict[str, Column]:
    """Return what must be compared besides the columns that can be compared."""
    others = {
        f"key_{name}": _comparable(F.col(name), kind)
        for name, kind in types.items()
        if not _compares(kind)
    }
    floats = [name for name, kind in types.items() if isinstance(kind, _FLOATS)]
    marks = [
        F.when(_is_negative_zero(F.col(name)), F.lit(1 << place % _MARKS_IN_ONE).cast("bigint"))
        for place, name in enumerate(floats)
    ]
    zeros = {
        f"{_ZEROS}{number}": reduce(
            Column.bitwiseOR, (F.coalesce(each, F.lit(0).cast("bigint")) for each in group)
        )
        for number, group in enumerate(_in_groups(marks))
    }
    return others | zeros


def _in_groups(marks: Sequence[Column]) -> list[Sequence[Column]]:
    return [marks[at : at + _MARKS_IN_ONE] for at in range(0, len(marks), _MARKS_IN_ONE)]


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
