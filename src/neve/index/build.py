"""Build a table's index anew: one entry for every key that has a row or a tombstone.

Rows never pass through the JVM: Spark hands out the names of files, and tasks read and write.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from neve.index.entries import TOMBSTONE, concat_entries
from neve.index.read_keys import Kind, Part
from neve.index.resolve import resolve
from neve.index.root import Root
from neve.index.shard import ShardRef
from neve.index.shuffle import Shuffled, Source, shuffle
from neve.lake.live_files import LiveFile
from neve.lake.spark_tasks import TaskRunner


def build_root(
    runner: TaskRunner,
    source: Source,
    root: Root,
    files: Sequence[LiveFile],
    tombstones: Sequence[LiveFile],
) -> Root:
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
    shards = shuffle(runner, source, parts, _build_buckets)
    bits = max(shard.bits for shard in shards)
    return replace(root.with_shards(shards), bits=bits)


def row_parts(files: Iterable[LiveFile], ordinals: dict[str, int]) -> list[Part]:
    """Return what to read for the live rows of data files."""
    return [
        Part(Kind.ROWS, ordinals[file.path], file.path, file.record_count, without=file.vector)
        for file in files
    ]


def tombstone_parts(files: Iterable[LiveFile]) -> list[Part]:
    """Return what to read for the tombstones in data files of their table."""
    return [
        Part(Kind.TOMBSTONES, TOMBSTONE, file.path, file.record_count, without=file.vector)
        for file in files
    ]


def _build_buckets(shuffled: Shuffled) -> ShardRef:
    """Write a shard of some buckets, in a task."""
    bits = shuffled.source.bits
    resolved = (
        (bucket, resolve(concat_entries(read), bits).entries)
        for bucket, read in shuffled.read(Kind.TOMBSTONES, Kind.ROWS)
    )
    return shuffled.source.write_shard(1, resolved)
