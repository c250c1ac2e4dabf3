"""Build a table's index anew, or bring it to a later snapshot by what changed between the two.

Rows never pass through the JVM: Spark hands out the names of files, and tasks read and write.

An index is a function of the table: of each key, the row it has and the greatest sequence of its
row and tombstones. So it does not matter in how many commits a key was moved, updated and deleted:
what counts is which places it has now, and whether the place the index knows is still one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neve.index.cache import BucketCache
from neve.index.entries import (
    ABSENT,
    SEVERAL,
    TOMBSTONE,
    Entries,
    Mask,
    concat_entries,
    find_rows,
    make_entries,
)
from neve.index.read_keys import Kind, Part
from neve.index.resolve import greater, mark_several, resolve
from neve.index.root import Root
from neve.index.search import IndexReader, SearchResult
from neve.index.shard import ShardRef
from neve.index.shuffle import Shuffled, Source, shuffle
from neve.lake.live_files import FileChanges, LiveFile
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
    parts = [*row_parts(files, ordinals), *tombstone_parts(tombstones, source)]
    shards = shuffle(runner, source, parts, _build_buckets)
    bits = max(shard.bits for shard in shards)
    return replace(root.with_shards(shards), bits=bits)


def row_parts(files: Iterable[LiveFile], ordinals: dict[str, int]) -> list[Part]:
    """Return what to read for the live rows of data files."""
    return [
        Part(Kind.ROWS, ordinals[file.path], file.path, file.record_count, without=file.vector)
        for file in files
    ]


def tombstone_parts(files: Iterable[LiveFile], source: Source) -> list[Part]:
    """Return what to read for the tombstones in data files of their table."""
    return [
        Part(
            Kind.TOMBSTONES,
            TOMBSTONE,
            file.path,
            file.record_count,
            without=file.vector,
            forget_before=source.forget_before,
        )
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


@dataclass(frozen=True)
class _RowsIndexed:
    """What became of the rows of changed files."""

    shards: tuple[ShardRef, ...] = ()
    moved: int = 0
    """Rows that replace one the index knew, which is no longer there."""
    lowered: int = 0
    """Those of them whose sequence is lower: a tombstone may be the greater one now."""

    def __add__(self, other: _RowsIndexed) -> _RowsIndexed:
        return _RowsIndexed(
            self.shards + other.shards, self.moved + other.moved, self.lowered + other.lowered
        )


def refresh_root(
    choose_runner: Callable[[int], TaskRunner],
    source: Source,
    root: Root,
    changes: FileChanges,
    added_tombstones: Sequence[LiveFile],
    all_tombstones: Callable[[], Sequence[LiveFile]],
) -> Root:
    """Return a root with the entries of a later snapshot; which one that is the caller says.

    Not atomic: until somebody names the root, its new shards are orphans.

    Args:
        choose_runner: where so many rows are to be read.
        changes: of the table's files, since the snapshot that the root names.
        added_tombstones: files of tombstones that were added since.
        all_tombstones: all files of tombstones; they are read only if a key lost its row and has
            none now, so that an older tombstone counts again.

    Raises:
        UnsupportedError: a file cannot be indexed.
        CorruptionError: a shard of the root is missing, or not what was written.
    """
    root, indexed = _with_rows(choose_runner, source, root, changes)
    lost = _rows_lost(changes) - indexed.moved
    tombstones = all_tombstones() if lost > 0 or indexed.lowered else added_tombstones
    if not tombstones:
        return root
    runner = choose_runner(sum(file.record_count for file in tombstones))
    parts = tombstone_parts(tombstones, source)
    shards = shuffle(runner, source, parts, partial(_index_tombstones, root))
    return root.with_shards(shards)


def _rows_lost(changes: FileChanges) -> int:
    """Return how many live rows are no longer where they were; rather too many than too few."""
    lost = sum(
        file.record_count - (file.vector.cardinality if file.vector else 0)
        for file in changes.removed
    )
    return (
        lost
        + sum(after.cardinality for _, after in changes.vectors.values() if after)
        - sum(
            # A vector holds all that the one before it held.
            min(before.cardinality, after.cardinality)
            for before, after in changes.vectors.values()
            if before and after
        )
    )


def _with_rows(
    choose_runner: Callable[[int], TaskRunner], source: Source, before: Root, changes: FileChanges
) -> tuple[Root, _RowsIndexed]:
    root = before.without_files(file.path for file in changes.removed)
    root, ordinals = root.with_files([*(file.path for file in changes.added), *changes.vectors])
    parts = [*row_parts(changes.added, ordinals), *_vector_parts(changes, ordinals)]
    if not parts:
        return root, _RowsIndexed()
    runner = choose_runner(sum(part.rows for part in parts))
    work = partial(_index_rows, before, root.removed_files - before.removed_files)
    total = sum(shuffle(runner, source, parts, work), _RowsIndexed())
    return root.with_shards(total.shards), total


def _vector_parts(changes: FileChanges, ordinals: dict[str, int]) -> Iterator[Part]:
    """Return what to read for positions that are deleted now, or no longer."""
    for path, (before, after) in changes.vectors.items():
        if after is not None:
            rows = after.cardinality
            yield Part(Kind.REMOVED, ordinals[path], path, rows, within=after, without=before)
        if before is not None:
            rows = before.cardinality
            yield Part(Kind.ROWS, ordinals[path], path, rows, within=before, without=after)


def _index_rows(before: Root, left_files: frozenset[int], shuffled: Shuffled) -> _RowsIndexed:
    """Write the entries of rows that came, moved or went, in a task."""
    index = IndexReader(before, shuffled.source.io(), BucketCache())
    total = _RowsIndexed()

    def changed() -> Iterator[tuple[int, Entries]]:
        nonlocal total
        for bucket, (read, deleted) in shuffled.read(Kind.ROWS, Kind.REMOVED):
            rows = resolve(read, shuffled.source.bits).entries
            removed = resolve(deleted, shuffled.source.bits).entries
            placed, counts = _placed(index, left_files, rows, removed)
            total = total + counts
            absent = _absent(index, rows, removed)
            yield bucket, resolve(concat_entries([placed, absent])).entries

    shard = shuffled.source.write_shard(before.next_generation, changed())
    return total + _RowsIndexed((shard,))


def _placed(
    index: IndexReader, left_files: frozenset[int], rows: Entries, removed: Entries
) -> tuple[Entries, _RowsIndexed]:
    """Return the entries of rows that are at a new place, and how many of them replace a row."""
    old = index.search_values(rows.first, rows.second)
    was_row = old.file >= 0
    has_left = np.isin(old.file, list(left_files)) | _is_at(rows, old)
    at = find_rows(removed.first, removed.second, rows.first, rows.second)
    if len(removed):
        has_left |= (at >= 0) & _is_at(removed.take(np.maximum(at, 0)), old)
    was_greater = greater(old.sequence, rows.sequence)
    # A tombstone of a greater sequence goes on counting beside the row.
    keeps = pa.array(was_greater & (old.file == TOMBSTONE))
    sequence = pc.if_else(keeps, old.sequence, rows.sequence)
    counts = _RowsIndexed(
        moved=int((was_row & has_left).sum()), lowered=int((was_row & has_left & was_greater).sum())
    )
    has_several = (old.file == SEVERAL) | (was_row & ~has_left)
    return mark_several(replace(rows, sequence=sequence), has_several), counts


def _absent(index: IndexReader, rows: Entries, removed: Entries) -> Entries:
    """Return entries that hide those of removed rows whose keys have no row now."""
    without_row = find_rows(rows.first, rows.second, removed.first, removed.second) < 0
    removed = removed.take(without_row)
    old = index.search_values(removed.first, removed.second)
    hidden = removed.take((old.file >= 0) & _is_at(removed, old))
    return make_entries(hidden.first, hidden.second, ABSENT, -1, hidden.sequence)


def _is_at(entries: Entries, old: SearchResult) -> Mask:
    """Tell which entries are at the place that the index knew."""
    same: Mask = (entries.file == old.file) & (entries.position == old.position)
    return same


def _index_tombstones(root: Root, shuffled: Shuffled) -> ShardRef:
    """Write entries where tombstones say more than the index does, in a task."""
    index = IndexReader(root, shuffled.source.io(), BucketCache())

    def changed() -> Iterator[tuple[int, Entries]]:
        for bucket, (read,) in shuffled.read(Kind.TOMBSTONES):
            tombstones = resolve(read, shuffled.source.bits).entries
            old = index.search_values(tombstones.first, tombstones.second)
            has_row = (old.file >= 0) | (old.file == SEVERAL)
            file = np.where(has_row, old.file, TOMBSTONE).astype(np.int32)
            position = np.where(has_row, old.position, tombstones.position)
            entries = replace(tombstones, file=file, position=position)
            is_greater = greater(tombstones.sequence, old.sequence)
            is_later = (old.file == TOMBSTONE) & (tombstones.position > old.position)
            is_later &= ~greater(old.sequence, tombstones.sequence)
            yield bucket, entries.take(~old.has_entry | is_greater | is_later)

    return shuffled.source.write_shard(root.next_generation, changed())
