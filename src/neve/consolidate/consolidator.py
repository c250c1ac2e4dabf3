"""A consolidation worker: signal after signal, each in its turn, until nothing waits.

Delivery: exactly once for each table, whatever is killed and however many workers run.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from neve.buffer.buffer import is_object_location, open_store
from neve.buffer.dead_letter_limit import DeadLetterLimit
from neve.buffer.reader import BufferReader
from neve.consolidate.check import check_tables
from neve.consolidate.kept_lease import KeptLease, NoLease
from neve.consolidate.report import Report
from neve.consolidate.signal_worker import Runner, SignalWorker
from neve.consolidate.spec import ConsolidateSpec
from neve.consolidate.task import Job
from neve.lake.create import FEW_METADATA_FILES, TableSpec, ensure_table
from neve.lake.shared_paths import require_shared
from neve.lake.staging import StagingTable
from neve.publish.ledger import LedgerWriter
from neve.publish.publisher import Publisher
from neve.signals import Signal
from neve.telemetry.promote import with_promoted_fields
from neve.telemetry.schemas import SCHEMAS, TABLES_OF

if TYPE_CHECKING:
    from neve.lake import Lake

__all__ = ["TABLE_PROPERTIES", "Consolidator", "Report", "SparkRunner"]

logger = logging.getLogger(__name__)

# How often a worker that waits for its turn looks whether it has come.
WAIT_SECONDS = 0.2
TABLE_PROPERTIES: Mapping[str, str] = {
    **FEW_METADATA_FILES,
    "write.parquet.compression-codec": "zstd",
    "commit.manifest-merge.enabled": "true",
}
BLOOM_PROPERTY = "write.parquet.bloom-filter-enabled.column.trace_id"


class Consolidator:
    """One worker. Several may run; each batch is won by one of them."""

    def __init__(self, lake: Lake, spec: ConsolidateSpec, runner: Runner) -> None:
        check_tables(lake.settings)
        self.lake = lake
        self.spec = spec
        self.runner = runner
        self.store = open_store(spec.buffer)
        self.reader = BufferReader(self.store, dedup_seconds=spec.buffer.dedup_seconds)
        self.dead_letter_limit = DeadLetterLimit(self.store, spec.buffer)
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
    ) -> Report:
        """Consume everything that is sealed now. Safe to kill anywhere, and to run again.

        Args:
            report: what to add to, so that what was done before a failure is known too.
            stop: once it is set, no further batch is begun.
            wait: where another worker is at it, wait until that one is done, or known as dead;
                without it, leave the signal to that worker.
        """
        report = Report() if report is None else report
        stop = stop or threading.Event()
        self.reader.close_abandoned()
        for signal in Signal:
            while self.reader.streams(signal.value):
                if self._take_turn(signal, report, stop, wait=wait) or not wait:
                    break
        self.ledger.add(report.ledger)
        self.ledger.write_when_due()
        if not stop.is_set():
            self.look_after_buffer(report)
        return report

    def look_after_buffer(self, report: Report) -> None:
        """Write the ledger and clean up, when it is due; also while nothing comes in."""
        self.ledger.write_when_due()
        removed = self.dead_letter_limit.enforce_when_due(added=report.dead_letters > 0)
        report.expired_dead_letters += removed.expired
        report.dead_letters_over_limit += removed.over_limit

    def _take_turn(
        self, signal: Signal, report: Report, stop: threading.Event, *, wait: bool
    ) -> bool:
        """Consolidate a signal if no other worker is at it; False when our turn was lost."""
        seconds = self.spec.lease_seconds
        lease = self.store.lease(signal.value, seconds) if seconds > 0 else NoLease()
        with KeptLease(signal.value, lease, seconds) as turn:
            while not turn.begin():
                if not wait or stop.wait(WAIT_SECONDS):
                    report.left_to_others.append(signal.value)
                    return True
            self._consolidate(signal, report, stop, turn)
            return not turn.is_lost

    def _consolidate(
        self, signal: Signal, report: Report, stop: threading.Event, turn: KeptLease
    ) -> None:
        publishers = {name: self._publisher(signal, name, report) for name in TABLES_OF[signal]}
        work = SignalWorker(
            self.lake, self.spec, self.reader, self.runner, signal, publishers, report
        )
        work.finish_staged()
        while not stop.is_set() and not turn.is_lost and work.run_batch():
            pass
        self._count_held(publishers, report)
        for stream in self.reader.streams(signal.value):
            if stream.closed and not stream.segments:
                self.reader.drop(stream.stream)

    def _count_held(self, publishers: Mapping[str, Publisher], report: Report) -> None:
        """Report how many batches tables hold, and warn of those that can hold no more."""
        limit = self.lake.settings.consolidate.max_held
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

    def _publisher(self, signal: Signal, name: str, report: Report) -> Publisher:
        schema = with_promoted_fields(SCHEMAS[name], self.spec.promotions)
        bloom = {BLOOM_PROPERTY: "true"} if "trace_id" in schema.names else {}
        table = ensure_table(
            self.lake.profile,
            self.lake.catalog(),
            TableSpec(
                (*self.spec.namespace.split("."), name),
                schema,
                partition_by_day="timestamp",
                sort_by=("service_name", "timestamp"),
                properties={**TABLE_PROPERTIES, **bloom},
            ),
        )
        staging = StagingTable(self.lake.profile, table)
        streams = partial(self._streams, signal)
        return Publisher(staging, streams, counters=report.commits)

    def _streams(self, signal: Signal | None = None) -> list[str]:
        found = self.reader.streams(signal.value if signal else None)
        return [one.stream for one in found]


class SparkRunner:
    """Runs a job's tasks on the lake's Spark."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake

    def prepare(self) -> None:
        """Start Spark, which takes seconds, before there is data that would wait for it."""
        _ = self.lake.spark

    def __call__(self, job: Job) -> Iterable[Mapping[str, Any]]:
        from neve.consolidate.spark import run_job

        with self.lake.explaining():
            return run_job(self.lake.spark, job)


def _require_shared_buffer(lake: Lake, spec: ConsolidateSpec) -> None:
    location = spec.buffer.location
    if not is_object_location(location):
        require_shared(lake.settings.spark, "buffer.location", location)
