"""Where a key's row is now: what the events of a batch meet, and what becomes of them.

A locator is asked once for a batch. It adds to each key's newest event the sequence of the mirror's
row and of the key's tombstone, and decides. By the index, what changed is looked up, and the mirror
is not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyspark.sql import functions as F
from pyspark.sql import types as T

from neve.index.root import Root
from neve.index.sequences import encode_sequences
from neve.index.shard import bucket_of
from neve.lake.frames import map_batches
from neve.lake.paths import local_path
from neve.lake.plain_types import NeedsSparkError
from neve.merge import columns as cols
from neve.merge import transforms as tr
from neve.merge.decision import UPSERT, dispositions
from neve.merge.key_lookup import KeyLookup, with_key_and_without
from neve.merge.partial_rows import LocateRows
from neve.merge.shape import Shape, barrier_column, quoted

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyspark.sql import DataFrame, SparkSession

    from neve.index.maintain import Refreshed

Mask: TypeAlias = npt.NDArray[np.bool_]
Task: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]
Locator: TypeAlias = "IndexLocator | ScanLocator"

BUCKET = "_neve_bucket"
# A task takes so many; more make more tasks, so that its memory stays bounded.
EVENTS_A_TASK = 250_000
# So few are not worth a second task, which would be a second file, too.
FEW_EVENTS = 20_000
# From an object store, where most of a lookup is waiting for answers.
FEW_REMOTE_EVENTS = 500
# To an object store, 32 at a time, so that more take a process some seconds: tasks share them.
MOST_REQUESTS_HERE = 2_000
# Ranges of hashes for each task, so that Spark shares them out evenly.
_RANGES_A_TASK = 16
_SETTINGS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(1 << 16),
}


@dataclass(frozen=True)
class Decided:
    """Each key's newest event, what it meets and what becomes of it: nothing is computed yet.

    Whatever decided, there are DISPOSITION, ROW_FILE and ROW_POSITION, and what is counted: EVENTS,
    OVERTAKEN, KNOWN_KEY and others of `columns.SUMMED`.
    """

    frame: DataFrame
    # What is still to be done to the frame's batches in Python. A writer does it in its own tasks,
    # so that rows go there once.
    task: Task | None = None


@dataclass(frozen=True)
class DecidedHere:
    """Each key's newest event of a small batch, in this process, and what decides over them."""

    newest: pa.Table
    task: Task


@dataclass(frozen=True)
class ScanLocator:
    """Joins the batch with the keys of the whole mirror and of all tombstones."""

    mirror: DataFrame | None
    tombstones: DataFrame | None

    # Columns by which events are distributed, beside the keys.
    partition_by = ()

    def distributed(self, rows: DataFrame, shape: Shape) -> DataFrame:
        """Bring events that are looked up together into one partition, as the join needs them."""
        return rows.repartition(*map(quoted, shape.keys))

    def planned(self, session: SparkSession) -> AbstractContextManager[None]:  # noqa: ARG002 - as IndexLocator
        """Have Spark plan jobs of this locator the best way."""
        return nullcontext()

    def decided(self, reduced: DataFrame, shape: Shape, barrier: tuple[str, ...] | None) -> Decided:
        """Find what each key has now, and decide. The barrier is the newest TRUNCATE."""
        met = tr.located(reduced, self.mirror, self.tombstones, shape)
        return Decided(tr.disposed(met, shape, barrier_column(barrier, shape)))


