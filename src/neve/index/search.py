"""Find keys in an index: generation by generation, the newest first, and bucket by bucket.

Tasks call `lookup`, which takes the JSON of a root, properties of the store and arrays.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO

from neve.errors import CorruptionError, UsageError
from neve.index.cache import BucketCache, process_cache
from neve.index.entries import (
    ABSENT,
    SEVERAL,
    TOMBSTONE,
    Entries,
    Integers,
    Mask,
    Sequences,
    SequenceType,
    concat_entries,
    merge_entries,
)
from neve.index.files import file_stamp, map_local
from neve.index.hash_bucket import BucketView
from neve.index.remote_shards import RemoteShards
from neve.index.root import Root
from neve.index.shard import BucketRef, ShardRef, bucket_bounds, bucket_of, decode_directory
from neve.index.splitmix import Hashes
from neve.lake.paths import local_path

# Mapped bytes are the system's, but what is held keeps deleted files on the disk.
_MAPPED_SHARE = 64


@dataclass(frozen=True)
class SearchResult:
    """What an index knows of keys, in the order in which they were asked for."""

    file: npt.NDArray[np.int32]
    """Ordinal of the data file; TOMBSTONE, SEVERAL, or ABSENT where there is no entry."""
    position: Integers
    sequence: Sequences
    """NULL where there is no entry."""
    has_entry: Mask
    """Whether the index has an entry for the key: of a row, of several rows, or a tombstone."""

    def without_tombstones_before(self, seconds: float | None) -> SearchResult:
        """Return the result in which keys have no entry whose tombstones are to be forgotten."""
        if seconds is None:
            return self
        is_forgotten = (self.file == TOMBSTONE) & (self.position < seconds)
        unknown = pa.scalar(None, self.sequence.type)
        return SearchResult(
            np.where(is_forgotten, np.int32(ABSENT), self.file),
            np.where(is_forgotten, -1, self.position),
            pc.if_else(pa.array(is_forgotten), unknown, self.sequence),
            self.has_entry & ~is_forgotten,
        )

    @property
    def several(self) -> Mask:
        """Where a key has more than one row, so that the index does not know them all."""
        mask: Mask = self.file == SEVERAL
        return mask


def lookup(
    root_json: str,
    io_properties: Mapping[str, str],
    first: Hashes,
    second: Hashes | None = None,
    cache: BucketCache = process_cache,
) -> SearchResult:
    """Find keys, in a task: everything it needs can be pickled.

    Raises:
        CorruptionError: a shard is missing, truncated or not what was written; it is named.
        StorageError: the store does not let it be read now.
    """
    return IndexReader(Root.from_json(root_json), io_properties, cache).search_values(first, second)


class IndexReader:
    """Reads an index as one root describes it, from this machine's disk or an object store.

    Args:
        io: reads the files of the index; its properties are enough.
    """

    def __init__(
        self, root: Root, io: FileIO | Mapping[str, str], cache: BucketCache = process_cache
    ) -> None:
        self.root = root
        self._cache = cache
        self._remote = RemoteShards(io.properties if isinstance(io, FileIO) else io, cache)
        self._stamps: dict[str, Hashable] = {}

    def search_values(self, first: Hashes, second: Hashes | None = None) -> SearchResult:
        """Find each key's newest entry.

        Raises:
            CorruptionError: a shard is missing, truncated or not what was written; it is named.
        """
        if self.root.has_second_hash != (second is not None):
            raise UsageError("these hashes are not of the kind that the index has")
        remote = self._remote_shards
        if remote and len(first):
            self._remote.prepare(remote, first)
        # In the order of the hashes, so that memory is walked through once.
        open_places = np.argsort(first)
        places: list[Integers] = []
        hits: list[Entries] = []
        for generation in reversed(self.root.generations()):
            if not len(open_places):
                break
            for shard in generation:
                for at, entries in self._search_shard(shard, first, second, open_places):
                    places.append(at)
                    hits.append(entries)
            if places:
                # The newest entry counts: older generations are not asked for these keys.
                is_done = np.zeros(len(first), np.bool_)
                is_done[np.concatenate(places)] = True
                open_places = open_places[~is_done[open_places]]
        return in_order(len(first), places, hits, self.root.removed_files, self.root.sequence_type)

    def requests(self, first: Hashes) -> int:
        """Return how many blocks or runs of them a search would have to fetch from a store.

        Raises as `search_values`.
        """
        remote = self._remote_shards
        return self._remote.requests(remote, first) if remote else 0

    @property
    def _remote_shards(self) -> list[ShardRef]:
        return [shard for shard in self.root.shards if local_path(shard.path) is None]

    def read_bucket(self, bucket: int, bits: int, *, drop_absent: bool = True) -> Entries:
        """Return every key's newest entry in a bucket, tombstones among them, sorted."""
        generations = [
            concat_entries([self._read_range(shard, bucket, bits) for shard in shards])
            for shards in self.root.generations()
        ]
        merged = merge_entries(generations or [self.root.no_entries], drop_absent=drop_absent)
        removed = list(self.root.removed_files)
        return merged.take(~np.isin(merged.file, removed)) if removed else merged

    def _read_range(self, shard: ShardRef, bucket: int, bits: int) -> Entries:
        """Return one shard's entries of a bucket, which the shard may have cut otherwise."""
        lowest, highest = bucket_bounds(bucket, bits)
        directory = self._directory(shard)
        parts = []
        for number in range(_bucket(lowest, shard.bits), _bucket(highest, shard.bits) + 1):
            if number in directory:
                entries = self._view(shard, directory[number]).read_all()
                start = int(np.searchsorted(entries.first, np.uint64(lowest)))
                stop = int(np.searchsorted(entries.first, np.uint64(highest), side="right"))
                parts.append(entries.slice(start, stop))
        return concat_entries(parts or [self.root.no_entries])

    def _search_shard(
        self, shard: ShardRef, first: Hashes, second: Hashes | None, places: Integers
    ) -> Iterator[tuple[Integers, Entries]]:
        directory = self._directory(shard)
        buckets = bucket_of(first[places], shard.bits)
        starts = np.flatnonzero(np.diff(buckets, prepend=-1))
        wanted = {
            int(buckets[start]): places[start:stop]
            for start, stop in zip(starts, [*starts[1:].tolist(), len(places)], strict=True)
        }
        refs = [directory[bucket] for bucket in wanted if bucket in directory]
        for ref in refs:
            at, view = wanted[ref.bucket], self._view(shard, ref)
            rows = view.search(first[at], None if second is None else second[at])
            hit = rows >= 0
            if hit.any():
                yield at[hit], view.read(rows[hit])

    def _directory(self, shard: ShardRef) -> dict[int, BucketRef]:
        if local_path(shard.path) is None:
            return self._remote.directory(shard)

        def load() -> tuple[dict[int, BucketRef], int]:
            start = shard.directory_offset
            data = self._mapped(shard)[start : start + shard.directory_length]
            return decode_directory(bytes(data), shard), len(data)

        key = ("directory", *self._identity(shard))
        directory: dict[int, BucketRef] = self._cache.get(key, load)
        return directory

    def _view(self, shard: ShardRef, ref: BucketRef) -> BucketView:
        if local_path(shard.path) is None:
            return self._remote.view(shard, ref)

        def load() -> tuple[BucketView, int]:
            payload = self._mapped(shard)[ref.offset : ref.offset + ref.length]
            decoded = 0 if not ref.layout.is_variable else 4 * ref.length
            view = BucketView(payload, ref.layout, shard.path)
            return view, ref.length // _MAPPED_SHARE + decoded

        key = ("bucket", *self._identity(shard), ref.bucket)
        view: BucketView = self._cache.get(key, load)
        return view

    def _identity(self, shard: ShardRef) -> tuple[Hashable, ...]:
        """Return what a shard is held under: the path, and what the file is now.

        A file that was damaged since it was checked is another one.
        """
        if shard.path not in self._stamps:
            self._stamps[shard.path] = file_stamp(_local(shard), shard.path)
        return shard.path, self._stamps[shard.path]

    def _mapped(self, shard: ShardRef) -> memoryview:
        def load() -> tuple[Any, int]:
            mapped = map_local(_local(shard), shard.path)
            _check_size(shard, len(mapped))
            return mapped, len(mapped) // _MAPPED_SHARE

        return memoryview(self._cache.get(("shard", *self._identity(shard)), load))


