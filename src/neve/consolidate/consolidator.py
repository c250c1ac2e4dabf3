"""A consolidation worker: signal after signal, each in its turn, until nothing waits.

Delivery: exactly once for each table, whatever is killed and however many workers run.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from neve.buffer.buffer import is_object_location, open_store
from neve.buffer.dead_letter_limit import DeadLetterLimit
from neve.buffer.reader import BufferReader
from neve.buffer.retained import RetentionLimit
from neve.consolidate.check import check_tables
from neve.consolidate.kept_lease import RENEWALS, KeptLease, NoLease
from neve.consolidate.memory import SignalMemory
from neve.consolidate.report import Report, TableResult
from neve.consolidate.signal_worker import Runner, SignalWorker, describe_failure
from neve.consolidate.spec import ConsolidateSpec
from neve.consolidate.tables import OpenTables
from neve.consolidate.task import Job
from neve.lake.shared_paths import require_shared
from neve.observe import sentry
from neve.publish.ledger import LedgerWriter
from neve.publish.publisher import Publisher
from neve.signals import Signal
from neve.telemetry.schemas import TABLES_OF

if TYPE_CHECKING:
    from neve.buffer.listing import SignalListing
    from neve.buffer.reader import Look
    from neve.lake import Lake

__all__ = ["Consolidator", "Report", "SparkRunner"]

logger = logging.getLogger(__name__)

# How often a worker that waits for its turn looks whether it has come.
WAIT_SECONDS = 0.2


class Consolidator:
    """One worker. Several may run; each batch is won by one of them."""

    def __init__(self, lake: Lake, spec: ConsolidateSpec, runner: Runner) -> None:
        check_tables(lake.settings)
        self.lake = lake
        self.spec = spec
        self.runner = runner
        self.store = open_store(spec.buffer)
        self.reader = BufferReader(
            self.store,
            dedup_seconds=spec.buffer.dedup_seconds,
            retain_seconds=spec.buffer.retain_seconds,
        )
        self.retention_limit = RetentionLimit(self.store, spec.buffer.retain_seconds)
        self.dead_letter_limit = DeadLetterLimit(self.store, spec.buffer)
        self.memories = {signal: SignalMemory() for signal in Signal}
        self.tables = OpenTables(lake, spec)
        self.ledger = LedgerWriter(lake)
        lake.profile.require_catalog("consolidation")
        _require_shared_buffer(lake, spec)

    def prepare(self) -> None:
        """Get ready for the first batch; without it, that one takes longer."""
        if isinstance(self.runner, SparkRunner):
            self.runner.prepare()

    def run_once(
        self,
        report: Report | None = None,
        stop: threading.Event | None = None,
        *,
        wait: bool = False,
        looks: Mapping[str, Look] | None = None,
    ) -> Report:
        """Consume everything that is sealed now. Safe to kill anywhere, and to run again.

        Args:
            report: what to add to, so that what was done before a failure is known too.
            stop: once it is set, no further batch is begun.
            wait: where another worker is at it, wait until that one is done, or known as dead;
                without it, leave the signal to that worker.
            looks: what was just seen, after abandoned streams were closed, of those signals that
                are to be consolidated; without it, all are looked at now.
        """
        report = Report() if report is None else report
        stop = stop or threading.Event()
        if looks is None:
            self.reader.close_abandoned()
        try:
            for signal in Signal:
                if looks is None or signal.value in looks:
                    look = looks[signal.value] if looks else None
                    self._run_signal(signal, report, stop, wait, look)
        finally:
            self.ledger.add(report.ledger)
            self.ledger.write_when_due()
        if not stop.is_set():
            self.look_after_buffer(report)
        return report

    @property
    def failing_tables(self) -> dict[str, str]:
        """The tables that failed and were not well since, each with its error."""
        return {
            f"{self.spec.namespace}.{name}": pause.error
            for memory in self.memories.values()
            for name, pause in memory.pauses.items()
        }

    def look_at_all(self, report: Report) -> dict[str, Look]:
        """Look at every signal. One that cannot be looked at is told of, and stops no other."""
        self.reader.close_abandoned()
        looks: dict[str, Look] = {}
        failures: dict[Signal, Exception] = {}
        for signal, look in self.reader.look_at_all().items():
            if isinstance(look, Exception):
                failures[Signal(signal)] = look
            else:
                looks[signal] = look
        if not looks:
            # The buffer's failure, and no signal's.
            raise next(iter(failures.values()))
        for of, error in failures.items():
            # Told again when it would be tried again, and not at each look.
            if not all(self.memories[of].is_paused(name) for name in TABLES_OF[of]):
                self._fail(of, error, report)
        return looks

    def resume_idle(self, looks: Mapping[str, Look]) -> None:
        """Forget the failures of signals of which nothing waits: another worker got past them."""
        for signal, (_, streams) in looks.items():
            if not any(stream.segments for stream in streams):
                self.memories[Signal(signal)].pauses.clear()

    def look_after_buffer(self, report: Report) -> None:
        """Write the ledger and clean up, when it is due; also while nothing comes in."""
        self.ledger.write_when_due()
        removed = self.dead_letter_limit.enforce_when_due(added=report.dead_letters > 0)
        report.expired_dead_letters += removed.expired
        report.dead_letters_over_limit += removed.over_limit
        self.retention_limit.enforce_when_due()

    def lease(self, signal: Signal) -> KeptLease:
        """Return the lease of a signal, not yet held."""
        seconds = self.spec.lease_seconds
        lease = self.store.lease(signal.value, seconds) if seconds > 0 else NoLease()
        return KeptLease(signal.value, lease, seconds)

    def _run_signal(
        self,
        signal: Signal,
        report: Report,
        stop: threading.Event,
        wait: bool,  # noqa: FBT001 - as `run_once` has it
        look: Look | None,
    ) -> None:
        """Consolidate one signal. What fails here keeps its tables back, and no other signal."""
        memory = self.memories[signal]
        try:
            while True:
                # Another worker may have taken the lease since, and what was listed of it may be
                # gone: an old number that is put again would be a second lease.
                if look and look[0].age_seconds >= self.spec.lease_seconds / RENEWALS > 0:
                    look = None
                listing, streams = look or self.reader.look(signal.value)
                look = None
                if not streams or not memory.has_work(streams, TABLES_OF[signal]):
                    break
                if self._take_turn(signal, report, stop, listing, wait=wait) or not wait:
                    break
        except Exception as error:  # noqa: BLE001 - isolates signals, whatever it is
            self._fail(signal, error, report)

    def _fail(self, signal: Signal, error: Exception, report: Report) -> None:
        """Tell of the failure of a signal: it is one of each of its tables."""
        message = describe_failure(error)
        logger.warning("%s failed: %s", signal.value, message)
        sentry.capture(error, "consolidate")
        for name in TABLES_OF[signal]:
            self.memories[signal].pause(name, message)
            table = f"{self.spec.namespace}.{name}"
            report.results.append(TableResult("", table, "failed", 0, 0, 0, 0.0, message))

    def _take_turn(
        self,
        signal: Signal,
        report: Report,
        stop: threading.Event,
        listing: SignalListing,
        *,
        wait: bool,
    ) -> bool:
        """Consolidate a signal if no other worker is at it; False when our turn was lost."""
        with self.lease(signal) as turn:
            is_ours = turn.begin(listing.files)
            while not is_ours:
                if not wait or stop.wait(WAIT_SECONDS):
                    report.left_to_others.append(signal.value)
                    return True
                if is_ours := turn.begin():
                    listing, _ = self.reader.look(signal.value)
            self._consolidate(signal, report, stop, turn, listing)
            return not turn.is_lost

    def _consolidate(
        self,
        signal: Signal,
        report: Report,
        stop: threading.Event,
        turn: KeptLease,
        listing: SignalListing,
    ) -> None:
        work = SignalWorker(
            self.lake,
            self.spec,
            self.reader,
            self.runner,
            signal,
            self.memories[signal],
            report,
            listing,
        )
        work.open_tables(lambda name: self._publisher(name, report))
        work.finish_staged()
        is_drained = False
        while not (is_drained or stop.is_set() or turn.is_lost):
            is_drained = not work.run_batches()
        work.end(is_drained=is_drained)
        self._count_held(signal, work.publishers, report)

    def _count_held(
        self, signal: Signal, publishers: Mapping[str, Publisher], report: Report
    ) -> None:
        """Report how many batches tables hold, and warn of those that can hold no more."""
        limit = self.lake.settings.consolidate.max_held
        counts = [publisher.held_count for publisher in publishers.values()]
        self.memories[signal].has_held = any(counts)
        for publisher in publishers.values():
            table, held = publisher.table.name, publisher.held_count
            report.held_batches[table] = held
            if held >= limit:
                logger.warning(
                    "%s: %d batches are held, and no more may be (consolidate.max_held); the next "
                    "that fails its audits stops the table. Run: neve staged list %s, then: "
                    "neve staged publish|discard %s --all",
                    table,
                    held,
                    table,
                    table,
                )

    def _publisher(self, name: str, report: Report) -> Publisher:
        return Publisher(self.tables.open(name), self.reader, counters=report.commits)


class SparkRunner:
    """Runs a job's tasks on the lake's Spark."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake

    def prepare(self) -> None:
        """Start Spark, which takes seconds, before there is data that would wait for it."""
        _ = self.lake.spark

    @property
    def parallelism(self) -> int:
        """How many tasks run side by side."""
        return self.lake.spark.sparkContext.defaultParallelism

    def __call__(self, job: Job) -> Iterable[Mapping[str, Any]]:
        from neve.consolidate.spark import run_job

        return run_job(self.lake, job)


def _require_shared_buffer(lake: Lake, spec: ConsolidateSpec) -> None:
    location = spec.buffer.location
    if not is_object_location(location):
        require_shared(lake.settings.spark, "buffer.location", location)
