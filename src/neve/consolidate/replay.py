"""Write retained segments again into a table that lacks them: `neve consolidate --replay TABLE`.

Delivery: exactly once. What the table contains is decided anew in every commit, on fresh metadata;
a replay that was killed is simply run again.
"""

from __future__ import annotations

import logging
import time
import uuid
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from neve.consolidate.duplicate_notes import encode_duplicates
from neve.consolidate.duplicates import find_duplicates
from neve.consolidate.plan import plan_tasks
from neve.consolidate.replay_plan import (
    ReplayBatch,
    Unavailable,
    find_unavailable,
    plan_replay,
)
from neve.consolidate.report import ReplayReport
from neve.consolidate.retained_requests import RetainedRequests
from neve.consolidate.tables import ensure_telemetry_table
from neve.consolidate.task import Job, JobResult, Target, Written, parallelism_of
from neve.errors import ConflictError, UsageError
from neve.lake.identifier import name_of
from neve.lake.staging import find_staging_table
from neve.publish.audited_publisher import AuditedOutcome, AuditedPublisher
from neve.publish.batch import STAGED_PREFIX, Outcome
from neve.publish.contains import Contained, contained_in, has_segment, merge, overlaps
from neve.publish.ledger import LedgerEntry
from neve.publish.ranges import REPLAY, Range, read_marks
from neve.publish.replay_publisher import ReplayPublisher, consumed_in
from neve.publish.stagings import load_stagings
from neve.signals import Signal
from neve.telemetry.schemas import TABLES_OF

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from neve.buffer.reader import Segment
    from neve.consolidate.consolidator import Consolidator
    from neve.consolidate.duplicates import Place

logger = logging.getLogger(__name__)

NANOS = 1_000_000_000
_EPOCH = datetime.fromtimestamp(0, timezone.utc)
# How often a replay looks whether the worker that is at the signal has ended its turn.
WAIT_SECONDS = 0.2


def replay_table(worker: Consolidator, table: str, since: datetime | None = None) -> ReplayReport:
    """Write the retained segments of a table's signal that the table lacks. Exactly once.

    Args:
        table: a telemetry table, as namespace and name. It is made if it does not exist.
        since: only segments with a request received since then; UTC if it has no zone.

    Raises:
        UsageError: there is no such telemetry table.
    """
    signal, name = _find_table(worker, table)
    with worker.lease(signal) as turn:
        while not turn.begin():
            time.sleep(WAIT_SECONDS)
        worker.reader.finish_retiring(signal.value)
        return _Replay(worker, signal, name, None if since is None else _unix_nano(since)).run()


def _unix_nano(time: datetime) -> int:
    utc = time if time.tzinfo else time.replace(tzinfo=timezone.utc)
    return (utc - _EPOCH) // timedelta(microseconds=1) * 1000


def _find_table(worker: Consolidator, table: str) -> tuple[Signal, str]:
    profile = worker.lake.profile
    namespace = profile.namespace(worker.spec.namespace)
    names = {(*namespace, name): (signal, name) for signal in Signal for name in TABLES_OF[signal]}
    identifier = profile.table(table)
    if identifier not in names:
        raise UsageError(
            f"{table} is not a telemetry table",
            hint=f"the tables are {', '.join(map(name_of, names))}",
        )
    return names[identifier]


