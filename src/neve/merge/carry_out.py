"""Plan a batch and carry the plan out: write everything but the mirror's commit, then commit.

A merge and a dry run make their plans here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from neve import failpoints
from neve.errors import ConflictError, CorruptionError, NeveError, StorageError, UnsupportedError
from neve.index.compaction import plan_compaction
from neve.index.current_root import find_root, register
from neve.index.indexed_table import forget_before, mirror_of
from neve.index.maintain import Refreshed, compacted, refreshed, remove_unreferenced_at_times
from neve.lake.java_tables import JavaTable
from neve.lake.live_files import live_files
from neve.merge.double_entry import require_balance
from neve.merge.locators import index_locator
from neve.merge.merge_into import MergeInto
from neve.merge.partial_rows import require_readable
from neve.merge.replace_rows import ReplaceRows
from neve.merge.strategy import (
    MergePlan,
    Obstacle,
    Strategy,
    find_obstacle,
    first_plan,
    next_plan,
)
from neve.observe.traces import span

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

    from neve.index.indexed_table import Mirror
    from neve.merge.batch import BatchWork
    from neve.merge.locators import Locator, ScanLocator
    from neve.merge.report import TableReport
    from neve.merge.side_tables import SideTable

logger = logging.getLogger(__name__)


@dataclass
class MirrorAccess:
    """The mirror as it was looked at for a batch, its files, and what an index needs of it."""

    work: BatchWork
    tombstones: Table | None

    @cached_property
    def indexed(self) -> Mirror:
        spec = self.work.spec
        return mirror_of(
            self.work.lake,
            spec.mirror,
            self.table,
            self.tombstones,
            spec.tombstone_retention_seconds,
        )

    @property
    def table(self) -> Table:
        table = self.work.tables.mirror_table
        if table is None:
            raise AssertionError("the mirror was prepared")
        return table


def plan_batch(mirror: MirrorAccess, forced: Strategy) -> MergePlan:
    """Plan a batch whose events are not decided yet. Writes nothing."""
    work = mirror.work
    plan = first_plan(work.tables, work.batch.events, forced)
    if plan.uses_index:
        plan = _with_index(plan, mirror, forced)
    return with_vectors(plan, mirror)


def _with_index(plan: MergePlan, mirror: MirrorAccess, forced: Strategy) -> MergePlan:
    """Keep to the index if there is one, or one may be built first."""
    try:
        mirror.indexed.columns  # noqa: B018 - raises for a mirror that cannot be indexed
        root, why = find_root(mirror.indexed)
    except UnsupportedError as error:
        return next_plan(plan, Obstacle.NOT_INDEXABLE, error.message)
    except StorageError as error:
        if error.retryable:
            raise
        # Access is refused, say: a new index would not be read either.
        return next_plan(plan, Obstacle.NOT_INDEXABLE, error.message)
    if root is None and forced is not Strategy.INDEX:
        # A merge does not wait for a whole index, unless it was asked to.
        return next_plan(plan, Obstacle.NO_INDEX, f"{Obstacle.NO_INDEX.value}: {why}")
    return plan


def with_vectors(plan: MergePlan, mirror: MirrorAccess) -> MergePlan:
    """Leave a mirror with deletes that are no deletion vectors to the statement."""
    if not plan.uses_vectors:
        return plan
    try:
        # Read for the commit anyway, and held.
        live_files(mirror.table, mirror.work.main_id, ())
    except UnsupportedError as error:
        return next_plan(plan, Obstacle.OTHER_DELETES, error.message)
    return plan


def revise(plan: MergePlan, obstacle: Obstacle, mirror: MirrorAccess, why: str = "") -> MergePlan:
    """Return what is done instead of a plan that met an obstacle, as far as the mirror can."""
    return with_vectors(next_plan(plan, obstacle, why), mirror)


@dataclass(frozen=True)
class WrittenBatch:
    """A batch of which everything is written but the mirror's commit."""

    work: BatchWork
    # The plan that was carried out in the end.
    plan: MergePlan
    writer: ReplaceRows | MergeInto
    tombstone_files: list[DataFile]

    def commit(self, summary: Mapping[str, str]) -> None:
        """Commit one snapshot with the summary on it, if `main` is where the batch was decided.

        Raises:
            ConflictError: `main` has moved; nothing was applied.
            UnknownOutcomeError: the answer was lost.
        """
        with span("merge.commit", table=self.work.spec.name):
            self.writer.commit(self.work, summary)

    def compact_index(self) -> None:
        """Merge deltas of the index, if there are enough of them, now that the batch is committed.

        Best effort, and for the next merges only: if it fails or dies, they compact it.
        """
        writer, lake, spec = self.writer, self.work.lake, self.work.spec
        root = writer.committed_root if isinstance(writer, ReplaceRows) else None
        if isinstance(writer, MergeInto) or root is None or plan_compaction(root) is None:
            return
        try:
            with span("merge.compact", table=spec.name):
                mirror = writer.committed_mirror(lake, spec)
                if mirror.main_id != root.snapshot_id:
                    return  # The catalog did not say what the commit has made of the table.
                small = compacted(lake, mirror, root)
                failpoints.reach("index.compacted")
                register(lake, mirror, small)
                remove_unreferenced_at_times(mirror)
        except (NeveError, OSError) as error:
            logger.warning("%s: the index was not compacted: %s", spec.name, error)


