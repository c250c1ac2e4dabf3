"""Events → what changes in the mirror. Pure DataFrame functions: no session, no action, no I/O.

The total order of a key's events: sequence, then rank (a row of a snapshot, any other upsert, a
delete), then content (columns from left to right, NULL lowest). It depends on the events alone and
never on when they arrive.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import chain
from operator import or_

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F
from pyspark.sql import types as T

from neve.merge import columns as cols
from neve.merge.decision import ABSENT, LATE, REMOVE, REPEAT, TIE, UPSERT, dispositions
from neve.merge.drift import IncompatibleColumn
from neve.merge.remembered import Remembered
from neve.merge.shape import Shape, column_as, is_marker, orderable, quoted, sequence_of
from neve.merge.spec import DELETE, SNAPSHOT, TRUNCATE, MergeSpec

# How an event that is set aside is written: by default, JSON has milliseconds only.
EVENT_JSON = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}

SNAPSHOT_RANK, UPSERT_RANK, DELETE_RANK = 0, 1, 2

# What becomes of further rows of a key, which somebody else must have written.
DUPLICATE = "duplicate"
# And of events that decide over no key.
REJECTED, TRUNCATES = "rejected", "truncates"

_NUMBER = "_neve_number"
_classifying = Remembered[list[Column]]()
_as_rows = Remembered[list[Column]]()
_newest = Remembered[tuple[Column, dict[str, Column], Column]]()


def classified(
    changes: DataFrame, spec: MergeSpec, incompatible: Sequence[IncompatibleColumn] = ()
) -> DataFrame:
    """Add what each event does, and why it cannot be taken, if it cannot."""
    key = (spec, tuple(incompatible))
    return changes.select(
        "*", *_classifying.get(changes, key, lambda: _classes_of(spec, incompatible))
    )


def _classes_of(spec: MergeSpec, incompatible: Sequence[IncompatibleColumn]) -> list[Column]:
    known = F.create_map(*(F.lit(word) for word in chain(*spec.operations.items())))
    operation = known[F.lower(F.trim(F.col(quoted(spec.operation_column)).cast("string")))]
    reason = _reason(spec, incompatible, operation)
    other = F.when(reason.isNotNull(), REJECTED).when(operation == TRUNCATE, TRUNCATES)
    return [operation.alias(cols.OPERATION), reason.alias(cols.REASON), other.alias(cols.OTHER)]


def _reason(
    spec: MergeSpec, incompatible: Sequence[IncompatibleColumn], operation: Column
) -> Column:
    is_row = operation != TRUNCATE
    reasons = [
        F.when(operation.isNull(), F.lit("the operation is not known")),
        *(
            F.when(is_row & F.col(quoted(key)).isNull(), F.lit(f"the key column {key} is NULL"))
            for key in spec.keys
        ),
        *(
            F.when(F.col(quoted(name)).isNull(), F.lit(f"the sequence column {name} is NULL"))
            for name in spec.sequence
        ),
        *(
            F.when(is_row & F.col(quoted(column.name)).isNotNull(), F.lit(column.reason))
            for column in incompatible
        ),
    ]
    return F.coalesce(*reasons)


def rejected(events: DataFrame) -> DataFrame:
    """Return events that cannot be taken: why, the row as JSON, and where it stands."""
    own = {cols.OPERATION, cols.REASON, cols.OTHER, cols.FILE, cols.POSITION}
    row = F.to_json(
        F.struct(
            *(
                F.col(quoted(column)).alias(name_before(column, events.columns))
                for column in events.columns
                if column not in own
            )
        ),
        EVENT_JSON,
    )
    return events.where(F.col(cols.REASON).isNotNull()).select(
        F.col(cols.REASON).alias("reason"),
        row.alias("event"),
        F.col(cols.FILE).alias("changelog_file"),
        F.col(cols.POSITION).alias("changelog_position"),
    )


def name_before(column: str, columns: Sequence[str]) -> str:
    """Return the name that a dropped column had, unless another column has it now."""
    if not column.startswith(cols.DROPPED):
        return column
    name = column.removeprefix(cols.DROPPED).partition("_")[2]
    return column if name in columns else name


def as_rows(
    events: DataFrame, shape: Shape, incompatible: Sequence[IncompatibleColumn] = ()
) -> DataFrame:
    """Give events the mirror's columns and types, and their rank.

    Those that decide over no key have none, and so meet nothing; they are only counted.
    """
    # An incompatible column is NULL in them, and may have no cast at all.
    left_out = {column.name for column in incompatible}
    present = T.StructType([field for field in events.schema if field.name not in left_out])
    return events.select(*_as_rows.get(events, (shape, present), lambda: _values(shape, present)))


def _values(shape: Shape, present: T.StructType) -> list[Column]:
    is_snapshot, is_delete = (F.col(cols.OPERATION) == kind for kind in (SNAPSHOT, DELETE))
    rank = F.when(is_delete, DELETE_RANK).when(is_snapshot, SNAPSHOT_RANK).otherwise(UPSERT_RANK)
    has_key = F.col(cols.OTHER).isNull()

    def value(field: T.StructField) -> Column:
        # An event has the column that was dropped, or one of the same name that came after it.
        before = [
            column_as(read_as, field.dataType, present)
            for read_as, column in shape.dropped
            if column == field.name and read_as in present.names
        ]
        sent = F.coalesce(*before, column_as(field.name, field.dataType, present))
        return F.when(has_key, sent) if field.name in shape.keys else sent

    return [
        *(value(field).alias(field.name) for field in shape.columns),
        rank.alias(cols.RANK),
        F.col(cols.OTHER),
    ]


def latest(
    rows: DataFrame, shape: Shape, partition_by: Sequence[str] = (), *, anew: bool = False
) -> DataFrame:
    """Keep each key's greatest event, and say whether another one has the same sequence.

    Where events that are merged already are among the rows, also say which of the others replace a
    row of the same sequence: those that are greater than a merged event, or than another one.

    Args:
        partition_by: what the rows are distributed by already, and a key has one value of.
        anew: everything is merged again, so that the mirror's row may be of an event to come, or
            events are that were set aside, so that those that count as merged may be the same.
    """
    has_merged = cols.MERGED in rows.columns
    key = (shape, tuple(partition_by), has_merged, anew)
    number, counted, is_first = _newest.get(
        rows, key, lambda: _newest_of_key(shape, partition_by, has_merged=has_merged, anew=anew)
    )
    # The number comes first: its order serves the windows without one, so rows are sorted once.
    reduced = (
        rows.withColumn(_NUMBER, number)
        .withColumns(counted)
        .where(is_first)
        .drop(_NUMBER, *partition_by)
    )
    if not has_merged:
        return reduced
    wins = (F.col(cols.MERGED) == 0) & (F.lit(anew) | (F.col(cols.CONTESTED) == 1))
    return reduced.withColumn(cols.WINS_TIE, wins.cast("long")).drop(cols.MERGED)


def _newest_of_key(
    shape: Shape, partition_by: Sequence[str], *, has_merged: bool, anew: bool
) -> tuple[Column, dict[str, Column], Column]:
    """Return an event's number among those of its key, what is counted of them, who is first."""
    content = F.xxhash64(cols.RANK, *(orderable(field) for field in shape.columns))
    of_key = _of_key(shape, partition_by)

    def greatest(hashed: Column) -> Column:
        """Return the greatest of those that have the key's greatest sequence."""
        newest = F.struct(sequence_of(shape).alias("at"), hashed.alias("hashed"))
        return F.max(newest).over(of_key)["hashed"]

    least = F.bitwise_not(greatest(F.bitwise_not(content)))
    order, events = _newest_first(shape, partition_by), F.count("*")
    if has_merged:
        # Of two equal events the merged one wins: then nothing has to be done.
        merged = F.col(cols.MERGED)
        order = _newest_first(shape, partition_by, merged.asc() if anew else merged.desc())
        events = F.sum(1 - merged)
    counted = {
        cols.CONTESTED: (greatest(content) != least).cast("long"),
        cols.EVENTS: events.over(of_key),
    }
    return F.row_number().over(order), counted, F.col(_NUMBER) == 1


