"""Bring entries from the data files they are read from to the buckets they belong to.

Tasks of the first step read data files and write *shuffle files*: entries cut into buckets, in no
order. Tasks of the second step take some buckets each and read those from all shuffle files. So no
task holds more than SHUFFLE_FILE_ROWS entries (first step) or one bucket (second step), however
large the table is. docs/benchmarks.md has this measured against Spark's own shuffle.

Memory of a task: in the first step some 5 times the bytes of SHUFFLE_FILE_ROWS entries, which are
28 bytes each for integers, beside one batch of the columns read: 270 MB at 10 million rows, and no
more at more of them. In the second step some 5 times the bytes of a bucket: 40 MB.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO, load_file_io

from neve.errors import CorruptionError, StorageError
from neve.index.columns import IndexedColumns
from neve.index.entries import Entries, concat_entries, no_entries
from neve.index.hash_bucket import FILE, FIRST, POSITION, SECOND, SEQUENCE
from neve.index.read_keys import Kind, Part, read_part
from neve.index.root import new_path
from neve.index.shard import ShardRef, bits_for, bucket_ranges, order_by_bucket, write_shard
from neve.lake.paths import local_path
from neve.lake.spark_tasks import TaskRunner

SHUFFLE_FILE_ROWS = 1024 * 1024
_SHUFFLE_FILES_A_TASK = 8
_PARTS_A_TASK = 4
# The disk cache of machines that look keys up removes whole shards.
SHARD_ROWS = 8 * 1024 * 1024

Result = TypeVar("Result")


@dataclass(frozen=True)
class Source:
    """What tasks need to read data files and write files of the index."""

    columns: IndexedColumns
    tombstone_columns: IndexedColumns
    io_properties: Mapping[str, str]
    location: str
    """Of the index."""
    bits: int = 0
    """Top bits of the hash that make a bucket."""
    forget_before: float | None = None
    """Tombstones that were written before this time, in seconds, do not count."""

    def io(self) -> FileIO:
        return load_file_io(dict(self.io_properties), self.location)

    def columns_of(self, kind: Kind) -> IndexedColumns:
        return self.tombstone_columns if kind is Kind.TOMBSTONES else self.columns

    def write_shard(self, generation: int, buckets: Iterable[tuple[int, Entries]]) -> ShardRef:
        """Write sorted buckets, each key once, as a shard of the index."""
        path = new_path(self.location, "shard")
        return write_shard(self.io(), path, buckets, self.bits, generation)


@dataclass(frozen=True)
class ShuffleFile:
    """An Arrow file that lives for the length of a build, with a batch for each bucket."""

    path: str
    kind: Kind
    buckets: tuple[int, ...]
    """The bucket of each batch."""


@dataclass(frozen=True)
class Shuffled:
    """What the first step wrote, and some buckets of it that a task of the second step takes."""

    source: Source
    files: tuple[ShuffleFile, ...]
    buckets: Sequence[int] = ()

    def read(self, *kinds: Kind) -> Iterator[tuple[int, list[Entries]]]:
        """Return each bucket with its entries of these kinds, in no order."""
        io = self.source.io()
        readers = [(file, _open(io, file.path)) for file in self.files]
        places = [{bucket: n for n, bucket in enumerate(file.buckets)} for file in self.files]
        empty = no_entries(
            self.source.columns.sequence_type, has_second_hash=self.source.columns.has_second_hash
        )
        for bucket in self.buckets:
            by_kind: dict[Kind, list[Entries]] = {kind: [] for kind in kinds}
            for (file, reader), place in zip(readers, places, strict=True):
                if file.kind in by_kind and bucket in place:
                    by_kind[file.kind].append(_from_batch(reader.get_batch(place[bucket])))
            yield bucket, [concat_entries(parts or [empty]) for parts in by_kind.values()]


def shuffle(
    runner: TaskRunner,
    source: Source,
    parts: Sequence[Part],
    function: Callable[[Shuffled], Result],
) -> list[Result]:
    """Read parts of data files, and run a function over ranges of buckets, each bucket in one.

    Raises:
        UnsupportedError: a file cannot be indexed; its name is said.
    """
    rows = sum(part.rows for part in parts)
    source = replace(source, bits=bits_for(rows))
    written = runner.run(partial(_write_shuffle_files, source), packed(parts, runner.parallelism))
    shuffled = Shuffled(source, tuple(file for files in written for file in files))
    ranges = bucket_ranges(source.bits, max(runner.parallelism, -(-rows // SHARD_ROWS)))
    try:
        return runner.run(function, [replace(shuffled, buckets=chosen) for chosen in ranges])
    finally:
        io = source.io()
        for file in shuffled.files:
            # What cannot be removed is an orphan, and harmless.
            with suppress(OSError):
                io.delete(file.path)


def packed(parts: Sequence[Part], parallelism: int) -> list[tuple[Part, ...]]:
    """Cut large files and put small ones together, so that tasks are alike and no more than wanted.

    The largest goes first, to the task that has least.
    """
    total = sum(part.rows for part in parts)
    if not parts:
        return []
    most = max(1, min(SHUFFLE_FILE_ROWS, -(-total // (_PARTS_A_TASK * parallelism))))
    shares = [share for part in parts for share in _cut(part, most)]
    wanted = max(parallelism, -(-total // (_SHUFFLE_FILES_A_TASK * SHUFFLE_FILE_ROWS)))
    count = min(len(shares), wanted)
    tasks: list[list[Part]] = [[] for _ in range(count)]
    loads = np.zeros(count, np.int64)
    for part in sorted(shares, key=lambda share: -share.rows):
        least = int(np.argmin(loads))
        tasks[least].append(part)
        loads[least] += max(1, part.rows)
    return [tuple(task) for task in tasks]


def _cut(part: Part, most: int) -> list[Part]:
    # Positions that a vector names are few, and in any row group.
    shares = 1 if part.within is not None else max(1, -(-part.rows // most))
    return [
        replace(part, share=share, shares=shares, rows=part.rows // shares)
        for share in range(shares)
    ]


def _write_shuffle_files(source: Source, parts: tuple[Part, ...]) -> list[ShuffleFile]:
    io = source.io()
    written: list[ShuffleFile] = []
    for kind in Kind:
        held: list[Entries] = []
        for part in parts:
            if part.kind is not kind:
                continue
            for entries in read_part(io, part, source.columns_of(kind)):
                held.append(entries)
                if sum(map(len, held)) >= SHUFFLE_FILE_ROWS:
                    written.append(_write_shuffle_file(io, source, kind, held))
                    held = []
        if held:
            written.append(_write_shuffle_file(io, source, kind, held))
    return written


def _write_shuffle_file(
    io: FileIO, source: Source, kind: Kind, held: Sequence[Entries]
) -> ShuffleFile:
    """Write entries bucket by bucket. Needs the memory of all of them twice."""
    path = f"{source.location}/shuffle-{uuid.uuid4()}.arrow"
    entries = concat_entries(held)
    order, slices = order_by_bucket(entries.first, source.bits)
    batch = _as_batch(entries.take(order))
    with (
        io.new_output(path).create(overwrite=False) as stream,
        pa.ipc.new_file(stream, batch.schema) as writer,
    ):
        for rows in slices.values():
            writer.write_batch(batch.slice(rows.start, rows.stop - rows.start))
    return ShuffleFile(path, kind, tuple(slices))


def _open(io: FileIO, path: str) -> Any:
    try:
        local = local_path(path)
        return pa.ipc.open_file(pa.memory_map(str(local)) if local else io.new_input(path).open())
    except FileNotFoundError as error:
        raise CorruptionError(f"{path} is missing: it was taken for an orphan") from error
    except (OSError, pa.ArrowInvalid) as error:
        raise StorageError(f"{path} cannot be read: {error}", retryable=True) from error


def _as_batch(entries: Entries) -> pa.RecordBatch:
    columns: dict[str, Any] = {FIRST: entries.first}
    if entries.second is not None:
        columns[SECOND] = entries.second
    columns |= {FILE: entries.file, POSITION: entries.position, SEQUENCE: entries.sequence}
    return pa.RecordBatch.from_pydict(columns)


def _from_batch(batch: pa.RecordBatch) -> Entries:
    return Entries(
        batch.column(FIRST).to_numpy(),
        batch.column(SECOND).to_numpy() if SECOND in batch.schema.names else None,
        batch.column(FILE).to_numpy(),
        batch.column(POSITION).to_numpy(),
        batch.column(SEQUENCE),
    )
