"""Make a table's index anew: every live row and every tombstone, each key once.

Rows never pass through the JVM: Spark hands out the names of files, and tasks read and write.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from neve.index.entries import TOMBSTONE, Entries
from neve.index.read_keys import Kind, Part
from neve.index.resolve import resolve
from neve.index.root import Root
from neve.index.runs import RunReader, Runs, Source, by_bucket, write_buckets_of, write_runs
from neve.index.shard import ShardRef
from neve.lake.live_files import LiveFile
from neve.lake.spark_tasks import TaskRunner

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Built:
    """A new index of a table, not yet named by anything."""

    root: Root
    rows: int
    tombstones: int
    files: int


@dataclass(frozen=True)
class _BuiltBuckets:
    shard: ShardRef
    tombstones: int


def build_root(
    runner: TaskRunner,
    source: Source,
    root: Root,
    files: Sequence[LiveFile],
    tombstones: Sequence[LiveFile],
) -> Built:
    """Write the shards of an index and return its root.

    Not atomic: until somebody names the root, its shards are orphans.

    Args:
        root: what the index is of; it has neither files nor shards yet.
        files: the data files of the snapshot that the root names.
        tombstones: the same of the table of tombstones.

    Raises:
        UnsupportedError: a file cannot be indexed.
    """
    root, ordinals = root.with_files(file.path for file in files)
    parts = [*row_parts(files, ordinals), *tombstone_parts(tombstones)]
    runs = write_runs(runner, source, parts)
    try:
        rows = sum(part.rows for part in parts)
        built = by_bucket(runner, runs, partial(_build_buckets, runs), rows)
    finally:
        runs.delete()
    shards = [one.shard for one in built if one.shard.rows]
    buried = sum(one.tombstones for one in built)
    root = replace(root.with_shards(shards), bits=runs.source.bits)
    return Built(root, root.rows - buried, buried, len(files))


def row_parts(files: Iterable[LiveFile], ordinals: dict[str, int]) -> list[Part]:
    """Return what to read for the live rows of data files."""
    return [
        Part(Kind.ROWS, ordinals[one.path], one.path, one.record_count, without=one.vector)
        for one in files
    ]


def tombstone_parts(files: Iterable[LiveFile]) -> list[Part]:
    """Return what to read for the tombstones in data files of their table."""
    return [
        Part(Kind.TOMBSTONES, TOMBSTONE, one.path, one.record_count, without=one.vector)
        for one in files
    ]


def _build_buckets(runs: Runs, buckets: Sequence[int]) -> _BuiltBuckets:
    reader = RunReader(runs)
    tombstones = 0

    def resolved() -> Iterator[tuple[int, Entries]]:
        nonlocal tombstones
        for bucket in buckets:
            read = reader.read(bucket, Kind.TOMBSTONES, Kind.ROWS)
            entries = resolve(read, runs.source.bits).entries
            tombstones += int((entries.file == TOMBSTONE).sum())
            yield bucket, entries

    shard = write_buckets_of(runs.source, 1, resolved())
    return _BuiltBuckets(shard, tombstones)
