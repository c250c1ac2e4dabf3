"""Every metric there is, on one registry; nothing is registered with the process as a whole.

Consolidation's metrics are counted up from the report of each run. A receiver keeps counts of its
own, on its event loop's thread; those are read when somebody asks.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from neve.config import Settings

VERSION_VARIABLE = "APP_VERSION"
NANOS = 1_000_000_000
# From an embedded catalog's few milliseconds to one that is asked again and again.
COMMIT_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


def common_labels(settings: Settings) -> dict[str, str]:
    """Return the labels that every metric of a deployment has."""
    return {
        "project": settings.project,
        "environment": settings.environment,
        "version": os.environ.get(VERSION_VARIABLE) or version("neve"),
    }


class Registry(CollectorRegistry):
    """A registry whose metrics all have some labels in common."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        super().__init__()
        self._labels = dict(labels)

    def collect(self) -> Iterator[Metric]:
        """Yield every metric, without the times at which counters began."""
        for metric in super().collect():
            metric.samples = [
                sample._replace(labels={**sample.labels, **self._labels})
                for sample in metric.samples
                if not sample.name.endswith("_created")
            ]
            yield metric

    def text(self) -> bytes:
        """Write all metrics as Prometheus reads them."""
        return generate_latest(self)


class ConsolidationMetrics:
    """Consolidation and publishing, in the process that does them."""

    def __init__(self, registry: Registry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"neve_{name}", text, labels, registry=registry)

        self.batches = counter(
            "consolidate_batches", "Batches, by table and how they ended", "table", "outcome"
        )
        self.rows = counter("consolidate_rows", "Rows published", "table")
        self.files = counter("consolidate_files", "Data files published", "table")
        self.audits = counter(
            "consolidate_audits", "Audits of batches, by result", "table", "audit", "result"
        )
        self.set_aside = counter("consolidate_set_aside_rows", "Rows that audits set aside")
        self.dead_letters = counter(
            "consolidate_dead_letters", "Records that could not become rows"
        )
        self.dead_letters_removed = counter(
            "consolidate_dead_letters_removed",
            "Dead letters removed, past their retention or the limit",
            "reason",
        )
        self.duplicates = counter(
            "consolidate_duplicate_records", "Records that two receivers got, stored once"
        )
        self.unfit = counter(
            "consolidate_unfit_values", "Attribute values that do not fit their promoted column"
        )
        self.failures = counter("consolidate_failures", "Consolidations that failed")
        self.attempts = counter("publish_commit_attempts", "Commits tried")
        self.conflicts = counter("publish_conflicts", "Commits refused since another was first")
        self.unknown = counter("publish_unknown_outcomes", "Commits whose answer was lost")
        self.restaged = counter("publish_restaged", "Batches staged again since main had moved")
        self.discarded = counter("publish_discarded", "Staged batches given up for another")
        self.commit_seconds = Histogram(
            "neve_publish_commit_seconds",
            "How long a commit took, with all its attempts",
            buckets=COMMIT_BUCKETS,
            registry=registry,
        )
        self.held = Gauge(
            "neve_held_batches",
            "Batches that audits hold back, until a person publishes or discards them",
            ["table"],
            registry=registry,
        )
        self._waiting = Gauge(
            "neve_consolidate_waiting_bytes", "Sealed and not consolidated", registry=registry
        )
        self._oldest_unix_nano: int | None = None
        age = Gauge(
            "neve_consolidate_oldest_age_seconds",
            "How long the oldest sealed request has waited",
            registry=registry,
        )
        # Asked at each scrape: it grows also while a run hangs.
        age.set_function(self._oldest_age_seconds)

    def set_waiting(self, size: int, oldest_unix_nano: int | None) -> None:
        """Say what the latest look at the buffer found."""
        self._waiting.set(size)
        self._oldest_unix_nano = oldest_unix_nano

    def _oldest_age_seconds(self) -> float:
        if self._oldest_unix_nano is None:
            return 0.0
        return max(0.0, (time.time_ns() - self._oldest_unix_nano) / NANOS)


class Reading(Collector):
    """Numbers kept elsewhere, read when somebody asks."""

    def __init__(self, read: Callable[[], Iterable[Metric]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        return self._read()


def supervision(is_up: Callable[[], bool], restarts: Callable[[], int]) -> Reading:
    """Return the receiver's metrics as the process sees it that keeps it running."""

    def read() -> Iterator[Metric]:
        yield GaugeMetricFamily("neve_receive_up", "Whether the receiver runs", is_up())
        yield CounterMetricFamily(
            "neve_receive_restarts", "How often the receiver was started again", restarts()
        )

    return Reading(read)
