"""The metrics of upkeep; see `neve.observe.metrics`."""

from __future__ import annotations

from prometheus_client import Counter

from neve.observe.metrics import Registry


class UpkeepMetrics:
    """Upkeep, in the process that does it."""

    def __init__(self, registry: Registry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"neve_{name}", text, labels, registry=registry)

        self.expired = counter("consolidate_expired_snapshots", "Snapshots past their retention")
        self.abandoned = counter(
            "publish_abandoned", "Staged batches that nobody published, cleaned up"
        )
        self.failures = counter("upkeep_failures", "Tables that could not be looked after", "table")
