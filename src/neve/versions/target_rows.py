"""The rows that a follower writes, and the statement that merges them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everywhere
from pyspark.sql import types as T  # noqa: N812 - as everywhere

from neve.lake.identifier import quote_identifier
from neve.versions.change_columns import CHANGE_TYPE, SNAPSHOT_ID, TIMESTAMP

SOURCE = "neve_follow_rows"
DELETES = "_neve_deletes"

_CHANGE_COLUMNS = (CHANGE_TYPE, SNAPSHOT_ID, TIMESTAMP)
_WIDER: dict[T.DataType, tuple[T.DataType, ...]] = {
    T.IntegerType(): (T.LongType(),),
    T.FloatType(): (T.DoubleType(),),
    T.ByteType(): (T.IntegerType(), T.LongType()),
    T.ShortType(): (T.IntegerType(), T.LongType()),
}


@dataclass(frozen=True)
class MergeColumns:
    """What a MERGE does with which column.

    Args:
        names: the columns of the table, as it spells them.
        given: those of them that the rows have.
        add: those whose values are added to what is there.
        count: of these, the one whose 0 deletes a row.
    """

    names: tuple[str, ...]
    given: tuple[str, ...]
    keys: tuple[str, ...]
    add: tuple[str, ...] = ()
    count: str | None = None


def all_as_inserts(rows: DataFrame) -> DataFrame:
    """Return the rows of a version as the changes that made it from the empty table.

    Which commits did that, nobody knows: they have expired.
    """
    return rows.select(
        "*",
        F.lit("insert").alias(CHANGE_TYPE),
        F.lit(None).cast("bigint").alias(SNAPSHOT_ID),
        F.lit(None).cast("timestamp").alias(TIMESTAMP),
    )


def data_fields(rows: DataFrame) -> list[T.StructField]:
    """Return the columns of rows without those that tell of the change."""
    return [field for field in rows.schema.fields if field.name not in _CHANGE_COLUMNS]


def marked(rows: DataFrame) -> DataFrame:
    """Mark the rows that delete, and leave out what was before an update."""
    fields = [F.col(quote_identifier((field.name,))) for field in data_fields(rows)]
    if CHANGE_TYPE not in rows.columns:
        return rows.select(*fields, F.lit(False).alias(DELETES))  # noqa: FBT003 - a value
    rows = rows.where(F.col(CHANGE_TYPE) != "update_preimage")
    return rows.select(*fields, (F.col(CHANGE_TYPE) == "delete").alias(DELETES))


def one_for_each_key(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Keep one row of each key: a key that is deleted and written is written."""
    same_key = Window.partitionBy(*map(_column, keys)).orderBy(DELETES)
    numbered = rows.withColumn("_neve_number", F.row_number().over(same_key))
    return numbered.where("_neve_number = 1").drop("_neve_number")


def count_rows(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Count the rows, and the most that are written of one key."""
    written = F.count_if(~F.col(DELETES))
    of_keys = rows.groupBy(*map(_column, keys)).agg(
        written.alias("written"), F.count(F.lit(1)).alias("rows")
    )
    return of_keys.agg(F.sum("rows").alias("rows"), F.max("written").alias("most"))


def written_rows(rows: DataFrame, table: T.StructType) -> DataFrame:
    """Return the rows to append: the columns of the table, NULL where the rows have none."""
    given = {field.name.lower(): field.name for field in data_fields(rows)}
    columns = [
        _column(given[field.name.lower()]).alias(field.name)
        if field.name.lower() in given
        else F.lit(None).cast(field.dataType).alias(field.name)
        for field in table.fields
    ]
    return rows.where(~F.col(DELETES)).select(*columns)


def merge_statement(target: str, columns: MergeColumns) -> str:
    """Write the MERGE of rows that have each key once."""
    q = _quoted
    on = " AND ".join(f"t.{q(key)} <=> s.{q(key)}" for key in columns.keys)
    sets = ", ".join(f"t.{q(name)} = {_value(name, columns)}" for name in columns.given)
    names = ", ".join(map(q, columns.names))
    values = ", ".join(
        f"s.{q(name)}" if name in columns.given else "NULL" for name in columns.names
    )
    deletes = f"s.{DELETES}"
    inserts = f"NOT s.{DELETES}"
    if columns.count is not None:
        deletes = f"{_sum(columns.count)} = 0"
        inserts = f"coalesce(s.{q(columns.count)}, 0) <> 0"
    return (
        f"MERGE INTO {target} AS t USING {SOURCE} AS s ON {on} "  # noqa: S608 - every name is quoted
        f"WHEN MATCHED AND {deletes} THEN DELETE "
        f"WHEN MATCHED THEN UPDATE SET {sets} "
        f"WHEN NOT MATCHED AND {inserts} THEN INSERT ({names}) VALUES ({values})"
    )


def is_wider(before: T.DataType, after: T.DataType) -> bool:
    """Tell whether Iceberg can turn a column's type into another one."""
    if isinstance(before, T.DecimalType) and isinstance(after, T.DecimalType):
        return before.scale == after.scale and before.precision < after.precision
    return after in _WIDER.get(before, ())


def _value(name: str, columns: MergeColumns) -> str:
    return _sum(name) if name in columns.add else f"s.{_quoted(name)}"


def _sum(name: str) -> str:
    return f"coalesce(t.{_quoted(name)}, 0) + coalesce(s.{_quoted(name)}, 0)"


def _quoted(name: str) -> str:
    return quote_identifier((name,))


def _column(name: str) -> Column:
    return F.col(_quoted(name))
