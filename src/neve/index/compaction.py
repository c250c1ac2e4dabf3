"""Add runs to an index, and merge them before they are many: policy, pure; and what writes.

Each merge of the mirror appends a run, a *delta*. A lookup asks every run, so there may be few; and
rewriting must cost little for each entry. So runs of about one size are merged when they are four,
and all of them into the base when they have grown to half of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from pyiceberg.io import FileIO, load_file_io

from neve.index.cache import BucketCache
from neve.index.entries import Entries, concat_entries, merge_entries
from neve.index.root import Root, new_path
from neve.index.search import IndexReader
from neve.index.shard import ShardRef, bits_for, split_buckets, write_shard

MOST_DELTAS = 8
FANOUT = 4
SMALL_ROWS = 64 * 1024
BASE_SHARE = 2
"""The base is rewritten when deltas have one part in this many of its rows."""


@dataclass(frozen=True)
class Compaction:
    """Which generations, neighbours in age, become one."""

    generations: tuple[int, ...]
    bits: int
    is_full: bool
    """Whether nothing older lies underneath, so that what only hides something goes."""
    rows: int = 0

    @property
    def buckets(self) -> range:
        return range(1 << self.bits)


def plan_compaction(root: Root, *, force: bool = False) -> Compaction | None:
    """Say what to merge now, if anything; with `force` everything into one base."""
    runs = [
        (shards[0].generation, sum(one.rows for one in shards)) for shards in root.generations()
    ]
    if len(runs) < 2 and not (force and runs and root.dead):
        return None
    span = (0, len(runs)) if force else _runs_to_merge([rows for _, rows in runs])
    if span is None:
        return None
    chosen = runs[slice(*span)]
    rows = sum(rows for _, rows in chosen)
    generations = tuple(one for one, _ in chosen)
    return Compaction(generations, bits_for(rows), is_full=span[0] == 0, rows=rows)


def _runs_to_merge(rows: Sequence[int]) -> tuple[int, int] | None:
    """Return the runs to merge, as a slice."""
    base, deltas = rows[0], rows[1:]
    if sum(deltas) * BASE_SHARE >= base:
        return 0, len(rows)
    levels = [_level(count) for count in deltas]
    for level in sorted(set(levels)):
        start = len(deltas)
        while start and levels[start - 1] <= level:
            start -= 1
        if levels[start:].count(level) >= FANOUT:
            return 1 + start, len(rows)
    if len(deltas) <= MOST_DELTAS:
        return None
    pairs = [older + newer for older, newer in pairwise(deltas)]
    smallest = 1 + pairs.index(min(pairs))
    return smallest, smallest + 2


def _level(rows: int) -> int:
    level, limit = 0, SMALL_ROWS
    while rows > limit:
        level, limit = level + 1, limit * FANOUT
    return level


def add_delta(io: FileIO, root: Root, location: str, entries: Entries, snapshot_id: int) -> Root:
    """Write entries as the newest run and return the root that has it. The last of a key wins.

    Not atomic: until its root counts, the new shard is an orphan.
    """
    if not len(entries):
        return root.with_shards((), snapshot_id)
    shard = write_run(io, location, entries, root.next_generation)
    return root.with_shards([shard], snapshot_id)


def write_run(
    io: FileIO, location: str, entries: Entries, generation: int, bits: int | None = None
) -> ShardRef:
    """Write entries, in any order, as a shard. Shards of one generation must share no key."""
    bits = bits_for(len(entries)) if bits is None else bits
    path = new_path(location, "shard")
    return write_shard(io, path, split_buckets(entries, bits), bits, generation)


def compact_buckets(
    root_json: str,
    io_properties: Mapping[str, str],
    plan: Compaction,
    location: str,
    buckets: Sequence[int],
) -> ShardRef:
    """Merge some buckets of a compaction into a shard, in a task; `with_compacted` ends it."""
    io = load_file_io(dict(io_properties), location)
    merged = merged_buckets(io, Root.from_json(root_json), plan, buckets)
    path = new_path(location, "shard")
    return write_shard(io, path, merged, plan.bits, plan.generations[-1])


def merged_buckets(
    io: FileIO, root: Root, plan: Compaction, buckets: Iterable[int]
) -> Iterator[tuple[int, Entries]]:
    """Return the merged entries of each bucket, one bucket at a time."""
    # Of its own: what is read once must not push out what lookups need.
    reader = IndexReader(root, io, BucketCache())
    runs = [run for run in root.generations() if run[0].generation in plan.generations]
    dead = np.array(sorted(root.dead), np.int32)
    for bucket in buckets:
        parts = [
            concat_entries([reader.read_range(shard, bucket, plan.bits) for shard in run])
            for run in runs
        ]
        merged = merge_entries(parts, drop_gone=plan.is_full)
        yield bucket, renumbered(merged, dead) if plan.is_full else merged


def renumbered(entries: Entries, dead: np.ndarray[tuple[int], np.dtype[np.int32]]) -> Entries:
    """Drop entries of dead files, and count the other files anew without those."""
    if not len(dead):
        return entries
    alive = entries.take(~np.isin(entries.file, dead))
    shift = np.searchsorted(dead, alive.file)
    return replace(alive, file=(alive.file - shift).astype(np.int32))


def with_compacted(root: Root, plan: Compaction, shards: Sequence[ShardRef]) -> Root:
    """Return the root in which these shards stand in place of those that were merged."""
    kept = [one for one in root.shards if one.generation not in plan.generations]
    written = [one for one in shards if one.rows]
    together = tuple(sorted((*kept, *written), key=lambda one: one.generation))
    if not plan.is_full:
        return replace(root, shards=together)
    files = tuple(path for number, path in enumerate(root.files) if number not in root.dead)
    return replace(root, shards=together, files=files, dead=frozenset(), bits=plan.bits)