def folded(rows: DataFrame, shape: Shape) -> DataFrame:
    """Keep each key's greatest event with, for each column, the newest value that was sent.

    The result has, beside the columns, what `filled` needs to look at the mirror's row: the
    sequence of the newest delete, and of each value.
    """
    order = _newest_first(shape)
    every = order.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    is_delete = F.col(cols.RANK) == DELETE_RANK
    number = "_neve_number"
    newest_delete = F.min(F.when(is_delete, F.col(number))).over(_of_key(shape))
    known = {
        name: F.first(
            F.when(
                F.col("_neve_since_delete") & ~is_marker(name, shape),
                F.struct(F.col(quoted(name)).alias("value"), sequence_of(shape).alias("at")),
            ),
            ignorenulls=True,
        ).over(every)
        for name in shape.marked
    }
    reset = F.first(F.when(is_delete, sequence_of(shape)), ignorenulls=True).over(every)
    full = ~reduce(or_, (is_marker(name, shape) for name in shape.marked))
    return (
        rows.withColumn(number, F.row_number().over(order))
        .withColumn(cols.EVENTS, F.count("*").over(_of_key(shape)))
        .withColumn("_neve_newest_delete", newest_delete)
        .withColumn(
            "_neve_since_delete",
            F.col("_neve_newest_delete").isNull() | (F.col(number) < F.col("_neve_newest_delete")),
        )
        .withColumns({cols.KNOWN + name: column for name, column in known.items()})
        .withColumn(cols.RESET, reset)
        .withColumn(cols.FULL, full)
        .where(F.col(number) == 1)
        .drop(number, "_neve_newest_delete", "_neve_since_delete")
        # A row is made of several events, so that no single event can be compared with it.
        .withColumns({cols.CONTESTED: F.lit(0).cast("long"), cols.WINS_TIE: F.lit(0).cast("long")})
    )


