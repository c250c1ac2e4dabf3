"""Shards in an object store: what lookups need of them, brought here by range requests.

A shard is as many bytes here as in the store, most of them not there yet: a sparse file of the
disk cache, or memory where there is none. Before keys are looked up, the directories and then the
blocks of all of them are asked for at once: two rounds of requests, however many shards there are.
"""

from __future__ import annotations

import logging
import mmap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from neve.errors import CorruptionError, NotFoundError
from neve.index.cache import BucketCache
from neve.index.disk_cache import DiskCache, SparseFile
from neve.index.hash_bucket import BucketView
from neve.index.shard import BucketRef, ShardRef, bucket_of, decode_directory
from neve.index.splitmix import Hashes
from neve.lake.range_reads import FileRange, read_ranges

logger = logging.getLogger(__name__)

KEY_BYTES = 48 * 1024
"""What may be read for each key, more only if its own blocks have more: gaps between blocks are
read, too, which takes fewer requests, and later lookups find them here."""
# Reading more than this between two blocks takes longer than another request.
_MOST_GAP_BYTES = 128 * 1024
_REQUEST_BYTES = 4 * 1024 * 1024
# A shard of no more than this is read whole, together with its directory.
_SMALL_SHARD_BYTES = 128 * 1024
# Mapped bytes are the system's, but what is held keeps removed files on the disk.
_MAPPED_SHARE = 64
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


@dataclass
class ShardCopy:
    """What this process has of a shard."""

    shard: ShardRef
    file: SparseFile | None
    """None: it is in memory."""
    data: mmap.mmap
    directory: dict[int, BucketRef] | None = None
    views: dict[int, BucketView] = field(default_factory=dict)

    def write(self, offset: int, data: Any) -> None:
        if self.file is None:
            self.data[offset : offset + len(data)] = bytes(data)
        else:
            self.file.write(offset, data)


class RemoteShards:
    """Reads shards that are not on this machine's disk."""

    def __init__(self, properties: Mapping[str, str], cache: BucketCache) -> None:
        self._properties = properties
        self._cache = cache
        self._disk = DiskCache.of(properties)
        self._copies: dict[str, ShardCopy] = {}
        self.bytes_read = 0

    def prepare(self, shards: Sequence[ShardRef], first: Hashes) -> None:
        """Bring the directories of shards here, and the blocks that may hold these keys.

        Raises as `directory`.
        """
        self._read(self._needed(shards, first))

    def requests(self, shards: Sequence[ShardRef], first: Hashes) -> int:
        """Return how many requests `prepare` makes for the blocks of keys; reads directories only.

        Raises as `directory`.
        """
        return len(self._needed(shards, first))

    def _needed(self, shards: Sequence[ShardRef], first: Hashes) -> list[tuple[ShardRef, int, int]]:
        """Return the ranges to be read for keys; directories are read for it."""
        self._read_directories(shards)
        ordered = np.sort(first)
        needed = [
            (shard, start, length)
            for shard in shards
            for start, length in self._missing(shard, ordered)
        ]
        return coalesced(needed, KEY_BYTES * len(first))

    def directory(self, shard: ShardRef) -> dict[int, BucketRef]:
        """Return the buckets of a shard.

        Raises:
            CorruptionError: the shard is missing, truncated or not what was written.
            StorageError: the store does not let it be read now.
        """
        copy = self._copy(shard)
        if copy.directory is None:
            self._read_directories([shard])
        return copy.directory or {}

    def view(self, shard: ShardRef, ref: BucketRef) -> BucketView:
        """Return a bucket; blocks that are not here are read when they are needed."""
        views = self._copy(shard).views
        if ref.bucket not in views:
            payload = memoryview(self._copy(shard).data)[ref.offset : ref.offset + ref.length]
            views[ref.bucket] = BucketView(payload, ref.layout, shard.path)
        view = views[ref.bucket]

        def fetch(ranges: Sequence[tuple[int, int]]) -> None:
            wanted = [(shard, ref.offset + start, length) for start, length in ranges]
            self._read(coalesced(wanted, 0))

        # With this reader's credentials: the view may be of an earlier one.
        view.fetch = fetch
        return view

    def _missing(self, shard: ShardRef, ordered: Hashes) -> Iterable[tuple[int, int]]:
        buckets = bucket_of(ordered, shard.bits)
        for number, ref in self.directory(shard).items():
            start, stop = np.searchsorted(buckets, [number, number + 1])
            if start < stop:
                view = self.view(shard, ref)
                missing = view.missing(view.touched(ordered[start:stop]))
                for offset, length in ref.layout.ranges(missing):
                    yield ref.offset + offset, length

    def _read_directories(self, shards: Sequence[ShardRef]) -> None:
        unread = [shard for shard in shards if not self._has_directory(shard)]
        wanted = []
        for shard in unread:
            is_small = shard.size <= _SMALL_SHARD_BYTES
            directory = shard.directory_offset, shard.directory_length
            wanted.append((shard, *((0, shard.size) if is_small else directory)))
        self._read(wanted)
        for shard in unread:
            copy = self._copy(shard)
            copy.directory = decode_directory(_directory_bytes(copy), shard)

    def _has_directory(self, shard: ShardRef) -> bool:
        copy = self._copy(shard)
        if copy.directory is None:
            try:
                copy.directory = decode_directory(_directory_bytes(copy), shard)
            except CorruptionError:
                # Not read yet, or damaged here.
                return False
        return True

    def _copy(self, shard: ShardRef) -> ShardCopy:
        """Return what is here of a shard; of a file that others changed all is checked again."""
        if shard.path in self._copies:
            return self._copies[shard.path]
        key = ("copy", shard.path, self._disk)
        copy: ShardCopy = self._cache.get(key, lambda: self._opened(shard))
        if copy.file is not None and copy.file.is_removed():
            self._cache.drop(key)
            copy = self._cache.get(key, lambda: self._opened(shard))
        if copy.file is not None and copy.file.has_changed():
            copy.directory, copy.views = None, {}
        self._copies[shard.path] = copy
        return copy

    def _opened(self, shard: ShardRef) -> tuple[ShardCopy, int]:
        if self._disk is not None:
            try:
                file = self._disk.open(shard.path.rpartition("/")[2], shard.size)
                return ShardCopy(shard, file, file.data), shard.size // _MAPPED_SHARE
            except OSError as error:
                logger.warning("there is no index cache in %s: %s", self._disk.directory, error)
        # Memory is taken when it is written; it counts when it is filled.
        return ShardCopy(shard, None, mmap.mmap(-1, shard.size, flags=_PRIVATE)), 0

    def _read(self, wanted: Sequence[tuple[ShardRef, int, int]]) -> None:
        shards = {shard.path: shard for shard, _, _ in wanted}
        ranges = [FileRange(shard.path, start, length) for shard, start, length in wanted]
        try:
            for part, data in read_ranges(self._properties, ranges):
                if len(data) != part.length:
                    raise _damaged(part.path, f"it ends before {part.offset + part.length}")
                copy = self._copy(shards[part.path])
                copy.write(part.offset, data)
                self.bytes_read += part.length
                if copy.file is None:
                    self._cache.grow(("copy", part.path, self._disk), part.length)
        except NotFoundError as error:
            raise CorruptionError(
                f"index file is missing: {error.message}",
                hint="the index is rebuilt from the table",
            ) from error
        if ranges and self._disk is not None:
            try:
                self._disk.evict()
            except OSError as error:
                logger.warning("the index cache cannot be kept small: %s", error)