class _Replay:
    """One replay into one table."""

    def __init__(
        self, worker: Consolidator, signal: Signal, name: str, since_unix_nano: int | None
    ) -> None:
        self.worker = worker
        self.signal = signal
        self.name = name
        self.since_unix_nano = since_unix_nano
        table = ensure_telemetry_table(worker.lake, worker.spec, name)
        self.publisher = ReplayPublisher(table, worker.reader)
        self.report = ReplayReport(self.publisher.table.name)
        self.ledger: list[LedgerEntry] = []
        self.requests = RetainedRequests(worker.reader.entries)

    def run(self) -> ReplayReport:
        self._discard_interrupted()
        consumed = consumed_in(self.publisher.table)
        retained = [kept.segment for kept in self.worker.reader.retained(self.signal.value)]
        self.report.retained_segments = len(retained)
        self.report.unavailable = self._find_unavailable(consumed, retained)
        lacking = [s for s in retained if not has_segment(consumed, s.stream, s.number)]
        self.report.segments_contained = len(retained) - len(lacking)
        for segment in lacking:
            self.requests.read(segment)
        since = self.since_unix_nano
        wanted = [s for s in lacking if since is None or self.requests.has_since(s, since)]
        self.report.segments_before_from = len(lacking) - len(wanted)
        duplicates = self._find_duplicates(wanted)
        in_rejected = self._contained_in_rejected()
        for batch in plan_replay(wanted, in_rejected, self.worker.spec.batch_bytes):
            self._write(batch, duplicates)
        self.worker.ledger.add(self.ledger)
        self.worker.ledger.write()
        return self.report

    def _discard_interrupted(self) -> None:
        """Drop what a killed replay staged and did not publish, and show what it set aside.

        The segments are still retained. What a replay of another buffer staged is left to that.
        """
        self.publisher.marks()
        streams = self.publisher.streams
        for staged in load_stagings(self.publisher.table, STAGED_PREFIX, streams):
            if REPLAY in staged.snapshot.summary and staged.is_own:
                self.publisher.discard(staged.snapshot)
        self._audited().rejected.finish()

    def _find_unavailable(self, consumed: Contained, retained: Iterable[Segment]) -> Unavailable:
        reader = self.worker.reader
        numbers: dict[str, list[Range]] = {}
        for segment in retained:
            numbers.setdefault(segment.stream, []).append(Range(segment.number, segment.number))
        return find_unavailable(
            consumed,
            read_marks(self.publisher.table.properties),
            {stream.stream: stream.retired_through for stream in reader.streams(self.signal.value)},
            {stream: merge(ranges) for stream, ranges in numbers.items()},
            reader.buffer_id,
        )

    def _find_duplicates(self, segments: Sequence[Segment]) -> frozenset[Place]:
        """Return the requests that were no rows at first, as another copy of them was stored."""
        noted = self.worker.reader.noted_duplicates(self.signal.value)
        first = {
            (stream, number, position)
            for (stream, number), positions in noted.items()
            for position in positions.get(self.name, ())
        }
        others = [
            request
            for request in self.requests.possible_copies(segments)
            if request.place not in first
        ]
        last: dict[str, int] = {}
        for request in others:
            last[request.stream] = max(request.segment, last.get(request.stream, 0))
        ranges = {stream: Range(1, number) for stream, number in last.items()}
        window = int(self.worker.spec.buffer.dedup_seconds * NANOS)
        return frozenset(first) | find_duplicates(others, {}, ranges, window)

    def _contained_in_rejected(self) -> Contained:
        lake = self.worker.lake
        identifier = self._audited().rejected.identifier
        table = find_staging_table(lake.profile, lake.catalog(), identifier)
        return contained_in(table) if table is not None else {}

    def _write(self, batch: ReplayBatch, duplicates: frozenset[Place]) -> None:
        started = datetime.now(timezone.utc)
        written = self._decode(batch, duplicates)
        batch_id = uuid.uuid4().hex[:16]
        summary = {
            REPLAY: "true",
            **encode_duplicates(_of_batch(batch, duplicates)),
            **written.counts.encode(),
        }
        written.counts.require_balance(self.report.table, batch_id, written.rows)
        staged = self.publisher.stage(batch_id, written.files, batch.ranges, summary)
        if staged is None:
            # Another replay was faster.
            self.report.segments_contained += len(batch.segments)
            return
        if written.files:
            audited = self._audited(batch).audit_and_publish(staged)
        else:
            audited = AuditedOutcome(self.publisher.publish(staged), staged)
        self.ledger.append(LedgerEntry.of(self.publisher.table, audited, started))
        self.report.duplicate_records += written.counts.duplicates
        self._count(batch, duplicates, audited)
        if audited.unfinished is not None:
            raise audited.unfinished

    def _audited(self, batch: ReplayBatch | None = None) -> AuditedPublisher:
        lake = self.worker.lake
        audits = lake.settings.audits.get(self.report.table, ())
        is_in_rejected = batch is not None and batch.is_in_rejected
        return AuditedPublisher(lake, self.publisher, audits, is_in_rejected)

    def _count(
        self, batch: ReplayBatch, duplicates: frozenset[Place], audited: AuditedOutcome
    ) -> None:
        report = self.report
        if audited.outcome is Outcome.SUPERSEDED:
            if not overlaps(consumed_in(self.publisher.table), batch.ranges):
                raise ConflictError(
                    f"{report.table}: another replay discarded a batch of this one",
                    hint="run it again",
                    retryable=True,
                )
            report.segments_contained += len(batch.segments)
            return
        rows = int(audited.staged.summary.get("added-records", 0))
        left_out = len(_of_batch(batch, duplicates))
        report.segments += len(batch.segments)
        report.requests += self.requests.count(batch.segments) - left_out
        report.rows_set_aside += audited.set_aside
        if audited.outcome is Outcome.HELD:
            report.rows_held += rows
        else:
            report.rows += rows

    def _decode(self, batch: ReplayBatch, duplicates: frozenset[Place]) -> Written:
        """Write a batch's rows as files; nobody knows of them yet."""
        spec, table = self.worker.spec, self.publisher.table
        target = Target(
            self.name,
            table.metadata.model_dump_json(),
            dict(table.io.properties),
            batch.ranges,
            duplicates,
        )
        job = Job(
            self.signal,
            spec.buffer,
            (target,),
            tuple(plan_tasks(batch.segments, spec.task_bytes, parallelism_of(self.worker.runner))),
            spec.flush_bytes,
            spec.promotions,
        )
        return JobResult.of(job, self.worker.runner(job)).tables[self.name]


def _of_batch(batch: ReplayBatch, duplicates: frozenset[Place]) -> set[Place]:
    numbers = {(segment.stream, segment.number) for segment in batch.segments}
    return {place for place in duplicates if place[:2] in numbers}
