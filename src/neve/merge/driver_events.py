"""Read and reduce a small batch here, without a Spark job, whose fixed cost is most of its time.

What comes of it is what `transforms.latest` gives to the tasks, and goes to the same functions.
Whatever might differ raises `NeedsSparkError`: events that are partial, set aside or of another
shape than the mirror, a TRUNCATE, values that Arrow orders otherwise than Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from neve.index.sequences import encode_sequences
from neve.lake.appended_rows import read_appended
from neve.lake.plain_rows import Allowance
from neve.lake.plain_types import NeedsSparkError
from neve.merge import columns as cols
from neve.merge import transforms as tr
from neve.merge.spec import DELETE, SNAPSHOT, TRUNCATE

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

    from neve.merge.pending import Batch
    from neve.merge.plan import Look
    from neve.merge.shape import Shape
    from neve.merge.spec import MergeSpec

Places: TypeAlias = npt.NDArray[np.int64]

_MIB = 1024 * 1024
# What one batch may read here, as much as one task takes. The events are in memory three times at
# most: as read, in order, and as the rows that are written. So it is 300 MiB at most for each
# mirror that is merged at the same time.
LIMIT = Allowance(
    files=64,
    stored_bytes=32 * _MIB,
    decoded_bytes=128 * _MIB,
    rows=250_000,
    kept_bytes=64 * _MIB,
)
_RANKS = {DELETE: tr.DELETE_RANK, SNAPSHOT: tr.SNAPSHOT_RANK}
_SEQUENCE = "_neve_sequence"


def read_newest(tables: Look, spec: MergeSpec, batch: Batch, shape: Shape) -> pa.Table:
    """Return each key's greatest event, as the tasks of a merge get it.

    Raises:
        NeedsSparkError: the batch is too large, or not plain.
    """
    _require_plain(tables, batch, shape)
    if tables.changelog_io is None:
        raise NeedsSparkError("the changelog was not loaded")
    names = {*shape.columns.names, spec.operation_column}
    snapshots = _snapshots(tables, batch)
    events = read_appended(tables.changelog, tables.changelog_io, snapshots, names, LIMIT)
    try:
        return newest(ranked(events, spec, shape), shape)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise NeedsSparkError("Arrow does not order or read such values") from error


def _require_plain(tables: Look, batch: Batch, shape: Shape) -> None:
    """Decide by metadata, before anything is read."""
    if batch.until_id is None or batch.after_id is None or tables.pending.whole is not None:
        raise NeedsSparkError("the batch is not made of whole appends")
    if batch.events is None or batch.events > LIMIT.rows:
        raise NeedsSparkError("the batch is too large")
    if shape.marked or shape.missing or tables.drift.incompatible:
        raise NeedsSparkError("events have other columns than the mirror, or may lack values")
    theirs = {field.name: field.field_type for field in tables.changelog.schema().fields}
    for field in tables.schema.fields:
        if theirs.get(field.name) != field.field_type or not field.field_type.is_primitive:
            raise NeedsSparkError(f"the column {field.name} is nested, or not as in the changelog")


def _snapshots(tables: Look, batch: Batch) -> Sequence[Snapshot]:
    until = [each for each in tables.pending.snapshots if each.snapshot_id == batch.until_id]
    before = takewhile(lambda each: each.snapshot_id != batch.until_id, tables.pending.snapshots)
    return [*before, *until]


def ranked(events: pa.Table, spec: MergeSpec, shape: Shape) -> pa.Table:
    """Return the mirror's columns of events and their rank, as `classified` and `as_rows` do.

    Raises:
        NeedsSparkError: an event is a TRUNCATE, or is to be set aside.
    """
    operations = events[spec.operation_column].combine_chunks()
    if not pa.types.is_string(operations.type) or operations.null_count:
        raise NeedsSparkError("an operation is no text")
    words = operations.dictionary_encode()
    ranks = pa.array([_rank(word, spec) for word in words.dictionary.to_pylist()], pa.int32())
    rows = events.select(shape.columns.names)
    if any(rows[name].null_count for name in shape.decisive):
        raise NeedsSparkError("a key or a sequence is NULL")
    return rows.append_column(cols.RANK, ranks.take(words.indices))


def _rank(word: str, spec: MergeSpec) -> int:
    # Of other texts, Java and Python disagree on what is lower case.
    operation = spec.operations.get(word.strip(" ").lower()) if word.isascii() else None
    if operation is None or operation == TRUNCATE:
        raise NeedsSparkError("an operation is a TRUNCATE, or not known")
    return _RANKS.get(operation, tr.UPSERT_RANK)


def newest(rows: pa.Table, shape: Shape) -> pa.Table:
    """Keep each key's greatest event, as `transforms.latest` does.

    Args:
        rows: the mirror's columns and RANK, no key or sequence of them NULL.

    Raises:
        NeedsSparkError: Arrow does not compare such values as Spark does.
    """
    sequence = encode_sequences([rows[name] for name in shape.sequence])
    rows = rows.append_column(_SEQUENCE, sequence)
    if any(pa.types.is_floating(rows[key].type) for key in shape.keys):
        raise NeedsSparkError("a key is a floating-point number")
    # The greatest comes first: so Arrow puts NULL last, as the lowest.
    ordered = _newest_first(rows, [*shape.keys, _SEQUENCE])
    first = _starts(ordered, shape.keys)
    of_sequence = _starts(ordered, [*shape.keys, _SEQUENCE])
    if len(of_sequence) < len(ordered):
        _require_order(ordered, shape.others)
        ordered = _newest_first(ordered, [*shape.keys, _SEQUENCE, cols.RANK, *shape.others])
    counts = {
        cols.CONTESTED: _contested(ordered, first, of_sequence, shape).astype(np.int64),
        cols.EVENTS: np.diff(first, append=len(ordered)),
    }
    kept = ordered.drop_columns([_SEQUENCE]).take(pa.array(first))
    kept = kept.append_column(cols.OTHER, pa.nulls(len(kept), pa.string()))
    for name, values in counts.items():
        kept = kept.append_column(name, pa.array(values))
    return kept


def _newest_first(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    places = pc.sort_indices(rows, sort_keys=[(name, "descending") for name in names])
    return rows.take(places).combine_chunks()


def _starts(ordered: pa.Table, names: Sequence[str]) -> Places:
    """Return where runs of equal values start, in rows that are in the order of these columns."""
    is_first = np.ones(len(ordered), np.bool_)
    is_first[1:] = _differs(ordered.slice(0, max(0, len(ordered) - 1)), ordered.slice(1), names)
    return np.flatnonzero(is_first)


def _differs(some: pa.Table, others: pa.Table, names: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Tell which rows differ from the other in the same place; two NULLs are equal."""
    differs = np.zeros(len(some), np.bool_)
    for name in names:
        one, other = some[name], others[name]
        is_equal = np.asarray(pc.fill_null(pc.equal(one, other), False))
        differs |= ~(is_equal | (np.asarray(one.is_null()) & np.asarray(other.is_null())))
    return differs


def _contested(
    ordered: pa.Table, first: Places, of_sequence: Places, shape: Shape
) -> npt.NDArray[np.bool_]:
    """Tell which keys have different events of their greatest sequence.

    Args:
        ordered: the events, the newest of each key first.
        first: where the events of each key start.
        of_sequence: where those of each key and sequence start.
    """
    ends = np.append(of_sequence[1:], len(ordered)) - 1
    least = ends[np.searchsorted(of_sequence, first)]
    several = np.flatnonzero(least != first)
    contested = np.zeros(len(first), np.bool_)
    contested[several] = _differs(
        ordered.take(pa.array(least[several])),
        ordered.take(pa.array(first[several])),
        [cols.RANK, *shape.others],
    )
    return contested


def _require_order(rows: pa.Table, names: Sequence[str]) -> None:
    """Refuse numbers whose order differs: to Spark NaN is the greatest, and -0.0 equals 0.0."""
    for name in names:
        column = rows[name]
        if pa.types.is_floating(column.type):
            odd = pc.or_(pc.is_nan(column), pc.equal(column, 0.0))
            if pc.any(odd).as_py():
                raise NeedsSparkError(f"events of one sequence have odd numbers in {name}")
