"""One worker's work at one signal: finish what was staged, then batch after batch.

Delivery: exactly once for each table, whatever is killed and however many workers run. A table's
marks say what it has consumed; everything else here can be done again.
"""

from __future__ import annotations

import logging
import pickle
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from neve import failpoints
from neve.buffer.reader import BufferReader, Segment
from neve.consolidate.duplicate_notes import encode_duplicates, find_duplicates_left_out
from neve.consolidate.duplicates import Identity, find_duplicates
from neve.consolidate.plan import Batch, plan_batch, plan_tasks
from neve.consolidate.report import Report, TableResult
from neve.consolidate.spec import ConsolidateSpec
from neve.consolidate.task import Job, Target
from neve.errors import NeveError
from neve.lake.staging import StagedSnapshot
from neve.observe import sentry
from neve.publish.audited_publisher import AuditedPublisher
from neve.publish.contains import encode_read_from
from neve.publish.ledger import LedgerEntry
from neve.publish.publisher import Outcome, Publisher
from neve.publish.ranges import BATCH_ID, Marks, decode_ranges
from neve.signals import Signal

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile

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
    # Of each table's staged snapshot, the entries that a replay needs.
    summaries: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class SignalWorker:
    """What is to be done at a signal, with what, and whom to tell."""

    lake: Lake
    spec: ConsolidateSpec
    reader: BufferReader
    runner: Runner
    signal: Signal
    publishers: Mapping[str, Publisher]
    report: Report

    def finish_staged(self) -> None:
        """Publish what a worker before us staged and did not live to publish."""
        for name, publisher in self.publishers.items():
            while staged := publisher.waiting():
                self._publish(name, staged, _now())

    def run_batch(self) -> bool:
        """Do the next batch; False when nothing waits, or a table could not go on.

        Its segments go once every table has it by this very batch. A batch that another worker
        was faster with may have held more than that one's: what is left is planned anew.
        """
        marks = {name: publisher.marks() for name, publisher in self.publishers.items()}
        waiting = {
            one.stream: self.reader.segments(one.stream)
            for one in self.reader.streams(self.signal.value)
        }
        batch = plan_batch(waiting, marks, self.spec.batch_bytes)
        if not batch.segments:
            self._retire({stream: s[-1].number for stream, s in waiting.items() if s})
            return False
        started = _now()
        job = self._job(batch, marks)
        attempt = _Attempt(batch, uuid.uuid4().hex[:16], started, self._summaries(job))
        files = self._decode(job)
        failpoints.reach("consolidate.decoded")
        outcomes = {
            self._stage_and_publish(name, attempt, found) for name, found in files.items() if found
        }
        if outcomes <= {Outcome.PUBLISHED, Outcome.HELD}:
            failpoints.reach("consolidate.published")
            self._retire(batch.last)
        return None not in outcomes

    def _decode(self, job: Job) -> dict[str, list[DataFile]]:
        """Write a batch's rows as files of each table; nobody knows of them yet."""
        files: dict[str, list[DataFile]] = {name: [] for name in self.publishers}
        for row in self.runner(job):
            if row.get("data_file"):
                file = pickle.loads(row["data_file"])  # noqa: S301 - by our own task, a moment ago
                files[row["table"]].append(file)
            self.report.dead_letters += row.get("dead_letters") or 0
            self.report.unfit_values += row.get("unfit_values") or 0
        return files

    def _job(self, batch: Batch, marks: Mapping[str, Marks]) -> Job:
        identities = self._identities()
        window = int(self.spec.buffer.dedup_seconds * NANOS)
        targets = []
        for name, publisher in self.publishers.items():
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
        duplicates = max((len(one.duplicates) for one in targets), default=0)
        self.report.duplicate_requests += duplicates
        return Job(
            self.signal,
            self.spec.buffer,
            tuple(targets),
            tuple(plan_tasks(batch.segments, self.spec.task_bytes)),
            self.spec.flush_bytes,
            self.spec.promotions,
        )

    def _identities(self) -> list[Identity]:
        if self.spec.buffer.dedup_seconds <= 0:
            return []
        return [
            Identity(entry.received_unix_nano, stream, segment, position, entry.key)
            for stream, segment, position, entry in self.reader.identities(self.signal.value)
        ]

    def _stage_and_publish(
        self, name: str, attempt: _Attempt, files: Sequence[DataFile]
    ) -> Outcome | None:
        """Return how it ended for one table; None when it failed, which the report tells."""
        ranges = attempt.batch.ranges[name]
        try:
            summary = attempt.summaries[name]
            staged = self.publishers[name].stage(attempt.batch_id, files, ranges, summary)
            if staged is None:
                return Outcome.SUPERSEDED
            return self._publish(name, staged, attempt.started)
        except NeveError as error:
            logger.warning("%s: %s", name, error)
            sentry.capture(error, "consolidate", self.publishers[name].table.name)
            took = _seconds_since(attempt.started)
            self.report.results.append(
                TableResult(attempt.batch_id, name, "failed", 0, 0, 0, took, str(error))
            )
            return None

    def _publish(self, name: str, staged: StagedSnapshot, started: datetime) -> Outcome:
        publisher = self.publishers[name]
        identifier = publisher.table.name
        gate = AuditedPublisher(self.lake, publisher, self.lake.settings.audits.get(identifier, ()))
        verdict = gate.audit_and_publish(staged)
        self.report.audits += [(identifier, result) for result in verdict.results]
        self.report.set_aside += verdict.set_aside
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
        self.report.ledger.append(entry)
        self.report.results.append(_result(entry, name))
        return verdict.outcome

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
            }
            for target in job.targets
        }

    def _note_duplicates(self, segments: Iterable[Segment]) -> None:
        tables = {name: publisher.table for name, publisher in self.publishers.items()}
        places = [(segment.stream, segment.number) for segment in segments]
        for (stream, number), positions in find_duplicates_left_out(tables, places).items():
            self.reader.note_duplicates(stream, number, positions)

    def _retire(self, last: Mapping[str, int]) -> None:
        retired = [
            segment
            for stream, through in last.items()
            for segment in self.reader.segments(stream)
            if segment.number <= through
        ]
        if self.spec.buffer.retain_seconds > 0:
            self._note_duplicates(retired)
        for stream, through in last.items():
            self.reader.retire(stream, through)
        self.report.retired_segments += len(retired)
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
