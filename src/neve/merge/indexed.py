"""Finds rows by the index: what changed is looked up, and the mirror is not read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyspark.sql import functions as F
from pyspark.sql import types as T

from neve.errors import CorruptionError, StorageError
from neve.index.cache import process_cache
from neve.index.entries import TOMBSTONE, SequenceType
from neve.index.hashing import PkHash, compute_pk_hash
from neve.index.root import Root
from neve.index.search import Found, in_order, lookup
from neve.index.sequences import encode_sequences
from neve.index.shard import bucket_of
from neve.index.stored import local_path
from neve.lake.frames import map_batches
from neve.merge import names
from neve.merge import transforms as tr

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from neve.index.maintain import Refreshed

BUCKET = "_neve_bucket"
# A task takes so many; more make more tasks, so that its memory stays bounded.
EVENTS_A_TASK = 250_000
ROWS_A_LOOKUP = 1 << 16
# In place of a number of cache hits: the index could not be read, and nothing it says counts.
BROKEN = -(1 << 40)


@dataclass(frozen=True)
class IndexLocator:
    """Looks keys up in an index of exactly the mirror's snapshot, a bucket in one task only."""

    root: Root
    io_properties: Mapping[str, str]
    partitions: int
    # Of the mirror's key and sequence columns, as Arrow has them.
    types: pa.Schema

    name = "index"

    @property
    def partition_by(self) -> tuple[str, ...]:
        return (BUCKET,) if self._is_remote else ()

    @property
    def _is_remote(self) -> bool:
        """A mapped file costs a task nothing but the pages it touches; a remote one is read."""
        return any(local_path(shard.path) is None for shard in self.root.shards)

    def distributed(self, rows: DataFrame, shape: tr.Shape) -> DataFrame:
        """Bring the events of a bucket together, where reading it costs."""
        if not self._is_remote:
            return rows
        bits, seed, keys = self.root.bits, self.root.seed, list(shape.keys)
        parts = min(self.partitions, 1 << bits)

        def with_bucket(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
            for batch in batches:
                hashes = compute_pk_hash([batch.column(key) for key in keys], seed)
                yield batch.append_column(BUCKET, pa.array(bucket_of(hashes.first, bits)))

        schema = T.StructType([*rows.schema, T.StructField(BUCKET, T.LongType())])
        return map_batches(rows, with_bucket, schema).repartition(parts, BUCKET)

    def located(self, reduced: DataFrame, shape: tr.Shape) -> DataFrame:
        task = _Lookup(
            self.root.to_json(),
            dict(self.io_properties),
            shape.keys,
            shape.sequence,
            self.root.seed,
        )
        kind = self._sequence_type
        schema = T.StructType(
            [
                *reduced.schema,
                T.StructField(names.SEQUENCE, kind),
                T.StructField(names.CURRENT, kind),
                T.StructField(names.BURIED, kind),
                T.StructField(names.ROW_FILE, T.StringType()),
                T.StructField(names.ROW_POSITION, T.LongType()),
                T.StructField(names.CACHE_HITS, T.LongType()),
            ]
        )
        return map_batches(reduced, task, schema)

    def sequence(self, shape: tr.Shape) -> Column:  # noqa: ARG002 - as the port has it
        return F.col(names.SEQUENCE)

    def barrier(self, barrier: tuple[str, ...] | None, shape: tr.Shape) -> Column | None:
        if barrier is None:
            return None
        columns = [
            pa.array([_value(text, self.types.field(name).type)], self.types.field(name).type)
            for text, name in zip(barrier, shape.sequence, strict=True)
        ]
        encoded = encode_sequences(columns)[0].as_py()
        return F.lit(bytearray(encoded) if isinstance(encoded, bytes) else encoded)

    @property
    def _sequence_type(self) -> T.DataType:
        is_integer = self.root.sequence_type is SequenceType.INTEGER
        return T.LongType() if is_integer else T.BinaryType()


def index_locator(session: SparkSession, index: Refreshed, events: int | None) -> IndexLocator:
    """Return the locator of an index that is of the snapshot a batch is decided on.

    The session is the batch's own. Nothing in it is of unknown size, as joins are, so planning the
    second stage only after the first has run would be waiting for nothing.
    """
    table = index.mirror.table
    cores = session.sparkContext.defaultParallelism
    partitions = max(cores, -(-(events or 0) // EVENTS_A_TASK))
    session.conf.set("spark.sql.adaptive.enabled", "false")
    session.conf.set("spark.sql.shuffle.partitions", str(partitions))
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(ROWS_A_LOOKUP))
    return IndexLocator(
        index.root,
        dict(table.io.properties),
        partitions,
        schema_to_pyarrow(table.schema(), include_field_ids=False),
    )


@dataclass(frozen=True)
class _Lookup:
    """The task: everything in it can be pickled."""

    root_json: str
    io_properties: dict[str, str]
    keys: tuple[str, ...]
    sequence: tuple[str, ...]
    seed: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in batches:
            if len(batch):
                yield self._located(batch)

    def _nothing(self, hashes: PkHash) -> Found:
        kind = Root.from_json(self.root_json).sequence_type
        return in_order(len(hashes.first), [], [], frozenset(), kind)

    def _located(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        hashes = compute_pk_hash([batch.column(key) for key in self.keys], self.seed)
        before = process_cache.hits
        try:
            found = lookup(self.root_json, self.io_properties, hashes.first, hashes.second)
        except (CorruptionError, StorageError):
            # Told as a number, since what a task raises reaches the driver as text.
            found, before = self._nothing(hashes), process_cache.hits - BROKEN
        own = encode_sequences([batch.column(name) for name in self.sequence])
        is_row = pa.array(found.found & (found.file != TOMBSTONE))
        is_buried = pa.array(found.found & (found.file == TOMBSTONE))
        sequence = found.sequence.cast(own.type)
        file = pa.array(found.file).cast(pa.string())
        columns = {
            names.SEQUENCE: own,
            names.CURRENT: _where(is_row, sequence),
            names.BURIED: _where(is_buried, sequence),
            names.ROW_FILE: _where(is_row, file),
            names.ROW_POSITION: _where(is_row, pa.array(found.position)),
            names.CACHE_HITS: pa.array([process_cache.hits - before] + [0] * (len(batch) - 1)),
        }
        for name, column in columns.items():
            batch = batch.append_column(name, _plain(column))
        return batch


def _value(text: str, kind: pa.DataType) -> object:
    """Read a part of a sequence from the text that Spark wrote."""
    if pa.types.is_integer(kind):
        return int(text)
    if pa.types.is_decimal(kind):
        return Decimal(text)
    if pa.types.is_date(kind):
        return date.fromisoformat(text)
    if pa.types.is_timestamp(kind):
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=timezone.utc) if kind.tz else moment
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return text if is_text else bytes.fromhex(text)


def _where(mask: pa.Array, values: pa.Array) -> pa.Array:
    return pc.if_else(mask, values, pa.scalar(None, values.type))


def _plain(column: pa.Array) -> pa.Array:
    # Spark takes binary, and not the large kind.
    return column.cast(pa.binary()) if column.type == pa.large_binary() else column
