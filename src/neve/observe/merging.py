"""The metrics of merges, by the names of their issue; see `neve.observe.metrics`."""

from __future__ import annotations

import time

from prometheus_client import Counter, Gauge, Histogram

from neve.observe.metrics import Registry

# From a mirror with nothing to do to a first load.
MERGE_BUCKETS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)


class MergeMetrics:
    """Merges, in the process that does them."""

    def __init__(self, registry: Registry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"merger_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, *labels: str) -> Histogram:
            name = f"merger_{name}_duration_seconds"
            return Histogram(name, text, labels, registry=registry, buckets=MERGE_BUCKETS)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"merger_{name}", text, ["table"], registry=registry)

        self.cycles = counter("cycle_completed", "Cycles over all tables")
        self.cycle_seconds = histogram("cycle", "How long a cycle took")
        self.successes = counter("table_success", "Turns of a table that went well", "table")
        self.failures = counter("table_failure", "Turns of a table that failed", "table")
        self.table_seconds = histogram("table", "How long a table's turn took", "table")
        self.merge_seconds = histogram("merge", "How long one batch took", "table")
        self.scanned = counter("rows_scanned", "Changes read", "table")
        self.applied = counter(
            "rows_applied", "Changes that a mirror or its tombstones come from now", "table"
        )
        self.deduplicated = counter(
            "rows_deduplicated", "Changes that another of the same key and batch made void", "table"
        )
        self.upserted = counter("rows_upserted", "Rows written to mirrors", "table")
        self.deleted = counter("rows_deleted", "Rows removed from mirrors", "table")
        self.late = counter("rows_late_dropped", "Changes older than what was merged", "table")
        self.repeated = counter("rows_repeated", "Changes that were merged before", "table")
        self.truncated = counter("rows_truncated", "Changes that a TRUNCATE has ended", "table")
        self.overtaken = counter(
            "rows_overtaken", "Full changes that came after a newer partial one", "table"
        )
        self.ties = counter(
            "rows_tied", "Keys with different changes of the same sequence", "table"
        )
        self.set_aside = counter("rows_set_aside", "Changes that could not be merged", "table")
        self.conflicts = counter(
            "conflicts", "Commits refused since another writer was first", "table"
        )
        self._lag_seconds = gauge("lag_seconds", "Age of the oldest change not yet merged")
        self._lag_snapshots = gauge("lag_snapshots", "Snapshots of the changelog not yet merged")
        self.index = IndexMetrics(registry)

    def set_lag(self, table: str, seconds: float, snapshots: int) -> None:
        """Say how far a mirror is behind; what is behind grows older until the next word on it."""
        self._lag_snapshots.labels(table).set(snapshots)
        oldest = time.monotonic() - seconds if seconds > 0 else None
        self._lag_seconds.labels(table).set_function(
            # Asked at each scrape: it grows also while merges fail.
            lambda: 0.0 if oldest is None else time.monotonic() - oldest
        )


class IndexMetrics:
    """The index of mirrors, in the process that merges."""

    def __init__(self, registry: Registry) -> None:
        def counter(name: str, text: str) -> Counter:
            return Counter(f"merger_{name}", text, ["table"], registry=registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"merger_{name}", text, ["table"], registry=registry)

        self.bytes = gauge("index_bytes", "Size of the index's files")
        self.entries = gauge("index_entries", "Keys the index knows")
        self.hits = counter("index_hits", "Keys looked up and found")
        self.misses = counter("index_misses", "Keys looked up and not found")
        self.cache_hits = counter("index_cache_hits", "Blobs of the index found in memory")
        self.rebuilds = counter("index_rebuilds", "Indexes built anew as a whole")
        self.reindexed_files = counter("index_reindexed_files", "Data files indexed again")
        self.vectors = counter("vectors_written", "Deletion vectors written")