def _of_key(shape: Shape, partition_by: Sequence[str] = ()) -> WindowSpec:
    return Window.partitionBy(*partition_by, *(quoted(key) for key in shape.keys), cols.OTHER)


def _newest_first(shape: Shape, partition_by: Sequence[str] = (), *then_by: Column) -> WindowSpec:
    fields = {field.name: field for field in shape.columns}
    return _of_key(shape, partition_by).orderBy(
        *(F.col(quoted(name)).desc() for name in shape.sequence),
        F.col(cols.RANK).desc(),
        *(orderable(fields[name]).desc_nulls_last() for name in shape.others),
        *then_by,
    )


def located(
    reduced: DataFrame, mirror: DataFrame | None, tombstones: DataFrame | None, shape: Shape
) -> DataFrame:
    """Add the sequence and place of each key's row in the mirror, and its tombstone's sequence."""
    keys = [F.col(quoted(key)) for key in shape.keys]
    sequence = sequence_of(shape)
    nothing = F.when(F.lit(False), sequence)
    if tombstones is None:
        met = reduced.withColumn(cols.TOMBSTONE, nothing)
    else:
        deletes = tombstones.groupBy(*keys).agg(F.max(sequence).alias(cols.TOMBSTONE))
        met = reduced.join(deletes, on=list(shape.keys), how="left")
    if mirror is None:
        return met.withColumns(
            {
                cols.CURRENT: nothing,
                cols.ROW_FILE: F.lit(None).cast("string"),
                cols.ROW_POSITION: F.lit(None).cast("long"),
                cols.NUMBER: F.lit(1),
                **{
                    cols.BASE + name: F.lit(None).cast(shape.columns[name].dataType)
                    for name in shape.marked
                },
            }
        )
    rows = mirror.select(
        *keys,
        sequence.alias(cols.CURRENT),
        F.col(cols.FILE).alias(cols.ROW_FILE),
        F.col(cols.POSITION).alias(cols.ROW_POSITION),
        # A column that the mirror has just got is not in the snapshot that is read.
        *(
            column_as(name, shape.columns[name].dataType, mirror.schema).alias(cols.BASE + name)
            for name in shape.marked
        ),
    )
    joined = met.join(rows, on=list(shape.keys), how="left")
    of_key = _of_key(shape)
    # A key that has several rows is decided once, by the newest of them.
    newest = [F.col(name).desc() for name in (cols.CURRENT, cols.ROW_FILE, cols.ROW_POSITION)]
    return joined.withColumn(cols.NUMBER, F.row_number().over(of_key.orderBy(*newest))).withColumn(
        cols.CURRENT, F.max(cols.CURRENT).over(of_key)
    )


def disposed(events: DataFrame, shape: Shape, barrier: Column | None) -> DataFrame:
    """Say what becomes of each key's newest event, and what is counted of it."""
    sequence, is_false = sequence_of(shape), F.lit(False)
    known = F.greatest(cols.CURRENT, cols.TOMBSTONE)
    has_row, is_truncated = F.col(cols.ROW_FILE).isNotNull(), is_false
    if barrier is not None:
        # A row from before the barrier goes with it, and says nothing any more.
        has_row, is_truncated = has_row & (known >= barrier), sequence < barrier
    disposition = F.when(F.col(cols.OTHER).isNotNull(), F.col(cols.OTHER))
    for name, condition in dispositions(
        is_delete=F.col(cols.RANK) == DELETE_RANK,
        has_row=has_row,
        is_older=F.coalesce(sequence < known, is_false),
        is_equal=F.coalesce(sequence == known, is_false),
        is_truncated=is_truncated,
    ):
        disposition = disposition.when(condition, name)
    is_first = F.col(cols.NUMBER) == 1
    decided = events.withColumns(
        {
            cols.DISPOSITION: disposition.otherwise(UPSERT),
            # A row that is older than its tombstone says nothing of the row that comes now.
            cols.CURRENT: F.when(has_row & (F.col(cols.CURRENT) == known), known),
            cols.KNOWN_KEY: known.isNotNull().cast("long"),
            # A scan uses no index.
            **{
                name: F.lit(0).cast("long")
                for name in (cols.CACHE_HITS, cols.INDEX_BROKEN, cols.INDEX_AWAY)
                if name not in events.columns
            },
        }
    ).withColumn(cols.OVERTAKEN, _is_overtaken(shape).cast("long"))
    # Where the first row of a key goes, the others go with it.
    return decided.where(is_first | F.col(cols.DISPOSITION).isin(UPSERT, REMOVE)).withColumns(
        {
            cols.DISPOSITION: F.when(is_first, F.col(cols.DISPOSITION)).otherwise(DUPLICATE),
            cols.EVENTS: F.when(is_first, F.col(cols.EVENTS)).otherwise(0),
        }
    )


