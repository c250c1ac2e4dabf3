"""What consolidation reports, as metrics and as health."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from neve.publish.apply import Outcome

if TYPE_CHECKING:
    from neve.buffer.reader import StreamStatus
    from neve.consolidate.report import Report, TableResult
    from neve.observe.metrics import ConsolidationMetrics
    from neve.publish.apply import Counters


class Recorder:
    """Hears what a worker does, and remembers it for whoever asks: a `watch.Observer`."""

    def __init__(
        self, metrics: ConsolidationMetrics, namespace: str, on_report: Callable[[Report], None]
    ) -> None:
        self.metrics = metrics
        # Why the latest consolidation failed; None when it did not.
        self.trouble: str | None = None
        self._namespace = namespace
        self._on_report = on_report

    def looked(self, streams: Sequence[StreamStatus]) -> None:
        oldest = [one.oldest_received_unix_nano for one in streams if one.oldest_received_unix_nano]
        self.metrics.set_waiting(sum(one.bytes for one in streams), min(oldest, default=None))

    def ended(self, report: Report, trouble: str | None) -> None:
        self.trouble = trouble
        if trouble is not None:
            self.metrics.failures.inc()
        for result in report.results:
            self._count_batch(result)
        for table, audit in report.audits:
            result_label = "passed" if audit.passed else "failed"
            self.metrics.audits.labels(table, audit.name, result_label).inc()
        self.metrics.set_aside.inc(report.set_aside)
        self.metrics.dead_letters.inc(report.dead_letters)
        self.metrics.duplicates.inc(report.duplicate_requests)
        self.metrics.unfit.inc(report.unfit_values)
        self.metrics.expired.inc(report.expired_snapshots)
        self.metrics.abandoned.inc(report.abandoned)
        self._count_commits(report.commits)
        self._on_report(report)

    def _count_batch(self, result: TableResult) -> None:
        table = f"{self._namespace}.{result.table}"
        self.metrics.batches.labels(table, result.outcome).inc()
        if result.outcome == Outcome.PUBLISHED.value:
            self.metrics.rows.labels(table).inc(result.rows)
            self.metrics.files.labels(table).inc(result.files)

    def _count_commits(self, commits: Counters) -> None:
        self.metrics.attempts.inc(commits.attempts)
        self.metrics.conflicts.inc(commits.conflicts)
        self.metrics.unknown.inc(commits.unknown_outcomes)
        self.metrics.restaged.inc(commits.restaged)
        self.metrics.discarded.inc(commits.discarded)
        for seconds in commits.commit_seconds:
            self.metrics.commit_seconds.observe(seconds)
