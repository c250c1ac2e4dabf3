"""Run consolidation: finish what was staged, then batch after batch, until nothing waits.

Delivery: exactly once for each table, whatever is killed and however many workers run. A table's
marks say what it has consumed; everything else here can be done again.
"""

from __future__ import annotations

import logging
import pickle
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Any

from neve import failpoints
from neve.buffer.apply import is_object_location, open_store
from neve.buffer.reader import BufferReader
from neve.consolidate.check import check_tables
from neve.consolidate.duplicates import Identity, find_duplicates
from neve.consolidate.plan import Batch, plan_batch, plan_tasks
from neve.consolidate.spec import ConsolidateSpec
from neve.consolidate.task import Job, Target
from neve.consolidate.turn import NoLease, Turn
from neve.consolidate.upkeep import Upkeep
from neve.errors import ConfigError, NeveError
from neve.lake.create import FEW_METADATA_FILES, TableSpec, ensure_table
from neve.lake.staging import StagedSnapshot, StagingTable
from neve.observe import sentry
from neve.publish.apply import Counters, Outcome, Publisher
from neve.publish.gate import Gate
from neve.publish.ledger import LedgerEntry, write_ledger
from neve.publish.ranges import BATCH_ID, Marks, Ranges, decode_ranges
from neve.signals import Signal
from neve.telemetry.promote import with_promoted_fields
from neve.telemetry.schemas import SCHEMAS, TABLES_OF

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile

    from neve.lake import Lake
    from neve.publish.audits import AuditResult

logger = logging.getLogger(__name__)

NANOS = 1_000_000_000
# How often a worker that waits for its turn looks whether it has come.
WAIT_SECONDS = 0.2
TABLE_PROPERTIES: Mapping[str, str] = {
    **FEW_METADATA_FILES,
    "write.parquet.compression-codec": "zstd",
    "commit.manifest-merge.enabled": "true",
}
BLOOM_PROPERTY = "write.parquet.bloom-filter-enabled.column.trace_id"

Runner = Callable[[Job], Iterable[Mapping[str, Any]]]


@dataclass(frozen=True)
class TableResult:
    """What one batch did to one table."""

    batch_id: str
    table: str
    outcome: str
    rows: int
    files: int
    bytes: int
    seconds: float
    error: str | None = None


@dataclass
class Report:
    """What a run did."""

    results: list[TableResult] = field(default_factory=list)
    ledger: list[LedgerEntry] = field(default_factory=list)
    audits: list[tuple[str, AuditResult]] = field(default_factory=list)
    set_aside: int = 0
    dead_letters: int = 0
    duplicate_requests: int = 0
    unfit_values: int = 0
    retired_segments: int = 0
    # Signals that another worker was at.
    left_to_others: list[str] = field(default_factory=list)
    expired_snapshots: int = 0
    # Staged batches that nobody published, and nobody can any more.
    abandoned: int = 0
    commits: Counters = field(default_factory=Counters)

    @property
    def trouble(self) -> str | None:
        """What kept a table from going on; None when none was."""
        return next((f"{one.table}: {one.error}" for one in self.results if one.error), None)

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.results if one.outcome == Outcome.PUBLISHED.value)

    @property
    def failed(self) -> bool:
        return any(one.error or one.outcome == Outcome.HELD.value for one in self.results)


