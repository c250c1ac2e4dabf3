"""Merges as a service: cycle after cycle over all mirrors, each on its own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from neve.merge.report import TableReport
from neve.merge.side_by_side import side_by_side
from neve.observe.failures import failure_of
from neve.observe.merging import MergeMetrics
from neve.observe.traces import span

if TYPE_CHECKING:
    from neve.observe.metrics import Registry

logger = logging.getLogger(__name__)

PART = "merge"


class TableMerger(Protocol):
    """Who keeps one mirror."""

    @property
    def name(self) -> str: ...

    def merge(self, stop: threading.Event, report: TableReport) -> TableReport:
        """Merge what waits; once `stop` is set, no further batch is begun.

        Args:
            report: is filled in and returned; it says what was done also after an error.

        Raises:
            NeveError: it could not; what was committed before stays.
        """


class Observer(Protocol):
    """Who is told what merges do."""

    def merged(self, report: TableReport) -> None:
        """Hear that a table had its turn."""

    def failed(self, report: TableReport, trouble: str) -> None:
        """Hear that a table's turn failed, what was done before, and why."""

    def cycled(self, seconds: float) -> None:
        """Hear that every table had its turn."""


def keep_merging(
    mergers: Sequence[TableMerger],
    interval_seconds: float,
    stop: threading.Event,
    observer: Observer,
    parallel_tables: int = 1,
) -> None:
    """Begin a cycle every interval until `stop` is set; a batch in progress is finished.

    A cycle that takes longer is followed by the next at once. Nothing but `stop` ends it: a table
    that failed is tried again in the next cycle.
    """
    while not stop.is_set():
        began = time.monotonic()
        run_cycle(mergers, stop, observer, parallel_tables)
        stop.wait(max(0.0, began + interval_seconds - time.monotonic()))


def run_cycle(
    mergers: Sequence[TableMerger],
    stop: threading.Event,
    observer: Observer,
    parallel_tables: int = 1,
) -> None:
    """Give every table its turn, whatever became of the others.

    Args:
        parallel_tables: how many have their turn at the same time; the observer hears of each on
            the thread that it was merged on.
    """
    began = time.monotonic()

    def give_turn(merger: TableMerger) -> None:
        if not stop.is_set():
            _give_turn(merger, stop, observer)

    with span("merge.cycle"):
        side_by_side(mergers, parallel_tables, give_turn)
    if not stop.is_set():
        observer.cycled(time.monotonic() - began)


def _give_turn(merger: TableMerger, stop: threading.Event, observer: Observer) -> None:
    report = TableReport(merger.name)
    try:
        with span("merge.table", table=merger.name) as step:
            merger.merge(stop, report)
            step.set(outcome=report.outcome, batches=report.batches, rows=report.rows_scanned)
    except Exception as error:  # noqa: BLE001 - the next cycle may get past it, the others go on
        trouble = str(failure_of(error, PART, merger.name))
        logger.warning("%s: merge failed: %s", merger.name, trouble)
        observer.failed(report, trouble)
    else:
        observer.merged(report)


class Recorder:
    """Hears what merges do, and remembers it for whoever asks: an `Observer`."""

    def __init__(
        self,
        metrics: MergeMetrics,
        tables: Iterable[str],
        on_report: Callable[[TableReport], None],
    ) -> None:
        self.metrics = metrics
        self._on_report = on_report
        self._troubles: dict[str, str] = {}
        for table in tables:
            # An alert on a rate needs the 0 before the first.
            metrics.successes.labels(table)
            metrics.failures.labels(table)

    @property
    def troubles(self) -> Mapping[str, str]:
        """Why the latest turn failed, of each table where it did."""
        return dict(self._troubles)

    @property
    def trouble(self) -> str | None:
        """The same in a line; None when no table fails."""
        return "; ".join(f"{table}: {why}" for table, why in sorted(self.troubles.items())) or None

    def merged(self, report: TableReport) -> None:
        self._count(report)
        self.metrics.successes.labels(report.table).inc()
        self._troubles.pop(report.table, None)
        self._on_report(report)

    def failed(self, report: TableReport, trouble: str) -> None:
        self._count(report)
        self.metrics.failures.labels(report.table).inc()
        self._troubles[report.table] = trouble

    def cycled(self, seconds: float) -> None:
        self.metrics.cycles.inc()
        self.metrics.cycle_seconds.observe(seconds)

    def _count(self, report: TableReport) -> None:
        table, metrics = report.table, self.metrics
        metrics.table_seconds.labels(table).observe(report.duration_seconds)
        for seconds in report.merge_seconds:
            metrics.merge_seconds.labels(table).observe(seconds)
        metrics.scanned.labels(table).inc(report.rows_scanned)
        metrics.applied.labels(table).inc(report.applied)
        metrics.deduplicated.labels(table).inc(report.superseded)
        metrics.repeated.labels(table).inc(report.repeated)
        metrics.truncated.labels(table).inc(report.truncated)
        metrics.upserted.labels(table).inc(report.rows_upserted)
        metrics.deleted.labels(table).inc(report.rows_deleted)
        metrics.late.labels(table).inc(report.late_dropped)
        metrics.overtaken.labels(table).inc(report.late_full)
        metrics.ties.labels(table).inc(report.ties)
        metrics.set_aside.labels(table).inc(report.set_aside)
        metrics.conflicts.labels(table).inc(report.conflicts)
        if report.lag_seconds is not None:
            metrics.set_lag(table, report.lag_seconds, report.lag_snapshots)
        self._count_index(report)

    def _count_index(self, report: TableReport) -> None:
        table, index = report.table, self.metrics.index
        if report.index_entries:
            index.bytes.labels(table).set(report.index_bytes)
            index.entries.labels(table).set(report.index_entries)
        index.hits.labels(table).inc(report.index_hits)
        index.misses.labels(table).inc(report.index_misses)
        index.cache_hits.labels(table).inc(report.index_cache_hits)
        index.rebuilds.labels(table).inc(report.index_rebuilds)
        index.reindexed_files.labels(table).inc(report.index_files_indexed)
        index.vectors.labels(table).inc(report.vectors_written)


class Merging:
    """The merges of all mirrors: a `run.Part`."""

    def __init__(
        self,
        mergers: Sequence[TableMerger],
        interval_seconds: float,
        registry: Registry,
        on_report: Callable[[TableReport], None],
        parallel_tables: int = 1,
    ) -> None:
        self._mergers = mergers
        self._interval_seconds = interval_seconds
        self._parallel_tables = parallel_tables
        self.recorder = Recorder(MergeMetrics(registry), [one.name for one in mergers], on_report)

    @property
    def trouble(self) -> str | None:
        trouble = self.recorder.trouble
        return None if trouble is None else f"merge failed: {trouble}"

    def run(self, stop: threading.Event) -> None:
        keep_merging(
            self._mergers, self._interval_seconds, stop, self.recorder, self._parallel_tables
        )

    def finish(self) -> None:
        """Leave the rest for the next start: what waits is in the changelog."""
