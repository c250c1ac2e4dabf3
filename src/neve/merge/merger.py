"""The steps of a merge; each can be killed, repeated, and run by two workers at once.

Delivery: exactly once. How far a mirror has come stands in the summary of the commit that brought
it there, so rows, deletions and checkpoint appear together or not at all. Merging the same events
again changes nothing.
"""

from __future__ import annotations

import logging
import math
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING

from neve import failpoints
from neve.errors import ConfigError, ConflictError, NeveError
from neve.index.maintain import build
from neve.lake.ancestry import main_ancestors
from neve.lake.commit_errors import refused
from neve.lake.commit_loop import CommitCounters, RetryPolicy, commit_until_known
from neve.lake.create import load_if_exists
from neve.lake.job_progress import telling_progress
from neve.merge.batch import BatchWork
from neve.merge.carry_out import MirrorAccess, PlannedWrite, WrittenBatch, plan_batch, revise
from neve.merge.checkpoint import (
    BATCH_ID,
    CHECKPOINT,
    MirrorState,
    side_summary,
    snapshot_to_restore,
)
from neve.merge.double_entry import event_summary
from neve.merge.notes import batch_notes, look_notes, retry_notes
from neve.merge.plan import (
    KnownChangelog,
    LoadedTables,
    Observe,
    look,
    look_anew,
    look_rejected,
    next_batch,
)
from neve.merge.report import MergedBatch, Preview, TableReport
from neve.merge.side_tables import MirrorTables, write_rejected
from neve.merge.spec import merge_specs
from neve.merge.strategy import INDEXED_ROWS, Strategy, find_obstacle, first_plan
from neve.merge.turn import Turn
from neve.observe.traces import span

if TYPE_CHECKING:
    import threading

    from neve.lake import Lake
    from neve.merge.spec import MergeSpec

logger = logging.getLogger(__name__)

# How long nothing is tried again: of the time that it took, and at least so many seconds.
_PAUSES, _LEAST_PAUSE = 20, 600.0


@dataclass(frozen=True)
class Committed:
    """One batch that is in the mirror, or whose commit was sent."""

    batch_id: str
    written: WrittenBatch
    seconds: float

    @property
    def ends_backlog(self) -> bool:
        """Tell whether nothing is left of what waited when the changelog was looked at."""
        work = self.written.work
        reached, newest = work.batch.reaches, work.tables.changelog.current_snapshot_id
        return reached.scanning is None and reached.snapshot_id == newest


