"""The metrics of maintenance and of the health of tables; see `neve.observe.metrics`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from prometheus_client import Counter, Gauge

from neve.observe.metrics import Registry


class Health(Protocol):
    """What is known of one table."""

    @property
    def table(self) -> str: ...
    @property
    def score(self) -> int: ...
    @property
    def files(self) -> int: ...
    @property
    def small_files(self) -> int: ...
    @property
    def deleted_rows(self) -> int: ...
    @property
    def snapshots(self) -> int: ...


class MaintenanceMetrics:
    """Maintenance, in the process that does it."""

    def __init__(self, registry: Registry) -> None:
        def counter(name: str, text: str) -> Counter:
            return Counter(f"neve_maintain_{name}", text, ("table",), registry=registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"neve_table_{name}", text, ("table",), registry=registry)

        self.rewritten_files = counter("rewritten_files", "Data files that were rewritten")
        self.new_files = counter("new_files", "Data files that took their place")
        self.rewritten_bytes = counter("rewritten_bytes", "Size of the files that were rewritten")
        self.conflicts = counter("conflicts", "Rewrites that gave way to another writer")
        self.failures = counter("failures", "Tables that could not be maintained")
        self._score = gauge("health", "Health of a table: 100 is good, 0 cannot be read")
        self._files = gauge("files", "Data files")
        self._small = gauge("small_files", "Data files below the size of small ones")
        self._deleted = gauge("deleted_rows", "Rows that deletes hide")
        self._snapshots = gauge("snapshots", "Snapshots that are kept")

    def set_health(self, reports: Iterable[Health]) -> None:
        """Say how tables are; those that are not named were dropped."""
        gauges = (self._score, self._files, self._small, self._deleted, self._snapshots)
        for each in gauges:
            each.clear()
        for report in reports:
            self._score.labels(report.table).set(report.score)
            self._files.labels(report.table).set(report.files)
            self._small.labels(report.table).set(report.small_files)
            self._deleted.labels(report.table).set(report.deleted_rows)
            self._snapshots.labels(report.table).set(report.snapshots)