def coalesced(
    wanted: Sequence[tuple[ShardRef, int, int]], limit_bytes: int
) -> list[tuple[ShardRef, int, int]]:
    """Join ranges of a file that lie near each other, the nearest first.

    Args:
        wanted: offset and length of each range, with its file.
        limit_bytes: what may be read in all; ranges are joined as long as there is room for what
            lies between them. Those without anything between them always are.
    """
    ordered = sorted(wanted, key=lambda part: (part[0].path, part[1]))
    if not ordered:
        return []
    starts, lengths = (np.array([part[at] for part in ordered], np.int64) for at in (1, 2))
    paths = np.array([part[0].path for part in ordered])
    gaps = starts[1:] - (starts + lengths)[:-1]
    is_near = (paths[1:] == paths[:-1]) & (gaps <= _MOST_GAP_BYTES)
    order = np.argsort(np.where(is_near, gaps, np.iinfo(np.int64).max), kind="stable")
    room = max(0, limit_bytes - int(lengths.sum()))
    fits = is_near[order] & (np.cumsum(np.where(is_near, gaps, 0)[order]) <= room)
    is_joined = np.zeros(len(gaps), np.bool_)
    is_joined[order[fits]] = True
    heads = np.flatnonzero(~np.concatenate([[False], is_joined]))
    tails = np.append(heads[1:], len(ordered)) - 1
    ends = starts + lengths
    return [
        (ordered[head][0], start, min(_REQUEST_BYTES, int(ends[tail]) - start))
        for head, tail in zip(heads.tolist(), tails.tolist(), strict=True)
        for start in range(int(starts[head]), int(ends[tail]), _REQUEST_BYTES)
    ]


def _directory_bytes(copy: ShardCopy) -> bytes:
    start = copy.shard.directory_offset
    return bytes(copy.data[start : start + copy.shard.directory_length])


def _damaged(path: str, why: str) -> CorruptionError:
    return CorruptionError(
        f"index shard {path} is corrupt: {why}", hint="the index is rebuilt from the table"
    )
