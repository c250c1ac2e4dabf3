"""Consolidation as a part of the service, and what it reports, as metrics and as health."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from neve.consolidate.consolidator import Consolidator, SparkRunner
from neve.consolidate.spec import consolidate_spec
from neve.consolidate.watch import look, watch
from neve.errors import NeveError
from neve.observe.metrics import ConsolidationMetrics
from neve.publish.batch import Outcome

if TYPE_CHECKING:
    from neve.buffer.reader import StreamStatus
    from neve.consolidate.report import Report, TableResult
    from neve.lake import Lake
    from neve.observe.metrics import Registry
    from neve.publish.publisher import PublishCounters

logger = logging.getLogger(__name__)


class Recorder:
    """Hears what a worker does, and remembers it for whoever asks: a `watch.Observer`."""

    def __init__(self, metrics: ConsolidationMetrics, on_report: Callable[[Report], None]) -> None:
        self.metrics = metrics
        # Why the latest consolidation failed; None when it did not.
        self.trouble: str | None = None
        self._on_report = on_report

    def looked(self, streams: Sequence[StreamStatus]) -> None:
        oldest = [one.oldest_received_unix_nano for one in streams if one.oldest_received_unix_nano]
        self.metrics.set_waiting(sum(one.bytes for one in streams), min(oldest, default=None))

    def ended(self, report: Report, trouble: str | None) -> None:
        self.trouble = trouble
        if report.trouble is not None:
            self.metrics.failures.inc()
        for result in report.results:
            self._count_batch(result)
        for table, audit in report.audits:
            result_label = "passed" if audit.passed else "failed"
            self.metrics.audits.labels(table, audit.name, result_label).inc()
        self.metrics.set_aside.inc(report.set_aside)
        self.metrics.dead_letters.inc(report.dead_letters)
        self.metrics.dead_letters_removed.labels("retention").inc(report.expired_dead_letters)
        self.metrics.dead_letters_removed.labels("limit").inc(report.dead_letters_over_limit)
        self.metrics.duplicates.inc(report.duplicate_records)
        self.metrics.unfit.inc(report.unfit_values)
        for table, held in report.held_batches.items():
            self.metrics.held.labels(table).set(held)
        self._count_commits(report.commits)
        self._on_report(report)

    def _count_batch(self, result: TableResult) -> None:
        self.metrics.batches.labels(result.table, result.outcome).inc()
        if result.outcome == Outcome.PUBLISHED.value:
            self.metrics.rows.labels(result.table).inc(result.rows)
            self.metrics.files.labels(result.table).inc(result.files)

    def _count_commits(self, commits: PublishCounters) -> None:
        self.metrics.attempts.inc(commits.attempts)
        self.metrics.conflicts.inc(commits.conflicts)
        self.metrics.unknown.inc(commits.unknown_outcomes)
        self.metrics.restaged.inc(commits.restaged)
        self.metrics.discarded.inc(commits.discarded)
        for seconds in commits.commit_seconds:
            self.metrics.commit_seconds.observe(seconds)


class Consolidation:
    """The consolidation worker: a `run.Part`."""

    def __init__(self, lake: Lake, registry: Registry, on_report: Callable[[Report], None]) -> None:
        settings = lake.settings
        self.worker = Consolidator(lake, consolidate_spec(settings), SparkRunner(lake))
        self.recorder = Recorder(ConsolidationMetrics(registry), on_report)

    @property
    def trouble(self) -> str | None:
        trouble = self.recorder.trouble
        return None if trouble is None else f"consolidation failed: {trouble}"

    def run(self, stop: threading.Event) -> None:
        try:
            # Spark starts before the first data comes; if it fails to, the first batch tries again.
            self.worker.prepare()
        except NeveError as error:
            logger.warning("Spark is not ready yet: %s", error)
        # What is loaded by now stays: without it a full collection, which may fall into any commit,
        # takes 0.1 ms instead of 80 ms.
        gc.freeze()
        watch(self.worker, stop, self.recorder)

    def finish(self) -> None:
        """Consolidate what the receiver has sealed at its end, if that is little.

        Anything more, and anything while consolidation fails, waits in the buffer for the next
        start: nothing is lost, and stopping stays quick.
        """
        waiting = sum(stream.bytes for stream in self.worker.reader.streams())
        if self.recorder.trouble is None and 0 < waiting <= self.worker.spec.trigger_bytes:
            look(self.worker, threading.Event(), self.recorder)
            self.worker.ledger.write()
