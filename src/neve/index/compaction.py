"""Add deltas to an index, and merge them before they are many.

The oldest generation is the *base*. Each merge of the mirror appends a further one, a *delta*. A
lookup asks every generation, so there may be few of them; and rewriting must cost little for each
entry. So four deltas of about one size are merged into one, and all deltas into the base when they
have grown to half of it.

The base keeps the numbers of files for as long as it is not rewritten. Files that came later are
named by deltas alone: where all deltas are merged, those that left the table again are forgotten,
and the others numbered anew. So a root names few files that are no longer there, also where the
same keys change for ever and deltas never grow to half of the base.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from pyiceberg.io import FileIO, load_file_io

from neve.index.cache import BucketCache
from neve.index.entries import ABSENT, Entries
from neve.index.root import Root, new_path
from neve.index.search import IndexReader
from neve.index.shard import ShardRef, bits_for, split_buckets, write_shard

MOST_DELTAS = 8
FANOUT = 4
SMALL_ROWS = 64 * 1024
BASE_SHARE = 2
"""The base is rewritten when deltas have one part in this many of its rows."""
MOST_REMOVED_FILES = 1024
"""Of more files that came after the base and left, all deltas are merged to forget them."""


@dataclass(frozen=True)
class Compaction:
    """Which generations, one after the other, become one."""

    generations: tuple[int, ...]
    bits: int
    is_full: bool
    """Whether the base is among them, so that entries which only hide older ones go."""
    rows: int = 0
    renumbered_from: int | None = None
    """Of files from this number on, those that left the table are forgotten; None: of none."""

    def forgotten_files(self, root: Root) -> frozenset[int]:
        """Return the numbers that no entry has any more once this is done."""
        if self.renumbered_from is None:
            return frozenset()
        return frozenset(file for file in root.removed_files if file >= self.renumbered_from)


def plan_compaction(root: Root, *, force: bool = False) -> Compaction | None:
    """Return what to merge now, if anything; with `force` everything into one base."""
    sizes = [
        (shards[0].generation, sum(shard.rows for shard in shards)) for shards in root.generations()
    ]
    if len(sizes) < 2 and not (force and sizes and root.removed_files):
        return None
    counts = [rows for _, rows in sizes]
    span = slice(0, len(sizes)) if force else _choose(counts) or _choose_to_forget(root, counts)
    if span is None:
        return None
    rows = sum(counts[span])
    return Compaction(
        tuple(generation for generation, _ in sizes[span]),
        bits_for(rows),
        is_full=span.start == 0,
        rows=rows,
        renumbered_from=_renumbered_from(root, span, len(sizes)),
    )


def _renumbered_from(root: Root, span: slice, generations: int) -> int | None:
    if span.start == 0:
        return 0
    return root.base_files if span == slice(1, generations) else None


def _choose_to_forget(root: Root, rows: Sequence[int]) -> slice | None:
    """Choose all deltas, once so many files left that each of them costs few entries."""
    first = root.base_files or 0
    removed = sum(file >= first for file in root.removed_files)
    if removed <= max(MOST_REMOVED_FILES, sum(rows[1:]) // SMALL_ROWS):
        return None
    # Of an older version's root, the base may name any file.
    return slice(0 if root.base_files is None else 1, len(rows))


def _choose(rows: Sequence[int]) -> slice | None:
    """Choose which generations to merge, given the rows of each, the base first."""
    base, deltas = rows[0], rows[1:]
    if sum(deltas) * BASE_SHARE >= base:
        return slice(0, len(rows))
    levels = [_level(count) for count in deltas]
    for level in sorted(set(levels)):
        start = len(deltas)
        while start and levels[start - 1] <= level:
            start -= 1
        if levels[start:].count(level) >= FANOUT:
            return slice(1 + start, len(rows))
    if len(deltas) <= MOST_DELTAS:
        return None
    pairs = [older + newer for older, newer in pairwise(deltas)]
    smallest = 1 + pairs.index(min(pairs))
    return slice(smallest, smallest + 2)


def _level(rows: int) -> int:
    level, limit = 0, SMALL_ROWS
    while rows > limit:
        level, limit = level + 1, limit * FANOUT
    return level


def add_delta(io: FileIO, root: Root, location: str, entries: Entries, snapshot_id: int) -> Root:
    """Write entries as the newest delta and return the root that has it. The last of a key wins.

    Not atomic: until a commit names its root, the new shard is an orphan.
    """
    if not len(entries):
        return root.with_shards((), snapshot_id)
    shard = write_entries(io, location, entries, root.next_generation)
    return root.with_shards([shard], snapshot_id)


def write_entries(
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
    root, io = Root.from_json(root_json), load_file_io(dict(io_properties), location)
    # Entries of files that left the table go only if they hide nothing in an older generation.
    removed = root.removed_files if plan.is_full else frozenset()
    forgotten = plan.forgotten_files(root)
    shards = tuple(shard for shard in root.shards if shard.generation in plan.generations)
    # A cache of its own: what is read once must not push out what lookups need.
    reader = IndexReader(replace(root, shards=shards, removed_files=removed), io, BucketCache())

    def merged() -> Iterator[tuple[int, Entries]]:
        for bucket in buckets:
            entries = reader.read_bucket(bucket, plan.bits, drop_absent=plan.is_full)
            yield bucket, _renumbered(entries, forgotten)

    path = new_path(location, "shard")
    return write_shard(io, path, merged(), plan.bits, plan.generations[-1])


def _renumbered(entries: Entries, forgotten: frozenset[int]) -> Entries:
    """Number the files of entries without some; entries of those only hide older ones from now."""
    numbers = np.array(sorted(forgotten), np.int32)
    file = entries.file - np.searchsorted(numbers, entries.file)
    file[np.isin(entries.file, numbers)] = ABSENT
    return replace(entries, file=file.astype(np.int32))


def with_compacted(root: Root, plan: Compaction, shards: Sequence[ShardRef]) -> Root:
    """Return the root in which these shards replace those that were merged."""
    kept = [shard for shard in root.shards if shard.generation not in plan.generations]
    written = [shard for shard in shards if shard.rows]
    together = tuple(sorted((*kept, *written), key=lambda shard: shard.generation))
    forgotten = plan.forgotten_files(root)
    files = tuple(path for number, path in enumerate(root.files) if number not in forgotten)
    smaller = replace(
        root, shards=together, files=files, removed_files=root.removed_files - forgotten
    )
    return replace(smaller, base_files=len(files), bits=plan.bits) if plan.is_full else smaller
