"""Read the changes of a small range here, without a Spark job, whose fixed cost is most of it.

The rows are read when this is called, and not when they are used: they are then in memory, and
outlive the files. The answer is the same as Spark's; whatever might differ is left to Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import types as T  # noqa: N812 - as everywhere

from neve.lake.plain_rows import Allowance, PlainReader, PlainRows
from neve.lake.plain_types import NeedsSparkError
from neve.versions.arrow_changes import KINDS, Numbers, find_changes, find_net_changes
from neve.versions.change_columns import CHANGE_TYPE, SNAPSHOT_ID, TIMESTAMP, Key
from neve.versions.plan import ChangePlan, DeletedRows, files_of

if TYPE_CHECKING:
    from neve.lake.chosen_files import TableReader
    from neve.versions.resolve import VersionRange

_MIB = 1024 * 1024
# What one range may read here, all its files together. Spark needs 0.4 s for what takes 0.1 s here
# at these limits; far above them Spark is faster, and memory would not be bounded.
LIMIT = Allowance(
    files=16, stored_bytes=8 * _MIB, decoded_bytes=64 * _MIB, rows=50_000, kept_bytes=16 * _MIB
)
_OURS = (
    T.StructField(CHANGE_TYPE, T.StringType(), nullable=False),
    T.StructField(SNAPSHOT_ID, T.LongType(), nullable=True),
    T.StructField(TIMESTAMP, T.TimestampType(), nullable=True),
)


def read_on_driver(
    table: TableReader, versions: VersionRange, plan: ChangePlan, keys: Sequence[Key]
) -> tuple[pa.Table, T.StructType]:
    """Return the changes of a range, and what Spark calls their columns.

    Raises:
        NeedsSparkError: they are too many, or might not be exactly what Spark would read.
        NotFoundError: a file has expired.
    """
    _require_few(plan)
    reader = PlainReader(table, versions.schema_id, LIMIT.fresh())
    if any(key.inner or pa.types.is_nested(reader.schema.field(key.place).type) for key in keys):
        raise NeedsSparkError("a key is nested")
    rows, signs, steps = _read(reader, plan)
    places = [key.place for key in keys]
    try:
        if plan.has_steps_to_undo:
            kept, kinds, made_by = find_net_changes(rows, signs, steps, places)
        else:
            kept, kinds = find_changes(rows, signs, steps, plan.steps_that_do_both, places)
            made_by = steps[kept]
    except (ValueError, OverflowError) as error:
        raise NeedsSparkError("Python has no such values") from error
    step = pa.array(made_by)
    ids = pa.array([each.snapshot_id if each else None for each in versions.steps], pa.int64())
    times = pa.array(
        [each.committed_ms if each else None for each in versions.steps],
        pa.timestamp("ms", tz="UTC"),
    )
    columns = (*rows.take(pa.array(kept)).columns, pa.array(KINDS).take(pa.array(kinds)))
    schema = T.StructType([*reader.columns.fields, *_OURS])
    return pa.table([*columns, ids.take(step), times.take(step)], names=schema.names), schema


def _require_few(plan: ChangePlan) -> None:
    """Decide by metadata, before any file is opened."""
    if plan.comparisons:
        raise NeedsSparkError("deletes do not name their rows")
    LIMIT.fresh().take(
        files=sum(1 for _ in files_of(plan)),
        rows=sum(one.entry.records for one in (*plan.added, *plan.removed))
        + sum(len(rows) for one in plan.deleted for rows in one.positions.values()),
        stored_bytes=sum(one.entry.bytes for one in (*plan.added, *plan.removed)),
    )


def _read(reader: PlainReader, plan: ChangePlan) -> tuple[pa.Table, Numbers, Numbers]:
    """Return the rows that come and go, with 1 or -1, and the step of each."""
    reader.fetch([*plan.added, *plan.removed, *(one.file for one in plan.deleted)])
    tables = [reader.schema.empty_table()]
    signs = [np.empty(0, np.int8)]
    steps = [np.empty(0, np.int64)]

    def add(read: PlainRows, sign: int, step: Numbers) -> None:
        tables.append(read.rows)
        signs.append(np.full(read.rows.num_rows, sign, np.int8))
        steps.append(step)

    for sign, files in ((1, plan.added), (-1, plan.removed)):
        for file in files:
            read = reader.rows(file)
            add(read, sign, np.full(read.rows.num_rows, file.group, np.int64))
    for one in plan.deleted:
        read = reader.rows(one.file, _every(one))
        add(read, -1, _steps_of(one, read))
    return pa.concat_tables(tables), np.concatenate(signs), np.concatenate(steps)


def _every(one: DeletedRows) -> BitMap64:
    return BitMap64.union(*one.positions.values()) if one.positions else BitMap64()


def _steps_of(one: DeletedRows, read: PlainRows) -> Numbers:
    steps = np.zeros(read.rows.num_rows, np.int64)
    for number, positions in one.positions.items():
        steps[np.isin(read.positions, np.asarray(positions.to_array(), np.int64))] = number
    return steps