def with_settled_ties(decided: DataFrame, mirror: DataFrame, shape: Shape) -> DataFrame:
    """Say which ties change something: those that win, and differ from the row in their place."""
    rows = mirror.select(
        *(
            column_as(field.name, field.dataType, mirror.schema).alias(field.name)
            for field in shape.columns
        ),
        F.col(cols.FILE).alias(cols.ROW_FILE),
        F.col(cols.POSITION).alias(cols.ROW_POSITION),
    )
    content, place = "_neve_content", [cols.ROW_FILE, cols.ROW_POSITION]
    hashed = F.xxhash64(*(orderable(field) for field in shape.compared))
    missing = [field for field in shape.columns if field.name in shape.missing]
    before = {cols.BASE + field.name: orderable(field) for field in missing}
    differs = [
        F.col(quoted(field.name)).isNotNull()
        & ~orderable(field).eqNullSafe(F.col(quoted(cols.BASE + field.name)))
        for field in missing
    ]
    is_new = (F.col(cols.WINS_TIE) == 1) & reduce(or_, differs, hashed != F.col(content))
    is_tie = F.col(cols.DISPOSITION) == TIE
    settled = F.when(is_tie, F.when(is_new, UPSERT).otherwise(REPEAT))
    return (
        decided.join(
            rows.select(
                *place,
                hashed.alias(content),
                *(value.alias(name) for name, value in before.items()),
            ),
            on=place,
            how="left",
        )
        .withColumn(cols.DISPOSITION, F.coalesce(settled, F.col(cols.DISPOSITION)))
        .drop(content, *before)
    )


def keeps_value(name: str) -> Column:
    """Tell whether a column keeps the mirror's value: the source sent none that is newer."""
    known, at = F.col(quoted(cols.KNOWN + name)), F.col(cols.CURRENT)
    not_newer = known.isNull() | F.coalesce(known["at"] < at, F.lit(False))
    not_deleted = F.col(cols.RESET).isNull() | F.coalesce(F.col(cols.RESET) < at, F.lit(False))
    return at.isNotNull() & not_newer & not_deleted


def final_value(name: str, shape: Shape) -> Column:
    """Return what a column's value becomes: the sent one, or the mirror's where none was sent."""
    sent = sent_value(name, shape)
    if name not in shape.marked:
        return sent
    return F.when(keeps_value(name), F.col(quoted(cols.BASE + name))).otherwise(sent)


def _is_overtaken(shape: Shape) -> Column:
    """Tell whether a value, or a delete, came after newer events that did not have it.

    Whole events that are late, and parts of folded ones that are older than the mirror's row.
    """
    if not shape.marked:
        return F.lit(False)
    current = F.col(cols.CURRENT)
    older = [F.col(quoted(cols.KNOWN + name))["at"] < current for name in shape.marked]
    parts = [F.coalesce(part, F.lit(False)) for part in (*older, F.col(cols.RESET) < current)]
    is_late = F.col(cols.DISPOSITION) == LATE
    return F.when(is_late, F.col(cols.FULL)).otherwise(reduce(or_, parts))


def sent_value(name: str, shape: Shape) -> Column:
    """Return the newest value that the source sent for a column; NULL if it sent none.

    What was sent before the key was deleted says nothing of the row that came after.
    """
    if name not in shape.marked:
        return F.col(quoted(name))
    known = F.col(quoted(cols.KNOWN + name))
    is_deleted = F.coalesce(known["at"] <= F.col(cols.TOMBSTONE), F.lit(False))
    return F.when(~is_deleted, known["value"])


def tombstones_of(events: DataFrame, shape: Shape) -> DataFrame:
    """Return the keys that a batch deletes, with the deletes' sequences."""
    is_deleted = F.col(cols.DISPOSITION).isin(REMOVE, ABSENT)
    return events.where(is_deleted).select(*map(quoted, shape.decisive))