@dataclass(frozen=True)
class IndexLocator:
    """Looks keys up in an index of exactly the mirror's snapshot."""

    root: Root
    io_properties: Mapping[str, str]
    partitions: int
    # Of the mirror.
    schema: Schema
    # Events of near hashes come into one task, so that a block of the index is read by one only.
    by_hash: bool = False
    # Tombstones that were written before this time, in seconds, are forgotten.
    forget_before: float | None = None

    @property
    def partition_by(self) -> tuple[str, ...]:
        return (BUCKET,) if self.by_hash else ()

    def distributed(self, rows: DataFrame, shape: Shape) -> DataFrame:
        """Bring events that are looked up together into one partition."""
        if not self.by_hash:
            return rows.repartition(self.partitions, *map(quoted, shape.keys))
        bits = (_RANGES_A_TASK * self.partitions - 1).bit_length()
        hash_keys, keys = self.root.hasher, list(shape.keys)

        def with_bucket(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
            for batch in batches:
                for part in with_key_and_without(batch):
                    if part.column(cols.OTHER).null_count:
                        hashes = hash_keys([part.column(key) for key in keys])
                        buckets = pa.array(bucket_of(hashes.first, bits))
                    else:
                        buckets = pa.nulls(len(part), pa.int64())
                    yield part.append_column(BUCKET, buckets)

        schema = T.StructType([*rows.schema, T.StructField(BUCKET, T.LongType())])
        return map_batches(rows, with_bucket, schema).repartition(self.partitions, BUCKET)

    @contextmanager
    def planned(self, session: SparkSession) -> Iterator[None]:
        """Nothing here is of unknown size, as joins are, so each stage is planned beforehand."""
        before = {key: str(session.conf.get(key)) for key in _SETTINGS}
        for key, value in _SETTINGS.items():
            session.conf.set(key, value)
        try:
            yield
        finally:
            for key, value in before.items():
                session.conf.set(key, value)

    def decided(self, reduced: DataFrame, shape: Shape, barrier: tuple[str, ...] | None) -> Decided:
        if shape.marked:
            located = self._located(reduced, shape, self._lookup(shape))
            met = tr.disposed(located, shape, barrier_column(barrier, shape))
            is_several = F.col(cols.SEVERAL) == 1
            disposition = F.when(is_several, tr.DUPLICATE).otherwise(F.col(cols.DISPOSITION))
            return Decided(met.withColumn(cols.DISPOSITION, disposition))
        return Decided(reduced, self._deciding(shape, barrier))

    def decided_here(
        self, newest: pa.Table, shape: Shape, barrier: tuple[str, ...] | None
    ) -> DecidedHere:
        """As `decided`, for events that this process has reduced, none of them partial.

        Raises:
            NeedsSparkError: so much of the index has to be fetched that tasks are to share it.
        """
        if self.partitions > 1 and _is_remote(self.root):
            requests = self._lookup(shape).requests(newest)
            if requests > MOST_REQUESTS_HERE:
                raise NeedsSparkError(f"{requests} parts of the index are not on this machine")
        return DecidedHere(newest, self._deciding(shape, barrier))

    def _deciding(self, shape: Shape, barrier: tuple[str, ...] | None) -> _Decide:
        encoded = None if barrier is None else self._encoded(barrier, shape)
        return _Decide(self._lookup(shape), shape.sequence, encoded)

    def _lookup(self, shape: Shape) -> KeyLookup:
        return KeyLookup(
            self.root.to_json(),
            dict(self.io_properties),
            shape.keys,
            self.root.hasher,
            self.forget_before,
        )

    def _located(self, reduced: DataFrame, shape: Shape, lookup: KeyLookup) -> DataFrame:
        """Add what partial events meet; the values that the mirror has are read in the tasks."""
        task = LocateRows(lookup, shape, self.schema, self.root.files)
        return map_batches(reduced, task, T.StructType([*reduced.schema, *task.added]))

    def _encoded(self, barrier: tuple[str, ...], shape: Shape) -> Any:
        types = schema_to_pyarrow(self.schema, include_field_ids=False)
        columns = [
            pa.array([read_part(text, types.field(name).type)], types.field(name).type)
            for text, name in zip(barrier, shape.sequence, strict=True)
        ]
        return encode_sequences(columns)[0].as_py()


def index_locator(
    session: SparkSession,
    index: Refreshed,
    events: int | None,
    forget_before: float | None = None,
) -> IndexLocator:
    """Return the locator of an index that is of the snapshot a batch is decided on."""
    table = index.mirror.table
    # A remote index is read by requests; a mapped file costs nothing but the pages it touches.
    is_remote = _is_remote(index.root)
    partitions = session.sparkContext.defaultParallelism
    if events is not None:
        few = FEW_REMOTE_EVENTS if is_remote else FEW_EVENTS
        partitions = max(1, min(partitions, -(-events // few)), -(-events // EVENTS_A_TASK))
    return IndexLocator(
        index.root,
        dict(table.io.properties),
        partitions,
        table.schema(),
        # Few events mostly lie in different blocks.
        by_hash=is_remote and (events is None or events > FEW_EVENTS),
        forget_before=forget_before,
    )


def _is_remote(root: Root) -> bool:
    return any(local_path(shard.path) is None for shard in root.shards)


_ADDED = (
    *(cols.ROW_FILE, cols.ROW_POSITION, cols.DISPOSITION),
    *(cols.OVERTAKEN, cols.KNOWN_KEY, cols.CACHE_HITS, cols.INDEX_BROKEN, cols.INDEX_AWAY),
)


@dataclass(frozen=True)
class _Decide:
    """The task: looks keys up and says what becomes of them. Everything in it can be pickled."""

    keys: KeyLookup
    sequence: tuple[str, ...]
    # The newest TRUNCATE's sequence, as the index has sequences.
    barrier: Any

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in batches:
            for part in with_key_and_without(batch):
                has_key = part.column(cols.OTHER).null_count
                yield self._decided(part) if has_key else _counted_only(part)

    def _decided(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        hits, counted = self.keys.search(batch)
        is_row = hits.file >= 0
        own = encode_sequences([batch.column(name) for name in self.sequence])
        disposition = decided(batch.column(cols.RANK), own, hits.sequence, is_row, self.barrier)
        if hits.several.any():
            # Which rows these are the index does not know.
            disposition = pc.if_else(pa.array(hits.several), tr.DUPLICATE, disposition)
        count = len(batch)
        return _with(
            batch,
            _where(is_row, pa.array(hits.file).cast(pa.string())),
            _where(is_row, pa.array(hits.position)),
            disposition,
            pa.array(np.zeros(count, np.int64)),
            pa.array(hits.has_entry.astype(np.int64)),
            *counted.values(),
        )


def decided(rank: pa.Array, own: pa.Array, known: pa.Array, is_row: Mask, barrier: Any) -> pa.Array:
    """Say what becomes of events, as `transforms.disposed` does.

    Args:
        own: the sequences of the events.
        known: the sequences that the index has for their keys, NULL where it has none.
        barrier: the sequence of the newest TRUNCATE, or None.
    """
    known = known.cast(own.type)
    has_row, is_truncated = is_row, np.zeros(len(own), np.bool_)
    if barrier is not None:
        since = pa.scalar(barrier, own.type)
        has_row = is_row & _mask(pc.greater_equal(known, since))
        is_truncated = _mask(pc.less(own, since))
    cases = dispositions(
        is_delete=_mask(pc.equal(rank, tr.DELETE_RANK)),
        has_row=has_row,
        is_older=_mask(pc.less(own, known)),
        is_equal=_mask(pc.equal(own, known)),
        is_truncated=is_truncated,
    )
    numbers = np.select([condition for _, condition in cases], range(len(cases)), len(cases))
    return pa.array([*(name for name, _ in cases), UPSERT]).take(pa.array(numbers))


def _counted_only(batch: pa.RecordBatch) -> pa.RecordBatch:
    zeros = pa.array(np.zeros(len(batch), np.int64))
    nowhere = pa.nulls(len(batch), pa.string()), pa.nulls(len(batch), pa.int64())
    return _with(batch, *nowhere, batch.column(cols.OTHER), *[zeros] * 5)


def _with(batch: pa.RecordBatch, *columns: pa.Array) -> pa.RecordBatch:
    for name, column in zip(_ADDED, columns, strict=True):
        batch = batch.append_column(name, column)
    return batch


def _mask(condition: pa.Array) -> Mask:
    """Return a condition for NumPy; NULL counts as false."""
    return np.asarray(pc.fill_null(condition, False), np.bool_)


def read_part(text: str, kind: pa.DataType) -> object:
    """Read a part of a sequence from the text that Spark wrote."""
    if pa.types.is_integer(kind):
        return int(text)
    if pa.types.is_decimal(kind):
        return Decimal(text)
    if pa.types.is_date(kind):
        return date.fromisoformat(text)
    if pa.types.is_timestamp(kind):
        # In UTC, as the session is.
        return pa.scalar(text).cast(pa.timestamp("us")).cast(kind).as_py()
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return text if is_text else bytes.fromhex(text)


def _where(mask: Mask, values: pa.Array) -> pa.Array:
    return pc.if_else(pa.array(mask), values, pa.scalar(None, values.type))
