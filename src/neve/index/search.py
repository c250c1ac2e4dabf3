"""Find keys in an index: generation by generation, the newest first, and bucket by bucket.

Tasks call `lookup`, which takes the JSON of a root, properties of the store and arrays.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.io import FileIO, load_file_io

from neve.errors import CorruptionError, UsageError
from neve.index.cache import BucketCache, process_cache
from neve.index.entries import (
    ABSENT,
    SEVERAL,
    Entries,
    Integers,
    Mask,
    Sequences,
    SequenceType,
    concat_entries,
    merge_entries,
)
from neve.index.files import file_stamp, map_local, opened
from neve.index.hash_bucket import BucketView
from neve.index.root import Root
from neve.index.shard import BucketRef, ShardRef, bucket_bounds, bucket_of, decode_directory
from neve.index.splitmix import Hashes
from neve.lake.paths import local_path
from neve.lake.puffin import read_range

# A shard of no more than this is read in one piece: one request instead of one for each bucket.
_WHOLE_SHARD_BYTES = 8 * 1024 * 1024
# Mapped bytes are the system's, but what is held keeps deleted files on the disk.
_MAPPED_SHARE = 64
# From an object store: most of a read is waiting.
_READS_AT_ONCE = 8


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

    Best called with the keys of whole buckets (`bucket_of(first, root.bits)`), so that tasks read
    different parts of the index; beside the cache it needs the memory of one bucket, of eight where
    shards are not local.

    Raises:
        CorruptionError: a shard is missing, truncated or not what was written; it is named.
    """
    return IndexReader(Root.from_json(root_json), io_properties, cache).search_values(first, second)


class IndexReader:
    """Reads an index as one root describes it.

    Given the properties of a store, that is loaded when a shard turns out not to be local: it takes
    two seconds of a new worker's time.
    """

    def __init__(
        self, root: Root, io: FileIO | Mapping[str, str], cache: BucketCache = process_cache
    ) -> None:
        self.root = root
        self._io = io
        self._cache = cache
        self._stamps: dict[str, Hashable] = {}

    def search_values(self, first: Hashes, second: Hashes | None = None) -> SearchResult:
        """Find each key's newest entry.

        Raises:
            CorruptionError: a shard is missing, truncated or not what was written; it is named.
        """
        if self.root.has_second_hash != (second is not None):
            raise UsageError("these hashes are not of the kind that the index has")
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
        for ref, view in self._views(shard, refs):
            at = wanted[ref.bucket]
            rows = view.search(first[at], None if second is None else second[at])
            hit = rows >= 0
            if hit.any():
                yield at[hit], view.read(rows[hit])

    def _views(
        self, shard: ShardRef, refs: list[BucketRef]
    ) -> Iterator[tuple[BucketRef, BucketView]]:
        """Return buckets one after the other, a few fetched at once where that takes long."""
        if len(refs) < 2 or self._whole(shard) is not None:
            yield from ((ref, self._view(shard, ref)) for ref in refs)
            return
        with ThreadPoolExecutor(_READS_AT_ONCE) as pool:
            for start in range(0, len(refs), _READS_AT_ONCE):
                some = refs[start : start + _READS_AT_ONCE]
                views = pool.map(lambda ref: self._view(shard, ref), some)
                yield from zip(some, views, strict=True)

    def _directory(self, shard: ShardRef) -> dict[int, BucketRef]:
        def load() -> tuple[dict[int, BucketRef], int]:
            data = self._read(shard, shard.directory_offset, shard.directory_length)
            return decode_directory(bytes(data), shard), len(data)

        key = ("directory", *self._identity(shard))
        directory: dict[int, BucketRef] = self._cache.get(key, load)
        return directory

    def _view(self, shard: ShardRef, ref: BucketRef) -> BucketView:
        def load() -> tuple[BucketView, int]:
            payload = self._read(shard, ref.offset, ref.length)
            size = len(payload) // (_MAPPED_SHARE if local_path(shard.path) else 1)
            decoded = 0 if not ref.layout.is_variable else 4 * ref.length
            return BucketView(payload, ref.layout, shard.path), size + decoded

        key = ("bucket", *self._identity(shard), ref.bucket)
        view: BucketView = self._cache.get(key, load)
        return view

    def _identity(self, shard: ShardRef) -> tuple[Hashable, ...]:
        """Return what a shard is held under: the path, and of a local file what it is now.

        A file that was damaged since it was checked is another one.
        """
        if shard.path not in self._stamps:
            local = local_path(shard.path)
            self._stamps[shard.path] = None if local is None else file_stamp(local, shard.path)
        return shard.path, self._stamps[shard.path]

    def _read(self, shard: ShardRef, offset: int, length: int) -> Any:
        whole = self._whole(shard)
        if whole is not None:
            return memoryview(whole)[offset : offset + length]
        return self._fetch(shard, offset, length)

    def _fetch(self, shard: ShardRef, offset: int, length: int) -> bytes:
        if not isinstance(self._io, FileIO):
            self._io = load_file_io(dict(self._io), shard.path)
        with opened(self._io, shard.path) as (stream, size):
            _check_size(shard, size)
            return read_range(stream, offset, length, shard.path)

    def _whole(self, shard: ShardRef) -> Any | None:
        """Return all bytes of a shard that is local or small."""
        local = local_path(shard.path)
        if local is None and shard.size > _WHOLE_SHARD_BYTES:
            return None

        def load() -> tuple[Any, int]:
            if local is None:
                return self._fetch(shard, 0, shard.size), shard.size
            mapped = map_local(local, shard.path)
            _check_size(shard, len(mapped))
            return mapped, len(mapped) // _MAPPED_SHARE

        return self._cache.get(("shard", *self._identity(shard)), load)


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


def _check_size(shard: ShardRef, size: int) -> None:
    if size != shard.size:
        raise CorruptionError(
            f"index shard {shard.path} is corrupt: it has {size} bytes instead of {shard.size}",
            hint="the index is rebuilt from the table",
        )
