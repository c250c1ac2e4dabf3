"""What a plan of changes reads, as a query that Spark runs."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everywhere

from neve.lake.chosen_files import ChosenFile, ChosenRows, TableReader
from neve.lake.identifier import quote_identifier
from neve.lake.manifests import Manifest
from neve.versions.change_columns import CHANGE_TYPE, SNAPSHOT_ID, TIMESTAMP, Key
from neve.versions.plan import ChangePlan, Comparison, DeletedRows, files_of, layers
from neve.versions.resolve import VersionRange
from neve.versions.rows import DELETE, INSERT, STEP, TYPE, cancel, pair_updates

if TYPE_CHECKING:
    from pyspark.sql.types import StructField, StructType

    from neve.lake import Lake

logger = logging.getLogger(__name__)

# So few positions, and files that have them, are written into the query.
_MOST_LISTED = 2_000
# So many positions are sent to every task; more are sorted and merged.
_MOST_BROADCAST = 2_000_000
_ONE_TASK_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True)
class _Place:
    """Rows of one file that one step deleted."""

    path: str
    step: int
    positions: BitMap64


class SparkRows:
    """Turns a plan into a query over the files that it names."""

    def __init__(self, lake: Lake, table: TableReader, versions: VersionRange) -> None:
        self._lake = lake
        self._table = table
        self._versions = versions
        fields = table.metadata.schema(versions.schema_id)["fields"]
        self._own_names = [str(field["name"]) for field in fields]
        self._names = [f"c{number}" for number in range(len(fields))]
        self._schema: StructType | None = None

    def frame(self, plan: ChangePlan, keys: Sequence[Key]) -> DataFrame:
        """Return the changes; nothing is read yet."""
        is_net = plan.has_steps_to_undo
        both = plan.steps_that_do_both
        if is_net:
            both = plan.steps_that_add | plan.steps_that_delete
        simple = [
            *self._added(one for one in plan.added if one.group not in both),
            *self._removed(one for one in plan.removed if one.group not in both),
            *self._deleted(_of_steps(plan.deleted, both, inside=False)),
        ]
        mixed = [
            *self._added(one for one in plan.added if one.group in both),
            *self._removed(one for one in plan.removed if one.group in both),
            *self._deleted(_of_steps(plan.deleted, both, inside=True)),
            *(part for one in plan.comparisons for part in self._compared(one)),
        ]
        if mixed:
            rows = _union(mixed)
            # One task does it sooner than several that exchange rows.
            is_small = sum(file.bytes for file in files_of(plan)) <= _ONE_TASK_BYTES
            rows = rows.coalesce(1) if is_small else rows
            rows = cancel(rows, self._names, in_one_task=is_small, is_net=is_net)
            columns = [_column(self._names[key.place], key.inner) for key in keys]
            simple.append(pair_updates(rows, columns, is_net=is_net) if columns else rows)
        return self._named(_union(simple or [self._with_step(self._scan([]), INSERT)]))

    def _named(self, rows: DataFrame) -> DataFrame:
        commits = self._versions.steps
        number = f"{STEP} + 1"
        snapshot_id = _lookup([one.snapshot_id if one else None for one in commits], number)
        committed_ms = _lookup([one.committed_ms if one else None for one in commits], number)
        for column, field in zip(self._names, self._fields, strict=True):
            if field.metadata:
                # Such as a comment, which not every step above keeps.
                rows = rows.withMetadata(column, field.metadata)
        names = zip(self._names, self._own_names, strict=True)
        return rows.selectExpr(
            *(f"{column} AS {quote_identifier((name,))}" for column, name in names),
            f"{TYPE} AS {CHANGE_TYPE}",
            f"{snapshot_id} AS {SNAPSHOT_ID}",
            f"timestamp_millis({committed_ms}) AS {TIMESTAMP}",
        )

    def _added(self, files: Iterable[ChosenFile]) -> list[DataFrame]:
        return [
            self._with_step(self._scan(layer), INSERT)
            for layer in layers(files, lambda one: one.entry.path)
        ]

    def _removed(self, files: Iterable[ChosenFile]) -> list[DataFrame]:
        return [
            self._with_step(self._scan(layer), DELETE)
            for layer in layers(files, lambda one: one.entry.path)
        ]

    def _deleted(self, rows: Iterable[DeletedRows]) -> list[DataFrame]:
        return [
            self._at_positions(layer) for layer in layers(rows, lambda one: one.file.entry.path)
        ]

    def _at_positions(self, rows: Sequence[DeletedRows]) -> DataFrame:
        """Return rows by their positions: those in `rows`, unless they were deleted before."""
        places = [
            _Place(one.file.entry.path, number, positions)
            for one in rows
            for number, positions in one.positions.items()
        ]
        scan = self._scan([one.file for one in rows]).frame
        if (
            len(places) <= _MOST_LISTED
            and sum(len(one.positions) for one in places) <= _MOST_LISTED
        ):
            return self._at_listed_positions(scan, places)
        return self._at_joined_positions(scan, places)

    def _at_listed_positions(self, scan: DataFrame, places: Sequence[_Place]) -> DataFrame:
        """Find few rows by a condition, which needs no job of its own."""
        file, position = F.col("file"), F.col("position")
        step = reduce(
            lambda cases, one: cases.when(
                (file == one.path) & F.expr(f"position IN ({', '.join(map(str, one.positions))})"),
                one.step,
            ),
            places,
            F.when(position.isNull(), None),
        )
        # Not the metadata columns themselves: Iceberg would look for them among the table's.
        rows = scan.selectExpr(*self._columns(), "concat(_file) AS file", "_pos + 0 AS position")
        rows = rows.withColumn(STEP, step).where(F.col(STEP).isNotNull())
        return rows.selectExpr(*self._names, f"'{DELETE}' AS {TYPE}", STEP)

    def _at_joined_positions(self, scan: DataFrame, places: Sequence[_Place]) -> DataFrame:
        table = pa.table(
            {
                "path": [one.path for one in places],
                STEP: pa.array([one.step for one in places], pa.int32()),
                "positions": pa.array(
                    [pa.array(one.positions.to_array(), pa.int64()) for one in places],
                    pa.list_(pa.int64()),
                ),
            }
        )
        positions = self._lake.spark.createDataFrame(table).select(
            "path", STEP, F.explode("positions").alias("position")
        )
        # Spark joins by one number much faster than by a path. The path is what counts, and is
        # compared in a way that Spark does not take for a second key.
        positions = positions.withColumn("key", F.expr("xxhash64(path) ^ position"))
        if sum(len(one.positions) for one in places) <= _MOST_BROADCAST:
            positions = F.broadcast(positions)
        scan = scan.selectExpr(
            *self._columns(), "_file AS file", "xxhash64(_file) ^ _pos AS row_key"
        )
        joined = scan.join(
            positions,
            (scan["row_key"] == positions["key"])
            & scan["file"].startswith(positions["path"])
            & positions["path"].startswith(scan["file"]),
        )
        return joined.selectExpr(*self._names, f"'{DELETE}' AS {TYPE}", STEP)

    def _compared(self, one: Comparison) -> list[DataFrame]:
        before = self._located(one.before, one.before_deletes)
        after = self._located(one.after, one.after_deletes)
        logger.info(
            "deletes do not name their rows: %d files before and %d after a commit are compared",
            len(one.before),
            len(one.after),
        )
        place = ["file", "row"]
        return [
            rows.join(others.select(place), place, "left_anti").select(
                *self._names, F.lit(kind).alias(TYPE), F.lit(one.number).alias(STEP)
            )
            for rows, others, kind in ((before, after, DELETE), (after, before, INSERT))
        ]

    def _located(self, files: Sequence[ChosenFile], deletes: Sequence[Manifest]) -> DataFrame:
        scan = self._scan(files, deletes).frame
        return scan.selectExpr(*self._columns(), "_file AS file", "_pos AS row")

    def _with_step(self, scan: ChosenRows, kind: str) -> DataFrame:
        step = _lookup(scan.group_of_spec, f"_spec_id - {scan.first_spec - 1}")
        return scan.frame.selectExpr(
            *self._columns(), f"'{kind}' AS {TYPE}", f"CAST({step} AS INT) AS {STEP}"
        )

    def _scan(self, files: Sequence[ChosenFile], deletes: Sequence[Manifest] = ()) -> ChosenRows:
        rows = self._table.rows(files, self._versions.schema_id, deletes)
        # The same for each scan.
        self._schema = self._schema or rows.frame.schema
        return rows

    @property
    def _fields(self) -> list[StructField]:
        """What Spark calls the table's columns, once there is a scan."""
        return self._schema.fields if self._schema else []

    def _columns(self) -> list[str]:
        """Return the columns of a scan as SQL: few calls to Java."""
        return [
            f"{quote_identifier((field.name,))} AS {name}"
            for field, name in zip(self._fields, self._names, strict=True)
        ]


def _column(name: str, inner: Sequence[str]) -> Column:
    return reduce(lambda outer, field: outer.getField(field), inner, F.col(name))


def _of_steps(
    rows: Iterable[DeletedRows], steps: set[int], *, inside: bool
) -> Iterable[DeletedRows]:
    """Return deleted rows of some steps, or of all others."""
    for one in rows:
        chosen = {
            number: positions
            for number, positions in one.positions.items()
            if (number in steps) == inside
        }
        if chosen:
            yield DeletedRows(one.file, chosen)


def _union(parts: Sequence[DataFrame]) -> DataFrame:
    return reduce(DataFrame.unionByName, parts)


def _lookup(values: Sequence[int | None], place: str) -> str:
    """Return SQL for the n-th of some numbers, counted from 1; Spark makes a constant of them."""
    texts = ["NULL" if value is None else str(value) for value in values]
    if len(set(texts)) <= 1:
        return f"CAST({texts[0] if texts else 'NULL'} AS BIGINT)"
    if values[0] is None:
        return f"IF({place} = 1, NULL, {_lookup([values[1], *values[1:]], place)})"
    return f"element_at(CAST(split('{','.join(texts)}', ',') AS ARRAY<BIGINT>), {place})"
