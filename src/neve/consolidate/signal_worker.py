"""One worker's work at one signal: finish what was staged, then batch after batch.

Delivery: exactly once for each table, whatever is killed and however many workers run. A table's
marks say what it has consumed; everything else here can be done again.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from neve import failpoints
from neve.buffer.layout import buffer_id_of
from neve.buffer.listing import SignalListing, StreamStatus
from neve.buffer.read_ahead import at_once
from neve.buffer.reader import BufferReader
from neve.buffer.stream_states import StreamState
from neve.consolidate.duplicate_notes import (
    decode_duplicates,
    encode_duplicates,
    find_duplicates_left_out,
)
from neve.consolidate.duplicates import Identity, find_duplicates, possible_duplicates
from neve.consolidate.memory import SignalMemory
from neve.consolidate.plan import Batch, Progress, plan_batches, plan_tasks, position_of
from neve.consolidate.report import Report, TableResult
from neve.consolidate.spec import ConsolidateSpec
from neve.consolidate.task import Job, JobResult, Target, Written, parallelism_of
from neve.errors import NeveError, NotFoundError, StorageError
from neve.lake.staged_snapshot import StagedSnapshot
from neve.lake.staging import StagingTable
from neve.observe import sentry
from neve.publish.audited_publisher import AuditedPublisher
from neve.publish.batch import Outcome
from neve.publish.batch_counts import require_balance
from neve.publish.contains import encode_read_from
from neve.publish.ledger import LedgerEntry
from neve.publish.publisher import Publisher
from neve.publish.ranges import (
    REJECTED_PREFIX,
    Marks,
    Ranges,
    encode_other_marks,
    read_marks,
)
from neve.signals import Signal
from neve.telemetry.schemas import TABLES_OF

if TYPE_CHECKING:
    from neve.lake import Lake

logger = logging.getLogger(__name__)

NANOS = 1_000_000_000

Runner = Callable[[Job], Iterable[Mapping[str, Any]]]


@dataclass(frozen=True)
class _Attempt:
    """A batch that is being done: which one, and since when."""

    batch: Batch
    batch_id: str
    started: datetime
    oldest_received_unix_nano: int | None


@dataclass
class SignalWorker:
    """One run at one signal. A table that fails sits out the rest of it; the others go on."""

    lake: Lake
    spec: ConsolidateSpec
    reader: BufferReader
    runner: Runner
    signal: Signal
    memory: SignalMemory
    report: Report
    # Of the signal: before the first batch, and after each.
    listing: SignalListing
    # The tables that have not failed, and the marks of each table as they were read last.
    publishers: dict[str, Publisher] = field(default_factory=dict)
    marks: dict[str, Marks] = field(default_factory=dict)
    # The tables that could be opened, also those that failed later.
    tables: dict[str, StagingTable] = field(default_factory=dict)
    # For each table, the entries of its next staged snapshot that a replay needs.
    summaries: dict[str, dict[str, str]] = field(default_factory=dict)

    def open_tables(self, open_table: Callable[[str], Publisher]) -> None:
        """Open the tables of the signal, but for those that failed a moment ago."""
        for name in TABLES_OF[self.signal]:
            if not self.memory.is_paused(name):
                with self._isolated(name):
                    self.publishers[name] = open_table(name)
                    self.tables[name] = self.publishers[name].table

    def finish_staged(self) -> None:
        """Publish what a worker before us staged and did not live to publish."""
        for name, publisher in list(self.publishers.items()):
            with self._isolated(name):
                if any(key.startswith(REJECTED_PREFIX) for key in publisher.table.properties):
                    self._audited(publisher).rejected.finish()
                while staged := publisher.waiting():
                    # Told in the ledger when it was staged; each run is told of it again.
                    require_balance(publisher.table.name, staged)
                    self._publish(name, staged, _now())
                if name not in self.memory.finished_rejected:
                    # Once: what a kill has left and the table does not name, and has lost by now.
                    self._audited(publisher).rejected.finish()
                    self.memory.finished_rejected.add(name)

    def run_batches(self) -> bool:
        """Do the next batch of each table; False when nothing waits for those that can go on."""
        for name, publisher in list(self.publishers.items()):
            with self._isolated(name):
                self.marks[name] = publisher.marks()
        if not self._shows_what_is_consumed():
            self._list()
        progress = {
            name: Progress(self.marks[name], self._position(name)) for name in self.publishers
        }
        batches = plan_batches(self.listing.segments(), progress, self.spec.batch_bytes)
        oldest = self._oldest_received() if batches else None
        for batch in batches:
            self._run(_Attempt(batch, uuid.uuid4().hex[:16], _now(), oldest))
        if batches:
            failpoints.reach("consolidate.published")
        if batches or self._consumed_segments():
            # What was listed before the commits says nothing of what is there now.
            self._list()
            self._retire()
        failpoints.reach("consolidate.retired")
        return bool(batches)

    def _list(self) -> None:
        self.listing, _ = self.reader.look(self.signal.value)

    def _shows_what_is_consumed(self) -> bool:
        """Tell whether the listing has all requests that the tables consumed, to find copies.

        Another worker may have consumed what came after the listing.
        """
        if self.spec.buffer.dedup_seconds <= 0:
            return True
        own = {
            stream: max(marks.get(stream, 0) for marks in self.marks.values())
            for stream in {stream for marks in self.marks.values() for stream in marks}
            if buffer_id_of(stream) == self.reader.buffer_id
        }
        gone = self.reader.dropped(stream for stream in own if stream not in self.listing.streams)
        return self.listing.shows_all_of({s: mark for s, mark in own.items() if s not in gone})

    def _streams(self) -> list[StreamStatus]:
        try:
            return self.reader.describe(self.listing)
        except NotFoundError:
            # Another worker has retired some of it.
            return self.reader.streams(self.signal.value)

    def _oldest_received(self) -> int | None:
        received = [stream.oldest_received_unix_nano for stream in self._streams()]
        return min((nano for nano in received if nano), default=None)

    def end(self, *, is_drained: bool) -> None:
        """Let tables that did not fail go on at their own pace, and drop what is not needed.

        Args:
            is_drained: nothing waits any more for the tables that can go on.
        """
        for name in self.publishers:
            self.memory.resume(name)
        self.reader.drop_all(self.listing)
        self._remove_drop_notes()
        streams = self._streams()
        self.memory.keep_only(stream.stream for stream in streams)
        if is_drained:
            self.memory.finish(streams)

    def _position(self, name: str) -> dict[str, int]:
        empty = self.memory.empty_through.get(name, {})
        return position_of(self.marks.get(name, {}), self.listing.retired_through, empty)

    def _run(self, attempt: _Attempt) -> None:
        written = self._decode(attempt)
        failpoints.reach("consolidate.decoded")
        for name, of_table in written.items():
            with self._isolated(name, attempt):
                if of_table.files:
                    self._stage_and_publish(name, attempt, of_table)
                else:
                    table = self.publishers[name].table.name
                    of_table.counts.require_balance(table, attempt.batch_id, 0)
                    copies = decode_duplicates(self.summaries[name])
                    self.memory.add_empty(name, attempt.batch.last, copies)

    def _decode(self, attempt: _Attempt) -> dict[str, Written]:
        """Write a batch's rows as files of each table; nobody knows of them yet.

        Where that fails, it is done again for each table alone: the fault may be one table's.
        """
        batch = attempt.batch
        if len(batch.ranges) > 1:
            try:
                return self._run_job(batch)
            except Exception as error:  # noqa: BLE001 - a user's table may break any library
                logger.warning("%s: decoding for each table alone: %s", self.signal.value, error)
        written: dict[str, Written] = {}
        for name in batch.ranges:
            with self._isolated(name, attempt):
                written.update(self._run_job(batch.only(name)))
        return written

    def _run_job(self, batch: Batch) -> dict[str, Written]:
        job = self._job(batch)
        self.summaries.update(self._summaries(job))
        result = JobResult.of(job, self.runner(job))
        self.report.dead_letters += result.dead_letters
        self.report.unfit_values += result.unfit_values
        for name, written in result.tables.items():
            self.summaries[name].update(written.counts.encode())
            self.report.duplicate_records += written.counts.duplicates
        return result.tables

    def _job(self, batch: Batch) -> Job:
        identities = self._identities(batch)
        window = int(self.spec.buffer.dedup_seconds * NANOS)
        targets = []
        for name, ranges in batch.ranges.items():
            table = self.publishers[name].table
            targets.append(
                Target(
                    name,
                    table.metadata.model_dump_json(),
                    dict(table.io.properties),
                    ranges,
                    find_duplicates(identities, self.marks[name], ranges, window),
                )
            )
        return Job(
            self.signal,
            self.spec.buffer,
            tuple(targets),
            tuple(plan_tasks(batch.segments, self.spec.task_bytes, parallelism_of(self.runner))),
            self.spec.flush_bytes,
            self.spec.promotions,
        )

    def _summaries(self, job: Job) -> dict[str, dict[str, str]]:
        first_read: dict[str, int] = {}
        for segment in (segment for task in job.tasks for segment in task):
            first_read[segment.stream] = min(
                segment.number, first_read.get(segment.stream, segment.number)
            )
        is_retaining = self.spec.buffer.retain_seconds > 0
        return {
            target.table: {
                **encode_read_from(first_read, target.ranges),
                **encode_duplicates(target.duplicates if is_retaining else ()),
                **self._marks_for_copies(target),
            }
            for target in job.targets
        }

    def _marks_for_copies(self, target: Target) -> dict[str, str]:
        """Return the summary entry for the marks that the search for copies relied on."""
        if self.spec.buffer.dedup_seconds <= 0:
            return {}
        return encode_other_marks(self.marks[target.table], target.ranges, self.reader.owns)

    def _identities(self, batch: Batch) -> list[Identity]:
        """Return what identifies the requests of a batch, and those that may be copies of them."""
        if self.spec.buffer.dedup_seconds <= 0:
            return []
        # What comes later was not consumed by any of these tables, and cannot be a copy's first.
        through = position_of(batch.last, *(self.marks[name] for name in batch.ranges))
        signal = self.signal.value
        try:
            known = self.reader.known_requests(signal, self.listing, through)
            return possible_duplicates(known, batch.last)
        except NotFoundError:
            # Another worker has retired some of it.
            known = self.reader.known_requests(signal, None, through)
            return possible_duplicates(known, batch.last)

    def _stage_and_publish(self, name: str, attempt: _Attempt, written: Written) -> None:
        publisher = self.publishers[name]
        ranges = attempt.batch.ranges[name]
        staged = publisher.stage(attempt.batch_id, written.files, ranges, self.summaries[name])
        if staged is not None:
            self._publish(name, staged, attempt.started, attempt.oldest_received_unix_nano)
        else:
            self._refuse_copies(ranges)
        self.marks[name] = read_marks(publisher.table.properties)

    def _refuse_copies(self, ranges: Ranges) -> None:
        """Raise if a stream was dropped and has segments all the same: they would wait for ever."""
        states = self.reader.stream_states(ranges)
        for stream, state in states.items():
            if state is StreamState.DROPPED and self.reader.segments(stream):
                raise StorageError(
                    f"stream {stream} was consumed and dropped, and has segments again",
                    hint="somebody put a copy of its directory back: remove that directory",
                )

    def _publish(
        self, name: str, staged: StagedSnapshot, started: datetime, oldest: int | None = None
    ) -> None:
        """Audit and publish a staged batch.

        Args:
            oldest: when its oldest request was received, in nanoseconds, if that is known.
        """
        publisher = self.publishers[name]
        identifier = publisher.table.name
        verdict = self._audited(publisher).audit_and_publish(staged)
        self.report.audits += [(identifier, result) for result in verdict.results]
        self.report.set_aside += verdict.set_aside
        entry = LedgerEntry.of(publisher.table, verdict, started)
        self.report.ledger.append(entry)
        if verdict.outcome is not Outcome.UNBALANCED:
            self.report.results.append(_result(entry, oldest))
        if verdict.unfinished is not None:
            raise verdict.unfinished

    def _audited(self, publisher: Publisher) -> AuditedPublisher:
        audits = self.lake.settings.audits.get(publisher.table.name, ())
        return AuditedPublisher(self.lake, publisher, audits)

    def _consumed_segments(self) -> dict[str, list[int]]:
        """Return the segments that no table of the signal needs; one that failed keeps its own."""
        positions = [self._position(name) for name in TABLES_OF[self.signal]]
        consumed = {}
        for stream, segments in self.listing.segments().items():
            through = min(position.get(stream, 0) for position in positions)
            numbers = [segment.number for segment in segments if segment.number <= through]
            if numbers:
                consumed[stream] = numbers
        return consumed

    def _retire(self) -> None:
        is_retaining = self.spec.buffer.retain_seconds > 0
        copies = self.memory.copies
        left_out = find_duplicates_left_out(self.tables, copies) if is_retaining else {}
        consumed = self._consumed_segments()

        def retire(stream: str) -> None:
            for number in consumed[stream]:
                if (stream, number) in left_out:
                    self.reader.note_duplicates(stream, number, left_out[stream, number])
            self.reader.retire(stream, consumed[stream][-1], self.listing)

        at_once(retire, consumed)
        self.report.retired_segments += sum(map(len, consumed.values()))

    def _remove_drop_notes(self) -> None:
        """Remove the notes of dropped streams that no table of the signal remembers."""
        if len(self.publishers) < len(TABLES_OF[self.signal]):
            return
        publishers = self.publishers.values()
        notes = self.reader.removable_drop_notes(self.signal.value)
        forgotten = [s for s in notes if not any(table.remembers(s) for table in publishers)]
        if not forgotten:
            return
        # Another worker may have staged since the tables were read.
        for publisher in publishers:
            publisher.marks()
        for stream in forgotten:
            if not any(publisher.remembers(stream) for publisher in publishers):
                self.reader.remove_drop_note(stream)

    @contextmanager
    def _isolated(self, name: str, attempt: _Attempt | None = None) -> Iterator[None]:
        """Let a failure be this table's alone: told in the report, and no exception."""
        started = attempt.started if attempt else _now()
        try:
            yield
        except Exception as error:  # noqa: BLE001 - a user's audit or table may raise anything
            self.publishers.pop(name, None)
            table = f"{self.spec.namespace}.{name}"
            message = describe_failure(error).removeprefix(f"{table}: ")
            logger.warning("%s failed: %s", table, message)
            sentry.capture(error, "consolidate", table)
            self.memory.pause(name, message)
            batch_id = attempt.batch_id if attempt else ""
            took = _seconds_since(started)
            self.report.results.append(
                TableResult(batch_id, table, "failed", 0, 0, 0, took, message)
            )


def describe_failure(error: Exception) -> str:
    """Return what to tell of a failure; of a defect, ours or a library's, its kind is enough."""
    if isinstance(error, NeveError):
        return str(error)
    logger.error("unexpected failure", exc_info=error)
    return f"internal error: {type(error).__name__}"


def _result(entry: LedgerEntry, oldest: int | None) -> TableResult:
    # Never negative: the receiver may have run on a machine whose clock is ahead.
    lag = None if oldest is None else max(0.0, round((time.time_ns() - oldest) / NANOS, 3))
    return TableResult(
        entry.batch_id,
        entry.table,
        entry.outcome,
        entry.rows,
        entry.files,
        entry.bytes,
        _seconds_since(entry.started_at),
        lag_seconds=lag,
    )


def _now() -> datetime:
    return datetime.now(timezone.utc)


def _seconds_since(started: datetime) -> float:
    return round((_now() - started).total_seconds(), 3)