def in_order(
    count: int,
    places: list[Integers],
    hits: list[Entries],
    removed_files: frozenset[int],
    sequence_type: SequenceType,
) -> SearchResult:
    """Put entries into the order in which keys were asked for, without those that do not count."""
    file = np.full(count, ABSENT, np.int32)
    position = np.full(count, -1, np.int64)
    if not places:
        no_sequences = pa.nulls(count, sequence_type.arrow)
        return SearchResult(file, position, no_sequences, np.zeros(count, np.bool_))
    at, entries = np.concatenate(places), concat_entries(hits)
    counts = (entries.file != ABSENT) & ~np.isin(entries.file, list(removed_files))
    at, entries = at[counts], entries.take(counts)
    file[at] = entries.file
    position[at] = entries.position
    source = np.full(count, -1, np.int64)
    source[at] = np.arange(len(at))
    has_entry = source >= 0
    sequence = entries.sequence.take(pa.array(source, mask=~has_entry))
    return SearchResult(file, position, sequence, has_entry)


def _bucket(first: int, bits: int) -> int:
    return first >> (64 - bits) if bits else 0


def _local(shard: ShardRef) -> Path:
    path = local_path(shard.path)
    if path is None:
        raise AssertionError("the shard is on this machine's disk")
    return path


def _check_size(shard: ShardRef, size: int) -> None:
    if size != shard.size:
        raise CorruptionError(
            f"index shard {shard.path} is corrupt: it has {size} bytes instead of {shard.size}",
            hint="the index is rebuilt from the table",
        )
