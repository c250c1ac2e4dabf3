"""Metrics of writes without Spark, counted by OpenTelemetry's meter.

With `observe.otlp_endpoint` they are sent there. Otherwise the application's own SDK has them, and
without one nobody counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from opentelemetry import metrics

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

    from neve.config import Settings
    from neve.observe.commits import CommitMeasured

_SCOPE = "neve.direct"


class DirectMetrics:
    """Counts commits and requests. May be called by several threads."""

    def __init__(self, meter: Meter, close: Callable[[], None] = lambda: None) -> None:
        self.close = close

        def counter(name: str, unit: str, text: str) -> metrics.Counter:
            return meter.create_counter(f"{_SCOPE}.{name}", unit, text)

        self._commits = counter("commits", "{commit}", "Commits, by table and whether applied")
        self._attempts = counter("commit.attempts", "{attempt}", "Requests to commit")
        self._conflicts = counter("commit.conflicts", "{attempt}", "Attempts others were first in")
        self._unknown = counter("commit.unknown_outcomes", "{attempt}", "Attempts without answer")
        self._manifests = counter("manifests", "{manifest}", "Manifests written")
        self._files = counter("files", "{file}", "Data files committed")
        self._rows = counter("rows", "{row}", "Rows committed")
        self._bytes = counter("bytes", "By", "Bytes of the data files committed")
        self._seconds = meter.create_histogram(
            f"{_SCOPE}.commit.duration", "s", "How long a commit took, with all its attempts"
        )
        self._requests = counter("requests", "{request}", "Requests written, by whether kept")
        self._rejected = counter("rejected_records", "{record}", "Records that no table can hold")
        self._duplicate_keys = counter(
            "duplicate_keys", "{attribute}", "Attributes that lost to a later one of the same key"
        )
        self._unfit_values = counter(
            "unfit_values", "{value}", "Attribute values that do not fit their promoted column"
        )

    def count_commit(self, commit: CommitMeasured) -> None:
        table = {"neve.table": commit.table}
        outcome: dict[str, str | bool] = {**table, "neve.committed": commit.committed}
        self._commits.add(1, outcome)
        self._seconds.record(commit.seconds, outcome)
        self._attempts.add(commit.attempts, table)
        self._conflicts.add(commit.conflicts, table)
        self._unknown.add(commit.unknown_outcomes, table)
        self._manifests.add(commit.manifests, table)
        if commit.committed:
            self._files.add(commit.files, table)
            self._rows.add(commit.rows, table)
            self._bytes.add(commit.bytes, table)

    def count_requests(
        self,
        signal: str,
        *,
        kept: int,
        failed: int,
        rejected: int,
        duplicate_keys: int,
        unfit_values: int,
    ) -> None:
        of_signal = {"neve.signal": signal}
        self._requests.add(kept, {**of_signal, "neve.kept": True})
        self._requests.add(failed, {**of_signal, "neve.kept": False})
        self._rejected.add(rejected, of_signal)
        self._duplicate_keys.add(duplicate_keys, of_signal)
        self._unfit_values.add(unfit_values, of_signal)


def open_direct_metrics(settings: Settings) -> DirectMetrics:
    """Return the metrics of a deployment; `close` sends the last of them."""
    if not settings.observe.otlp_endpoint:
        return DirectMetrics(metrics.get_meter(_SCOPE))
    from neve.observe.otlp_metrics import meter_provider

    provider = meter_provider(settings)
    return DirectMetrics(provider.get_meter(_SCOPE), provider.shutdown)
