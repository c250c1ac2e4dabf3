"""Make the plan of one batch: the only place that does, for a merge and for a dry run alike."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from neve.errors import StorageError, UnsupportedError
from neve.index.current_root import find_root
from neve.index.indexed_table import observe
from neve.lake.catalog import load_table
from neve.lake.live_files import live_files
from neve.merge.strategy import MergePlan, Obstacle, Strategy, first_plan, next_plan

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from neve.index.indexed_table import Mirror
    from neve.merge.batch import BatchWork


@dataclass
class MirrorAccess:
    """The mirror's table, and what is known of its index: each is loaded once, when needed."""

    work: BatchWork

    @cached_property
    def indexed(self) -> Mirror:
        return observe(self.work.lake, self.work.spec.mirror)

    @cached_property
    def table(self) -> Table:
        if "indexed" in self.__dict__:
            return self.indexed.table
        work = self.work
        return load_table(work.lake.profile, work.lake.catalog(), work.spec.mirror)


def plan_batch(mirror: MirrorAccess, forced: Strategy) -> MergePlan:
    """Plan a batch whose events are not decided yet. Writes nothing."""
    work = mirror.work
    plan = first_plan(work.found, work.spec, work.batch.events, forced)
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
        return next_plan(plan, Obstacle.INDEX_BROKEN, error.message)
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