class _PlanFailedError(Exception):
    def __init__(self, obstacle: Obstacle, reason: str = "") -> None:
        super().__init__(obstacle.value)
        self.obstacle = obstacle
        self.reason = reason


@dataclass(frozen=True)
class PlannedWrite:
    """Writes one batch as planned, or as the plan for what it meets says."""

    work: BatchWork
    tombstones: SideTable
    # The snapshot of the tombstones that counts.
    tombstones_id: int | None
    batch_id: str
    now: datetime
    forced: Strategy
    report: TableReport
    progress: Callable[[str], None]

    def write(self) -> WrittenBatch:
        mirror = MirrorAccess(self.work, self.tombstones.staging.table)
        with span("merge.index", table=self.work.spec.name):
            plan = plan_batch(mirror, self.forced)
        while True:
            try:
                return self._carry_out(plan, mirror)
            except _PlanFailedError as failed:
                plan = revise(plan, failed.obstacle, mirror, failed.reason)

    def _carry_out(self, plan: MergePlan, mirror: MirrorAccess) -> WrittenBatch:
        work = self.work
        if not plan.uses_vectors:
            return self._write_by_statement(plan)
        if not plan.uses_index:
            return self._write_vectors(plan, ReplaceRows(mirror.table, self.tombstones), self._scan)
        try:
            require_readable(mirror.table.schema(), work.shape)
        except UnsupportedError as error:
            raise _PlanFailedError(Obstacle.NOT_INDEXABLE, error.message) from error
        index = self._fresh_index(mirror)
        retention = work.spec.tombstone_retention_seconds
        forgotten = forget_before(retention, self.now.timestamp())
        locator = index_locator(work.session, index, work.batch.events, forgotten)
        return self._write_vectors(plan, ReplaceRows(mirror.table, self.tombstones, index), locator)

    @property
    def _scan(self) -> ScanLocator:
        return self.work.scanning(self.tombstones_id, self.now)

    def _write_by_statement(self, plan: MergePlan) -> WrittenBatch:
        work, lake = self.work, self.work.lake
        if not work.is_decided:
            # A first batch is decided before its mirror is made.
            with span("merge.decide", table=work.spec.name):
                work.decide(self._scan)
        self._check(plan)
        mirror = JavaTable(lake, work.session, lake.ref(work.spec.mirror))
        writer = MergeInto(mirror, self.tombstones)
        with span("merge.write", table=work.spec.name):
            return WrittenBatch(work, plan, writer, writer.write(work, self.batch_id, self.now))

    def _write_vectors(
        self, plan: MergePlan, writer: ReplaceRows, locator: Locator
    ) -> WrittenBatch:
        """Decide and write in one job; in a second one if events contradict merged ones."""
        work = self.work
        with span("merge.at_once", table=work.spec.name):
            files = writer.write(work, locator, self.batch_id, self.now)
        try:
            self._check(plan)
            if work.counts.unresolved_ties:
                writer.discard()
                work.include_merged(*writer.tied_between)
                with span("merge.decide", table=work.spec.name):
                    files = writer.write(work, locator, self.batch_id, self.now)
                self._check(plan)
            writer.require_balance(work)
        except (_PlanFailedError, NeveError):
            writer.discard()
            raise
        writer.begin_commit(work)
        return WrittenBatch(work, plan, writer, files)

    def _check(self, plan: MergePlan) -> None:
        """Refuse a batch that has to be written otherwise, or whose events do not add up."""
        work = self.work
        if work.counts.index_is_away:
            # Nothing is wrong with the index: a scan and a new index would cost much for nothing.
            raise StorageError(
                f"{work.spec.name}: its index could not be read, since the store did not answer",
                hint="it is tried again",
                retryable=True,
            )
        obstacle = find_obstacle(plan, work.counts)
        if obstacle is not None:
            raise _PlanFailedError(obstacle)
        require_balance(work.spec.name, work.events_in_files, work.counts)

    def _fresh_index(self, mirror: MirrorAccess) -> Refreshed:
        """Bring the index to the snapshot that the batch is decided on."""
        work = self.work
        if mirror.indexed.main_id != work.main_id:
            raise ConflictError(f"{work.spec.name}: main has moved", retryable=True)
        may_rebuild = self.forced is Strategy.INDEX
        try:
            with span("merge.index", table=work.spec.name):
                index = refreshed(work.lake, mirror.indexed, self.progress, may_rebuild=may_rebuild)
        except UnsupportedError as error:
            raise _PlanFailedError(Obstacle.NOT_INDEXABLE, error.message) from error
        except CorruptionError as error:
            raise _PlanFailedError(Obstacle.INDEX_BROKEN, error.message) from error
        self.report.count_index(index)
        return index