@dataclass
class Merger:
    """Keeps one mirror."""

    lake: Lake
    spec: MergeSpec
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    progress: Callable[[str], None] = logger.info
    strategy: Strategy = Strategy.AUTO
    # Is told of each commit; without one, `progress` is.
    on_commit: Callable[[MergedBatch], None] | None = None
    # As they were looked at in the last turn.
    loaded: LoadedTables = field(default_factory=LoadedTables)
    # After an index could not be built: whatever the reason, it is likely to last.
    _no_index_before: float = -math.inf
    _sent: Committed | None = None
    # Nothing is left in `<mirror>_rejected` of a merge that died.
    _rejected_is_restored: bool = False

    @property
    def name(self) -> str:
        return self.spec.name

    def _tell(self, batch: MergedBatch) -> None:
        if self.on_commit is not None:
            self.on_commit(batch)
        else:
            self.progress(str(batch))

    @property
    def mirror_tables(self) -> MirrorTables:
        return MirrorTables(self.lake, self.spec)

    def rebuild(
        self, report: TableReport | None = None, *, accept_loss: bool = False
    ) -> TableReport:
        """Make the mirror anew of the whole changelog, in one commit that replaces all its rows.

        Args:
            report: is filled in and returned; whoever gives one has it also after an error.
            accept_loss: of what the changelog has, even if events may be missing there.

        Raises:
            CatalogError: it cannot be proven that the changelog holds all its events.
        """
        observe = partial(look_anew, accept_loss=accept_loss)
        return self._commit_once(report or TableReport(self.name), observe)

    def retry_rejected(self, report: TableReport | None = None) -> TableReport:
        """Merge the events of `<mirror>_rejected` that can be taken now, in one commit.

        Exactly once: the same commit names the snapshot of that table without them.

        Args:
            report: is filled in and returned; whoever gives one has it also after an error.

        Raises:
            CatalogError: they are events of a changelog that does not exist any more.
        """
        return self._commit_once(report or TableReport(self.name), look_rejected)

    def _commit_once(self, report: TableReport, observe: Observe) -> TableReport:
        with _timed(report), Turn.begun(self.lake, self.spec) as turn:
            done = self._retry_until_committed(report, turn, observe)
            if done is not None:
                report.add(done.written.work.counts, done.seconds)
        return report

    def preview(
        self, *, rebuild: bool = False, retry_rejected: bool = False, accept_loss: bool = False
    ) -> Preview:
        """Say what the next commit would change, or a rebuild, or a retry. Writes nothing."""
        anew = partial(look_anew, accept_loss=accept_loss)
        observe = look_rejected if retry_rejected else anew if rebuild else look
        tables = observe(self.lake, self.spec)
        if tables.pending.is_empty:
            return Preview(self.name, notes=look_notes(self.name, tables))
        with ExitStack() as stack:
            turn = stack.enter_context(Turn.begun(self.lake, self.spec))
            batch = next_batch(tables, self.spec, turn.plan_files)
            work = stack.enter_context(
                BatchWork.reading(self.lake, turn.session, self.spec, tables, batch)
            )
            tombstones_id, state = None, tables.state
            tombstones = load_if_exists(
                self.lake.profile, self.lake.catalog(), self.spec.tombstones
            )
            if state is not None and tombstones is not None and not tables.rebuild:
                tombstones_id = snapshot_to_restore(tombstones.metadata, state, state.tombstones_id)
            work.decide(work.scanning(tombstones_id, datetime.now(timezone.utc)))
            mirror = MirrorAccess(work, tombstones)
            plan = plan_batch(mirror, self.strategy)
            while obstacle := find_obstacle(plan, work.counts):
                plan = revise(plan, obstacle, mirror)
        lag, notes = (
            tables.pending.lag_snapshots,
            [*look_notes(self.name, tables), *retry_notes(work)],
        )
        return Preview(self.name, lag, work.counts, plan, notes)

    def merge(
        self, stop: threading.Event | None = None, report: TableReport | None = None
    ) -> TableReport:
        """Merge all that is waiting, a commit for each batch; stop between commits when asked.

        Args:
            stop: once it is set, no batch is begun or tried again, and no index built.
            report: is filled in and returned; whoever gives one has it also after an error.

        Raises:
            NeveError: the mirror is as the last commit left it, and the next call goes on there.
        """
        report = report or TableReport(self.name)
        with _timed(report), Turn.begun(self.lake, self.spec) as turn:
            while done := self._retry_until_committed(report, turn, stop=stop):
                self._tell(report.add(done.written.work.counts, done.seconds))
                if not _is_set(stop):
                    done.written.compact_index()
                    self._want_index(done, report)
                    self._build_index(report)
                if done.ends_backlog:
                    report.lag_seconds, report.lag_snapshots = 0.0, 0
                if _is_set(stop) or done.ends_backlog:
                    break
        return report

    def _retry_until_committed(
        self,
        report: TableReport,
        turn: Turn,
        observe: Observe | None = None,
        stop: threading.Event | None = None,
    ) -> Committed | None:
        """Merge one batch until it is committed, or refused for good; None: nothing waits.

        Args:
            observe: looks at the tables; without it, as far as the turn does not know them.
        """

        def attempt() -> Committed | None:
            # Looks at the tables anew by itself.
            try:
                known = partial(look, known=turn.known, loaded=self.loaded)
                with _refusing_expired(self.name):
                    done = self._merge_batch(report, turn, observe or known)
            except NeveError as error:
                report.conflicts += isinstance(error, ConflictError)
                turn.look_again()
                raise
            return done

        self._sent = None
        return commit_until_known(
            lambda: None,
            attempt,
            self._find_applied,
            policy=self.retry,
            counters=CommitCounters(),
            stop=stop,
        )

    def _find_applied(self) -> Committed | None:
        """Return the batch that was sent last, if the mirror has it."""
        if self._sent is None or not self._is_published(self._sent.batch_id):
            return None
        failpoints.reach("merge.published")
        return self._sent

    def _merge_batch(self, report: TableReport, turn: Turn, observe: Observe) -> Committed | None:
        started = time.monotonic()
        with span("merge.look", table=self.name):
            tables = observe(self.lake, self.spec)
        report.lag_seconds = tables.pending.lag_seconds
        report.lag_snapshots = tables.pending.lag_snapshots
        for note in look_notes(self.name, tables):
            report.note(note)
        if tables.pending.is_empty:
            if tables.mirror is None:
                self.mirror_tables.prepare(tables, observe)
            elif report.conflicts:
                self.mirror_tables.restore_side_tables(tables)
            return None
        with ExitStack() as stack:
            with span("merge.prepare", table=self.name):
                if tables.mirror is not None:
                    tables = self.mirror_tables.prepare(tables, observe)
                    failpoints.reach("merge.prepared")
                batch = next_batch(tables, self.spec, turn.plan_files)
            work = stack.enter_context(
                BatchWork.reading(self.lake, turn.session, self.spec, tables, batch)
            )
            if tables.mirror is None:
                self._make_mirror_for(work, observe)
                failpoints.reach("merge.prepared")
            for note in retry_notes(work):
                report.note(note)
            if work.retried is not None and work.events.isEmpty():
                return None
            written, summary = self._write(work, report)
            sent = Committed(summary[BATCH_ID], written, time.monotonic() - started)
            self._sent = sent
            with self._telling(work, "writing rows"):
                written.commit(summary)
            self._rejected_is_restored = True
        failpoints.reach("merge.published")
        turn.known = KnownChangelog(tables.changelog, batch.reaches, tables.changelog_io)
        return replace(sent, seconds=time.monotonic() - started)

    def _telling(self, work: BatchWork, step: str) -> AbstractContextManager[None]:
        """Say how far the steps of a bulk load have come; other batches are short."""
        if not work.tables.is_bulk_load:
            return nullcontext()
        told = f"{self.name}: loading in one commit: {step}"
        self.progress(told)
        context = work.session.sparkContext
        return telling_progress(context, lambda how_far: self.progress(f"{told}, {how_far}"))

    def _make_mirror_for(self, work: BatchWork, observe: Observe) -> None:
        """Read the first batch, then make its mirror: one that cannot be read leaves nothing.

        Raises:
            ConflictError: another worker was first.
        """
        with self._telling(work, "reading events"):
            work.decide(work.scanning(None, datetime.now(timezone.utc)))
        read_from, work.tables = work.tables, self.mirror_tables.prepare(work.tables, observe)
        if work.tables.pending.checkpoint != read_from.pending.checkpoint:
            raise ConflictError(
                f"{self.name}: another worker has made it", hint="it is tried again", retryable=True
            )

    def _write(
        self, work: BatchWork, report: TableReport
    ) -> tuple[WrittenBatch, Mapping[str, str]]:
        """Decide a batch and write all but the mirror's commit; also return its summary."""
        tables, state = work.tables, work.tables.state
        if state is None:
            raise AssertionError("the mirror was prepared")
        batch_id, now = uuid.uuid4().hex, datetime.now(timezone.utc)
        tombstones = self.mirror_tables.tombstones(tables)
        with span("merge.beside", table=self.name):
            if tables.rebuild:
                tombstones_id = tombstones.empty()
            else:
                tombstones_id = tombstones.restore(state, state.tombstones_id)
        planned = PlannedWrite(
            work, tombstones, tombstones_id, batch_id, now, self.strategy, report, self.progress
        )
        with nullcontext() if work.is_decided else self._telling(work, "reading events"):
            written = planned.write()
        report.take_plan(written.plan)
        for note in batch_notes(self.name, work.counts):
            report.note(note)
        if written.tombstone_files:
            with span("merge.bury", table=self.name):
                tombstones_id = tombstones.staging.append(
                    written.tombstone_files, {BATCH_ID: batch_id}
                )
        failpoints.reach("merge.tombstones_written")
        rejected_id = self._write_rejected(work, state, batch_id, now)
        failpoints.reach("merge.rejected")
        summary = {
            CHECKPOINT: work.batch.reaches.encode(),
            BATCH_ID: batch_id,
            **side_summary(tombstones_id, rejected_id),
            **work.barrier_summary(),
            **event_summary(work.counts),
        }
        return written, summary

    def _write_rejected(
        self, work: BatchWork, state: MirrorState, batch_id: str, now: datetime
    ) -> int | None:
        """Write what of a batch is rejected; return the snapshot that the mirror is to name.

        Its table is loaded only if something is written there, or may have been left there: by a
        process before this one, or by an attempt that failed.
        """
        is_touched = work.counts.set_aside or work.tables.rebuild or work.retried is not None
        if not is_touched and state.is_proven and self._rejected_is_restored:
            return state.rejected_id
        self._rejected_is_restored = False
        rejected = self.mirror_tables.rejected()
        restored_id = rejected.restore(state, state.rejected_id)
        return write_rejected(work, rejected, restored_id, batch_id, now)

    def _want_index(self, done: Committed, report: TableReport) -> None:
        """Have an index built of a mirror that was loaded just now, if merges will use one."""
        work = done.written.work
        if work.tables.is_bulk_load and work.counts.upserted >= INDEXED_ROWS:
            loaded = look(self.lake, self.spec)
            report.index_wanted = first_plan(loaded, 0, self.strategy).uses_index

    def _build_index(self, report: TableReport) -> None:
        """Build the index that the next merge will use; a failure costs nothing but time."""
        if not report.index_wanted or time.monotonic() < self._no_index_before:
            return
        report.index_wanted = False
        started = time.monotonic()
        try:
            retention = self.spec.tombstone_retention_seconds
            report.count_index(build(self.lake, self.spec.mirror, self.progress, retention))
        except (NeveError, OSError) as error:
            report.note(f"{self.name}: the index was not built: {error}")
            ended = time.monotonic()
            self._no_index_before = ended + max(_LEAST_PAUSE, _PAUSES * (ended - started))

    def _is_published(self, batch_id: str) -> bool:
        """Tell whether a batch is in the history of the mirror's `main`."""
        mirror = load_if_exists(self.lake.profile, self.lake.catalog(), self.spec.mirror)
        if mirror is None:
            return False
        return any(
            snapshot.summary is not None and snapshot.summary[BATCH_ID] == batch_id
            for snapshot in main_ancestors(mirror.metadata)
        )


