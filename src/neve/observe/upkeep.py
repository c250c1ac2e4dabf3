"""The metrics of upkeep; see `neve.observe.metrics`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from prometheus_client import Counter, Gauge

from neve.observe.metrics import Registry


class FollowerLag(Protocol):
    """How far a follower is behind; None: its position is not among the table's ancestors."""

    @property
    def table(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def lag_commits(self) -> int | None: ...
    @property
    def lag_seconds(self) -> float | None: ...


class UpkeepMetrics:
    """Upkeep, in the process that does it."""

    def __init__(self, registry: Registry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"neve_{name}", text, labels, registry=registry)

        self.expired = counter("consolidate_expired_snapshots", "Snapshots past their retention")
        self.abandoned = counter(
            "publish_abandoned", "Staged batches that nobody published, cleaned up"
        )
        self.orphans = counter("upkeep_orphans", "Files that no snapshot named, deleted")
        self.failures = counter("upkeep_failures", "Tables that could not be looked after", "table")
        labels = ("table", "follower")
        self._lag_commits = Gauge(
            "neve_follow_lag_commits", "Commits a follower has not read", labels, registry=registry
        )
        self._lag_seconds = Gauge(
            "neve_follow_lag_seconds",
            "Age of the oldest commit a follower has not read",
            labels,
            registry=registry,
        )

    def set_lags(self, followers: Iterable[FollowerLag]) -> None:
        """Say how far followers are behind; those that are not named were dropped."""
        self._lag_commits.clear()
        self._lag_seconds.clear()
        for each in followers:
            commits = math.nan if each.lag_commits is None else each.lag_commits
            self._lag_commits.labels(each.table, each.name).set(commits)
            # Asked at each scrape: what is not read grows older until the next look.
            self._lag_seconds.labels(each.table, each.name).set_function(_age(each.lag_seconds))


def _age(seconds: float | None) -> Callable[[], float]:
    if not seconds:
        return lambda: math.nan if seconds is None else 0.0
    since = time.monotonic() - seconds
    return lambda: time.monotonic() - since
