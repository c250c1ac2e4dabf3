"""Look the keys of events up in the index, in tasks."""

from __future__ import annotations

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

    def search(self, batch: pa.RecordBatch) -> tuple[SearchResult, int, bool]:
        """Find the keys of a batch; also say what was in memory, and if the index is broken."""
        hashes = self.hash_keys([batch.column(key) for key in self.keys])
        before, is_broken = process_cache.hits, False
        try:
            hits = lookup(self.root_json, self.io_properties, hashes.first, hashes.second)
        except (CorruptionError, StorageError):
            # Counted, since what a task raises reaches the driver as text.
            kind = Root.from_json(self.root_json).sequence_type
            hits, is_broken = in_order(len(batch), [], [], frozenset(), kind), True
        hits = hits.without_tombstones_before(self.forget_before)
        return hits, process_cache.hits - before, is_broken


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