def configured_mergers(
    lake: Lake,
    names: tuple[str, ...],
    progress: Callable[[str], None],
    strategy: str = "auto",
    on_commit: Callable[[MergedBatch], None] | None = None,
) -> list[Merger]:
    """Return what keeps each configured mirror, or each of the named ones.

    Args:
        on_commit: is told of each commit; without one, `progress` is.

    Raises:
        ConfigError: none is configured.
    """
    lake.profile.require_catalog("merging")
    specs = merge_specs(lake.settings, names)
    if not specs:
        raise ConfigError(
            "merge.tables names no mirror", hint="see docs/mirroring-a-database.md for an example"
        )
    chosen = Strategy(strategy)
    return [
        Merger(lake, spec, progress=progress, strategy=chosen, on_commit=on_commit)
        for spec in specs
    ]


@contextmanager
def _refusing_expired(mirror: str) -> Iterator[None]:
    """Refuse a merge of what others have expired since it was looked at."""
    try:
        yield
    except FileNotFoundError as error:
        raise refused(mirror, "a merge", f"a file is not there: {error}") from error


def _is_set(stop: threading.Event | None) -> bool:
    return stop is not None and stop.is_set()


@contextmanager
def _timed(report: TableReport) -> Iterator[None]:
    started = time.monotonic()
    try:
        yield
    finally:
        report.duration_seconds = time.monotonic() - started
