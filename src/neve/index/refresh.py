"""Bring an index to a later snapshot of its table by what changed between the two.

An index is a function of the table: of each key, the row it has and the greatest sequence of its
row and tombstones. So it does not matter in how many commits a key was moved, updated and deleted:
what counts is which places it has now, and whether the place the index knows is still one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from neve.index.build import row_parts, tombstone_parts
from neve.index.cache import BucketCache
from neve.index.entries import (
    GONE,
    SEVERAL,
    TOMBSTONE,
    Entries,
    Integers,
    concat_entries,
    find_rows,
    make_entries,
)
from neve.index.read_keys import Kind, Part
from neve.index.resolve import greater, mark_several, resolve
from neve.index.root import Root
from neve.index.runs import RunReader, Runs, Source, by_bucket, write_buckets_of, write_runs
from neve.index.search import IndexReader
from neve.index.shard import ShardRef
from neve.lake.live_files import FileChanges, LiveFile
from neve.lake.spark_tasks import TaskRunner


@dataclass(frozen=True)
class RowsIndexed:
    """What became of the rows of changed files."""

    moved: int = 0
    """Rows that stand for one the index knew, which is no longer there."""
    lowered: int = 0
    """Those of them whose sequence is lower: a tombstone may be the greater one now."""
    shards: tuple[ShardRef, ...] = ()

    def __add__(self, other: RowsIndexed) -> RowsIndexed:
        return RowsIndexed(
            self.moved + other.moved,
            self.lowered + other.lowered,
            self.shards + other.shards,
        )


def refresh_root(
    choose: Callable[[int], TaskRunner],
    source: Source,
    root: Root,
    changes: FileChanges,
    buried: Sequence[LiveFile],
    all_buried: Callable[[], Sequence[LiveFile]],
) -> Root:
    """Return a root with the entries of a later snapshot; which one that is the caller says.

    Not atomic: until somebody names the root, its new shards are orphans.

    Args:
        choose: where so many rows are to be read.
        changes: of the table's files, since the snapshot that the root names.
        buried: files of tombstones that were added since.
        all_buried: all files of tombstones; they are read only if a key lost its row and has none
            now, so that an older tombstone counts again.

    Raises:
        UnsupportedError: a file cannot be indexed.
        CorruptionError: a shard of the root is missing, or not what was written.
    """
    root, done = _with_rows(choose, source, root, changes)
    lost = _rows_lost(changes) - done.moved
    tombstones = all_buried() if lost > 0 or done.lowered else buried
    if not tombstones:
        return root
    runner = choose(sum(one.record_count for one in tombstones))
    runs = write_runs(runner, source, tombstone_parts(tombstones))
    try:
        shards = by_bucket(runner, runs, partial(_bury, runs, root), runs.rows_of(Kind.TOMBSTONES))
    finally:
        runs.delete()
    return root.with_shards([one for one in shards if one.rows])


def _rows_lost(changes: FileChanges) -> int:
    """Return how many live rows are no longer where they were; rather too many than too few."""
    lost = sum(
        one.record_count - (one.vector.cardinality if one.vector else 0) for one in changes.removed
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
    choose: Callable[[int], TaskRunner], source: Source, before: Root, changes: FileChanges
) -> tuple[Root, RowsIndexed]:
    root = before.without_files(one.path for one in changes.removed)
    root, ordinals = root.with_files([*(one.path for one in changes.added), *changes.vectors])
    parts = [*row_parts(changes.added, ordinals), *_vector_parts(changes, ordinals)]
    if not parts:
        return root, RowsIndexed()
    rows = sum(part.rows for part in parts)
    runner = choose(rows)
    runs = write_runs(runner, source, parts)
    try:
        work = partial(_index_buckets, runs, before, root.dead - before.dead)
        done = by_bucket(runner, runs, work, rows)
    finally:
        runs.delete()
    total = sum(done, RowsIndexed())
    return root.with_shards([one for one in total.shards if one.rows]), total


def _vector_parts(changes: FileChanges, ordinals: dict[str, int]) -> Iterator[Part]:
    """Return what to read for positions that are deleted now, or no longer."""
    for path, (before, after) in changes.vectors.items():
        if after is not None:
            rows = after.cardinality
            yield Part(Kind.REMOVED, ordinals[path], path, rows, within=after, without=before)
        if before is not None:
            rows = before.cardinality
            yield Part(Kind.ROWS, ordinals[path], path, rows, within=before, without=after)


def _index_buckets(
    runs: Runs, before: Root, dead: frozenset[int], buckets: Sequence[int]
) -> RowsIndexed:
    reader = RunReader(runs)
    known = IndexReader(before, runs.source.io(), BucketCache())
    total = RowsIndexed()

    def changed() -> Iterator[tuple[int, Entries]]:
        nonlocal total
        for bucket in buckets:
            rows = resolve(reader.read(bucket, Kind.ROWS), runs.source.bits).entries
            removed = resolve(reader.read(bucket, Kind.REMOVED), runs.source.bits).entries
            written, counts = _placed(known, dead, rows, removed)
            hidden = _hidden(known, rows, removed)
            total = total + counts
            yield bucket, resolve(concat_entries([written, hidden])).entries

    shard = write_buckets_of(runs.source, before.next_generation, changed())
    return replace(total, shards=(shard,))


def _placed(
    known: IndexReader, dead: frozenset[int], rows: Entries, removed: Entries
) -> tuple[Entries, RowsIndexed]:
    """Return the entries of rows that are at a new place, and what they stand for."""
    old = known.search_values(rows.first, rows.second)
    is_live = old.file >= 0
    is_left = np.isin(old.file, list(dead)) | _is_at(rows, old.file, old.position)
    at = find_rows(removed.first, removed.second, rows.first, rows.second)
    if len(removed):
        same = (removed.file[at] == old.file) & (removed.position[at] == old.position)
        is_left |= (at >= 0) & same
    has_older = greater(old.sequence, rows.sequence)
    # A tombstone of a greater sequence goes on counting beside the row.
    keeps = pa.array(has_older & (old.file == TOMBSTONE))
    sequence = pc.if_else(keeps, old.sequence, rows.sequence)
    counts = RowsIndexed(
        moved=int((is_live & is_left).sum()),
        lowered=int((is_live & is_left & has_older).sum()),
    )
    has_several = (old.file == SEVERAL) | (is_live & ~is_left)
    return mark_several(replace(rows, sequence=sequence), has_several), counts


def _hidden(known: IndexReader, rows: Entries, removed: Entries) -> Entries:
    """Return entries that hide those of removed rows whose keys have no row now."""
    alone = removed.take(find_rows(rows.first, rows.second, removed.first, removed.second) < 0)
    old = known.search_values(alone.first, alone.second)
    gone = alone.take((old.file >= 0) & _is_at(alone, old.file, old.position))
    return make_entries(gone.first, gone.second, GONE, -1, gone.sequence)


def _is_at(
    entries: Entries, file: npt.NDArray[np.int32], position: Integers
) -> npt.NDArray[np.bool_]:
    same: npt.NDArray[np.bool_] = (entries.file == file) & (entries.position == position)
    return same


def _bury(runs: Runs, root: Root, buckets: Sequence[int]) -> ShardRef:
    """Write entries where tombstones say more than the index does."""
    reader = RunReader(runs)
    known = IndexReader(root, runs.source.io(), BucketCache())

    def changed() -> Iterator[tuple[int, Entries]]:
        for bucket in buckets:
            buried = resolve(reader.read(bucket, Kind.TOMBSTONES), runs.source.bits).entries
            old = known.search_values(buried.first, buried.second)
            has_row = (old.file >= 0) | (old.file == SEVERAL)
            told = Entries(
                buried.first,
                buried.second,
                np.where(has_row, old.file, TOMBSTONE).astype(np.int32),
                old.position,
                buried.sequence,
            )
            yield bucket, told.take(~old.found | greater(buried.sequence, old.sequence))

    return write_buckets_of(runs.source, root.next_generation, changed())
