"""Look the keys of events up in the index, in tasks."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from neve.errors import CorruptionError, StorageError
from neve.index.cache import process_cache
from neve.index.hashing import KeyHasher
from neve.index.root import Root
from neve.index.search import IndexReader, SearchResult, in_order, lookup
from neve.merge import columns as cols

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class KeyLookup:
    """Finds keys in one index. Everything in it can be pickled."""

    root_json: str
    io_properties: dict[str, str]
    keys: tuple[str, ...]
    hash_keys: KeyHasher
    # Tombstones that were written before this time, in seconds, are forgotten.
    forget_before: float | None

    def requests(self, rows: pa.Table) -> int:
        """Return how many requests to an object store it takes to find the keys of rows."""
        hashes = self.hash_keys([rows.column(key) for key in self.keys])
        reader = IndexReader(Root.from_json(self.root_json), self.io_properties, process_cache)
        try:
            return reader.requests(hashes.first)
        except (CorruptionError, StorageError):
            # The search will count it.
            return 0

    def search(self, batch: pa.RecordBatch) -> tuple[SearchResult, dict[str, pa.Array]]:
        """Find the keys of a batch; also return what is counted of the search, by its columns."""
        hashes = self.hash_keys([batch.column(key) for key in self.keys])
        count, before, is_broken, is_away = len(batch), process_cache.hits, False, False
        try:
            hits = lookup(self.root_json, self.io_properties, hashes.first, hashes.second)
        except (CorruptionError, StorageError) as error:
            # Counted, since what a task raises reaches the driver as text.
            logger.warning("the index was not read: %s", error)
            kind = Root.from_json(self.root_json).sequence_type
            hits = in_order(count, [], [], frozenset(), kind)
            is_away = isinstance(error, StorageError) and error.retryable
            is_broken = not is_away
        return hits.without_tombstones_before(self.forget_before), {
            cols.CACHE_HITS: once(process_cache.hits - before, count),
            cols.INDEX_BROKEN: once(int(is_broken), count),
            cols.INDEX_AWAY: once(int(is_away), count),
        }


def with_key_and_without(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Part events that decide over their key from those that decide over none."""
    other = batch.column(cols.OTHER)
    if other.null_count == len(batch):
        parts = [batch]
    else:
        parts = [batch.filter(other.is_null()), batch.filter(other.is_valid())]
    yield from (part for part in parts if len(part))


def once(number: int, count: int) -> pa.Array:
    """Return a number for the first row, and zero for the others, to be summed up."""
    values = np.zeros(count, np.int64)
    values[:1] = number
    return pa.array(values)