class Consolidator:
    """One worker. Several may run; each batch is won by one of them."""

    def __init__(self, lake: Lake, spec: ConsolidateSpec, runner: Runner) -> None:
        check_tables(lake.settings)
        self.lake = lake
        self.spec = spec
        self.runner = runner
        self.store = open_store(spec.buffer)
        self.reader = BufferReader(self.store, dedup_seconds=spec.buffer.dedup_seconds)
        self.upkeep = Upkeep(lake, spec, self._streams)
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
        write_ledger(self.lake, report.ledger)
        if not stop.is_set():
            self.look_after_tables(report)
        return report

    def look_after_tables(self, report: Report) -> None:
        """Expire and clean up, when it is time again; also to be called while nothing comes in."""
        done = self.upkeep.run_when_due()
        report.expired_snapshots += done.expired
        report.abandoned += done.abandoned

    def _take_turn(
        self, signal: Signal, report: Report, stop: threading.Event, *, wait: bool
    ) -> bool:
        """Consolidate a signal if no other worker is at it; False when our turn was lost."""
        seconds = self.spec.lease_seconds
        lease = self.store.lease(signal.value, seconds) if seconds > 0 else NoLease()
        with Turn(signal.value, lease, seconds) as turn:
            while not turn.begin():
                if not wait or stop.wait(WAIT_SECONDS):
                    report.left_to_others.append(signal.value)
                    return True
            self._consolidate(signal, report, stop, turn)
            return not turn.is_lost

    def _consolidate(
        self, signal: Signal, report: Report, stop: threading.Event, turn: Turn
    ) -> None:
        publishers = {name: self._publisher(signal, name, report) for name in TABLES_OF[signal]}
        for name, publisher in publishers.items():
            self._finish_staged(name, publisher, report)
        while not stop.is_set() and not turn.is_lost:
            marks = {name: publisher.marks() for name, publisher in publishers.items()}
            waiting = {
                one.stream: self.reader.segments(one.stream)
                for one in self.reader.streams(signal.value)
            }
            batch = plan_batch(waiting, marks, self.spec.batch_bytes)
            if not batch.segments:
                self._retire({stream: s[-1].number for stream, s in waiting.items() if s}, report)
                break
            if not self._run_batch(signal, batch, marks, publishers, report):
                break
        for stream in self.reader.streams(signal.value):
            if stream.closed and not stream.segments:
                self.reader.drop(stream.stream)

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

    def _finish_staged(self, name: str, publisher: Publisher, report: Report) -> None:
        """Publish what a worker before us staged and did not live to publish."""
        while staged := publisher.waiting():
            self._publish(name, publisher, staged, report, _now())

    def _run_batch(
        self,
        signal: Signal,
        batch: Batch,
        marks: Mapping[str, Marks],
        publishers: Mapping[str, Publisher],
        report: Report,
    ) -> bool:
        """Do one batch; False when a table could not go on.

        Its segments go once every table has it by this very batch. A batch that another worker
        was faster with may have held more than that one's: what is left is planned anew.
        """
        started = _now()
        batch_id = uuid.uuid4().hex[:16]
        job = self._job(signal, batch, marks, publishers, report)
        files: dict[str, list[DataFile]] = {name: [] for name in publishers}
        for row in self.runner(job):
            if row.get("data_file"):
                # Written by our own tasks a moment ago.
                files[row["table"]].append(pickle.loads(row["data_file"]))  # noqa: S301
            report.dead_letters += row.get("dead_letters") or 0
            report.unfit_values += row.get("unfit_values") or 0
        failpoints.reach("consolidate.decoded")
        outcomes = {
            self._stage_and_publish(
                name, publisher, batch_id, files[name], batch.ranges[name], report, started
            )
            for name, publisher in publishers.items()
            if files[name]
        }
        if outcomes <= {Outcome.PUBLISHED, Outcome.HELD}:
            failpoints.reach("consolidate.published")
            self._retire(batch.last, report)
        return None not in outcomes

    def _job(
        self,
        signal: Signal,
        batch: Batch,
        marks: Mapping[str, Marks],
        publishers: Mapping[str, Publisher],
        report: Report,
    ) -> Job:
        identities = self._identities(signal)
        window = int(self.spec.buffer.dedup_seconds * NANOS)
        targets = []
        for name, publisher in publishers.items():
            table = publisher.table.table
            dropped = find_duplicates(identities, marks[name], batch.ranges[name], window)
            targets.append(
                Target(
                    name,
                    table.metadata.model_dump_json(),
                    dict(table.io.properties),
                    batch.ranges[name],
                    dropped,
                )
            )
        report.duplicate_requests += max((len(one.duplicates) for one in targets), default=0)
        tasks = tuple(plan_tasks(batch.segments, self.spec.task_bytes))
        return Job(
            signal,
            self.spec.buffer,
            tuple(targets),
            tasks,
            self.spec.flush_bytes,
            self.spec.promotions,
        )

    def _identities(self, signal: Signal) -> list[Identity]:
        if self.spec.buffer.dedup_seconds <= 0:
            return []
        return [
            Identity(entry.received_unix_nano, stream, segment, position, entry.key)
            for stream, segment, position, entry in self.reader.identities(signal.value)
        ]

    def _stage_and_publish(
        self,
        name: str,
        publisher: Publisher,
        batch_id: str,
        files: Sequence[DataFile],
        ranges: Ranges,
        report: Report,
        started: datetime,
    ) -> Outcome | None:
        """Return how it ended for one table; None when it failed, which the report tells."""
        try:
            staged = publisher.stage(batch_id, files, ranges)
            if staged is None:
                return Outcome.SUPERSEDED
            return self._publish(name, publisher, staged, report, started)
        except NeveError as error:
            logger.warning("%s: %s", name, error)
            sentry.capture(error, "consolidate", f"{self.spec.namespace}.{name}")
            report.results.append(
                TableResult(batch_id, name, "failed", 0, 0, 0, _seconds_since(started), str(error))
            )
            return None

    def _publish(
        self,
        name: str,
        publisher: Publisher,
        staged: StagedSnapshot,
        report: Report,
        started: datetime,
    ) -> Outcome:
        identifier = publisher.table.name
        gate = Gate(self.lake, publisher, self.lake.settings.audits.get(identifier, ()))
        verdict = gate.pass_through(staged)
        report.audits += [(identifier, result) for result in verdict.results]
        report.set_aside += verdict.set_aside
        summary = staged.summary
        entry = LedgerEntry(
            batch_id=summary.get(BATCH_ID, ""),
            table=identifier,
            outcome=verdict.outcome.value,
            ranges={k: f"{r.first}-{r.last}" for k, r in decode_ranges(summary).items()},
            rows=int(summary.get("added-records", 0)) - verdict.set_aside,
            files=int(summary.get("added-data-files", 0)),
            bytes=int(summary.get("added-files-size", 0)),
            set_aside=verdict.set_aside,
            audits=[asdict(result) for result in verdict.results],
            staged_snapshot_id=staged.snapshot_id,
            main_snapshot_id=publisher.table.main_id,
            started_at=started,
            finished_at=_now(),
        )
        report.ledger.append(entry)
        report.results.append(_result(entry, name))
        return verdict.outcome

    def _retire(self, last: Mapping[str, int], report: Report) -> None:
        for stream, through in last.items():
            before = self.reader.segments(stream)
            self.reader.retire(stream, through)
            report.retired_segments += sum(one.number <= through for one in before)
        failpoints.reach("consolidate.retired")


def _result(entry: LedgerEntry, name: str) -> TableResult:
    return TableResult(
        entry.batch_id,
        name,
        entry.outcome,
        entry.rows,
        entry.files,
        entry.bytes,
        _seconds_since(entry.started_at),
    )


def _now() -> datetime:
    return datetime.now(timezone.utc)


def _seconds_since(started: datetime) -> float:
    return round((_now() - started).total_seconds(), 3)


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
    master = lake.settings.spark.master
    if not master.startswith("local") and not is_object_location(spec.buffer.location):
        raise ConfigError(
            f"buffer.location {spec.buffer.location} is a local path, which the executors of "
            f"{master} cannot read",
            hint="put the buffer into an object store: s3://bucket/prefix",
        )
