"""What maintenance removes of a table: versions past their retention, and orphans. No writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from neve.errors import NeveError
from neve.index.indexed_table import observe
from neve.index.maintain import remove_unreferenced, unreferenced_files
from neve.upkeep.orphans import MOST_AT_ONCE, Orphan, OrphanPlan, OrphanSearch, RemovedOrphans
from neve.upkeep.retention import RetentionPlan, plan_retention
from neve.upkeep.retention_policy import RetentionPolicy, retention_policy
from neve.upkeep.row_age import RowAgePlan, has_old_rows, plan_row_age
from neve.upkeep.snapshot_needs import needed_snapshots
from neve.upkeep.table_kind import TableKind

if TYPE_CHECKING:
    import threading

    from neve.lake import Lake
    from neve.lake.metadata_json import MetadataJson
    from neve.lake.unconfirmed import ReadUnconfirmed, UnconfirmedWrite
    from neve.upkeep.observed_table import ObservedTable
    from neve.upkeep.table_places import TablePlaces


@dataclass(frozen=True)
class RecordedWrites:
    """The direct writes that are not confirmed, read once for a run.

    Args:
        damage: why not all of them are known; then nobody knows what must stay.
    """

    writes: tuple[UnconfirmedWrite, ...] = ()
    damage: NeveError | None = None


def read_writes(unconfirmed: ReadUnconfirmed) -> RecordedWrites:
    """Read the records; never raises because of a damaged one."""
    try:
        return RecordedWrites(tuple(unconfirmed()))
    except NeveError as error:
        return RecordedWrites(damage=error)


@dataclass(frozen=True)
class PlannedVersions:
    """Which versions go, and what was known when that was decided.

    Args:
        needed: snapshots that others need, and what for.
    """

    plan: RetentionPlan
    policy: RetentionPolicy
    needed: Mapping[int, str]
    now: float
    why: str
    effect: str


@dataclass(frozen=True)
class PlannedOrphans:
    """Which files go, and the search that found them.

    Args:
        index_files: files of a mirror's index, which lie beside the table; those that only roots of
            expiring snapshots name are among them.
    """

    plan: OrphanPlan
    search: OrphanSearch
    age_seconds: float
    index_files: tuple[Orphan, ...] = ()

    @property
    def files(self) -> tuple[Orphan, ...]:
        return self.plan.orphans + self.index_files


def plan_versions(
    lake: Lake, observed: ObservedTable, writes: Iterable[UnconfirmedWrite], now: float
) -> PlannedVersions | None:
    """Decide which snapshots and tags go; None: none, or the catalog does it by itself.

    Raises:
        NeveError: what says which snapshots are needed cannot be read.
    """
    if lake.settings.catalog.type == "s3tables":
        return None
    identifier, metadata = observed.ref.identifier, observed.metadata
    policy = retention_policy(lake.settings, identifier, metadata)
    needed = needed_snapshots(lake, identifier, policy.kind, metadata, writes)
    plan = plan_retention(observed.name, metadata, policy, now, needed)
    if plan.is_empty:
        return None
    effect = plan.effect_on(len(metadata.snapshots))
    return PlannedVersions(plan, policy, needed, now, plan.why, effect)


def plan_orphans(
    lake: Lake,
    observed: ObservedTable,
    writes: Iterable[UnconfirmedWrite],
    now: float,
    places: TablePlaces,
    versions: PlannedVersions | None = None,
    most: int = MOST_AT_ONCE,
) -> PlannedOrphans | None:
    """List the table's location for files that no snapshot names; None: they are not to be removed.

    Args:
        places: where tables lie; one value for all tables of a run.
        versions: what expires before the files are removed; None: nothing does.
        most: how many files of the location are named; the others are left for the next run.

    Raises:
        NeveError: the table or its location cannot be read.
    """
    policy = retention_policy(lake.settings, observed.ref.identifier, observed.metadata)
    if not policy.remove_orphans or lake.settings.catalog.type == "s3tables":
        return None
    search = OrphanSearch(lake, observed.ref, writes, places)
    age_seconds = policy.orphan_age_seconds
    if most <= 0:
        reason = f"those of other tables go first, {MOST_AT_ONCE:,} in a run"
        return PlannedOrphans(OrphanPlan(observed.name, skipped=reason), search, age_seconds)
    plan = search.plan(now - age_seconds, most)
    index_files: tuple[Orphan, ...] = ()
    if has_index(policy.kind, observed.metadata) and not plan.skipped:
        # Expiry removes the files of the table's snapshots, and none of the index.
        expiring = {each.snapshot_id for each in versions.plan.expire} if versions else set()
        mirror = observe(lake, observed.ref.identifier)
        listed = unreferenced_files(mirror, age_seconds, expiring)
        index_files = tuple(Orphan(path, 0, _time(at_ms)) for path, at_ms in listed.items())
    return PlannedOrphans(plan, search, age_seconds, index_files)


def remove_planned(
    lake: Lake, orphans: PlannedOrphans, stop: threading.Event | None = None
) -> RemovedOrphans:
    """Delete what was planned and is still not needed, until `stop` is set. Idempotent.

    Roots of the index are read again: where an expiry was not carried out, their files stay.

    Raises:
        NeveError: the table cannot be read any more; what is left stays.
    """
    removed = orphans.search.remove(orphans.plan, stop)
    if orphans.index_files and not removed.is_stopped:
        mirror = observe(lake, orphans.search.ref.identifier)
        planned = {each.path for each in orphans.index_files}
        removed.files += remove_unreferenced(mirror, orphans.age_seconds, planned)
    return removed


def has_index(kind: TableKind, metadata: MetadataJson) -> bool:
    """Tell whether a table may have an index: a mirror without a row has none."""
    return kind is TableKind.MIRROR and metadata.current_snapshot_id is not None


def plan_old_rows(lake: Lake, observed: ObservedTable, now: float) -> RowAgePlan | None:
    """Decide which rows are too old; None: no policy says so, or none is old enough."""
    metadata = observed.metadata
    policy = retention_policy(lake.settings, observed.ref.identifier, metadata)
    plan = plan_row_age(observed.name, metadata, policy, now)
    if plan is None or plan.skipped or has_old_rows(plan, metadata, observed.layout):
        return plan
    return None


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc)
