"""The metrics of maintenance and of the health of tables; see `neve.observe.metrics`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from prometheus_client import Counter, Gauge

from neve.observe.metrics import Registry

# The gauges of a table's health, each with what it shows of a report.
_GAUGES = (
    ("health", "score", "Health of a table: 100 is good, 0 cannot be read"),
    ("files", "files", "Data files"),
    ("small_files", "small_files", "Data files below the size of small ones"),
    ("deleted_rows", "deleted_rows", "Rows that deletes hide"),
    ("snapshots", "snapshots", "Snapshots that are kept"),
    ("manifests", "manifests", "Manifests of the current snapshot"),
    ("metadata_bytes", "metadata_bytes", "Size of the metadata file, which each commit writes"),
    ("skew", "skew", "Size of the largest partition against the mean"),
    ("staged_batches", "staged", "Batches that are staged and not published"),
    ("held_batches", "held", "Batches that audits hold back"),
    ("index_behind_commits", "index_behind", "Commits that the index of a mirror lacks"),
    ("index_behind_seconds", "index_behind_seconds", "Age of the oldest commit that it lacks"),
    ("writes_per_row", "writes_per_row", "How often a row of telemetry was written, at most"),
)


class Health(Protocol):
    """What is known of one table; further attributes are those that the gauges show."""

    @property
    def table(self) -> str: ...
    @property
    def error(self) -> str | None: ...
    @property
    def unreferenced_bytes(self) -> int | None: ...


class MaintenanceMetrics:
    """Maintenance, in the process that does it."""

    def __init__(self, registry: Registry) -> None:
        def counter(name: str, text: str, labels: Sequence[str] = ("table",)) -> Counter:
            return Counter(f"neve_maintain_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"neve_table_{name}", text, ("table",), registry=registry)

        self.rewritten_files = counter("rewritten_files", "Data files that were rewritten")
        self.new_files = counter("new_files", "Data files that took their place")
        self.rewritten_bytes = counter("rewritten_bytes", "Size of the files that were rewritten")
        self.new_bytes = counter("new_bytes", "Size of the files that took their place")
        self.conflicts = counter("conflicts", "Rewrites that gave way to another writer")
        self.failures = counter("failures", "Tables that could not be maintained")
        self.failed_runs = counter("failed_runs", "Runs that failed as a whole", ())
        self._gauges = [(gauge(name, text), attribute) for name, attribute, text in _GAUGES]
        self._unreferenced = gauge(
            "unreferenced_bytes", "Files that no snapshot names, by the newest listing"
        )
        self._known_unreferenced: dict[str, int] = {}

    def set_health(self, reports: Iterable[Health]) -> None:
        """Say how tables are; those that are not named were dropped.

        Of a table that cannot be read only the score is known: a number of earlier would hide it.
        """
        self.clear_health()
        known: dict[str, int] = {}
        for report in reports:
            for gauge, attribute in self._gauges:
                value = getattr(report, attribute)
                if value is not None and (report.error is None or attribute == "score"):
                    gauge.labels(report.table).set(value)
            size = report.unreferenced_bytes
            # Files are listed now and then: until the next listing the newest counts.
            size = self._known_unreferenced.get(report.table) if size is None else size
            if size is not None:
                known[report.table] = size
                self._unreferenced.labels(report.table).set(size)
        self._known_unreferenced = known

    def clear_health(self) -> None:
        """Say nothing of any table: what was known is not to pass for what is."""
        for gauge, _ in self._gauges:
            gauge.clear()
        self._unreferenced.clear()
