"""What is to be done to tables, each action with its reason and its expected effect. No writes.

`--dry-run` prints the very plan that is then carried out.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING

from neve.ages import age_text
from neve.errors import ConfigError, NeveError
from neve.lake.compaction import SortColumn, sort_order
from neve.limits import MIB
from neve.observe.failures import failure_of
from neve.sizes import size_text
from neve.upkeep.compaction import FileGroup, plan_groups
from neve.upkeep.findings import wanted_manifests
from neve.upkeep.health import UnreadableTable, observe_tables, policies_without_table
from neve.upkeep.layout import partition_text, time_column
from neve.upkeep.orphans import MOST_AT_ONCE
from neve.upkeep.removals import (
    PlannedOrphans,
    PlannedVersions,
    plan_old_rows,
    plan_orphans,
    plan_versions,
    read_writes,
)
from neve.upkeep.row_age import RowAgePlan
from neve.upkeep.statistics import plan_statistics
from neve.upkeep.table_places import TablePlaces
from neve.upkeep.zorder import closed_day, obstacle

if TYPE_CHECKING:
    from neve.lake import Lake
    from neve.lake.metadata_json import MetadataJson
    from neve.lake.table_ref import TableRef
    from neve.lake.unconfirmed import ReadUnconfirmed
    from neve.upkeep.observed_table import ObservedTable
    from neve.upkeep.removals import RecordedWrites

logger = logging.getLogger(__name__)

# The commit that replaces files keeps manifests that name the old ones, and each query reads them
# until the next commit. To rewrite manifests takes some seconds: less than as many files take.
_MANY_REPLACED_FILES = 1000


class Step(str, Enum):
    """What an action does."""

    SORT = "rewrite and sort files"
    BINPACK = "rewrite files"
    ZORDER = "rewrite files in Z order"
    POSITION_DELETES = "rewrite position deletes"
    MANIFESTS = "rewrite manifests"
    STATISTICS = "compute statistics"
    EXPIRE = "expire snapshots"
    ORPHANS = "remove orphans"
    OLD_ROWS = "delete old rows"


@dataclass(frozen=True)
class Action:
    """One thing that is done to a table, in one commit.

    Args:
        bytes: how much is read and written anew.
        group: the files, where they are chosen here; otherwise Iceberg's procedure chooses them.
        where: which rows the procedure is for.
        columns: of which statistics are computed.
    """

    table: str
    step: Step
    why: str
    effect: str
    bytes: int = 0
    files: int = 0
    partition: str = ""
    group: FileGroup | None = field(default=None, repr=False)
    where: str | None = None
    columns: tuple[str, ...] = ()
    versions: PlannedVersions | None = field(default=None, repr=False)
    orphans: PlannedOrphans | None = field(default=None, repr=False)
    old_rows: RowAgePlan | None = field(default=None, repr=False)


@dataclass(frozen=True)
class TablePlan:
    """What is to be done to one table.

    Args:
        stored_bytes: of the table's data files.
        writes_per_row: how often a row was written so far, at most; None: it is not known.
        deferred: what the budget leaves for the next time.
        notes: what is not done by intention, such as orphans in a location that tables share.
        error: why nothing is done to the table.
    """

    table: str
    ref: TableRef | None
    actions: tuple[Action, ...] = ()
    deferred: tuple[Action, ...] = ()
    order: tuple[SortColumn, ...] = ()
    target_file_bytes: int = 0
    zorder: tuple[str, ...] = ()
    small_bytes: int = 0
    min_files: int = 5
    delete_ratio: float = 0.2
    stored_bytes: int = 0
    writes_per_row: float | None = None
    notes: tuple[str, ...] = ()
    error: str | None = None

    @property
    def bytes(self) -> int:
        return sum(action.bytes for action in self.actions)


def plan_maintenance(
    lake: Lake,
    patterns: Sequence[str] = (),
    *,
    max_bytes: int | None = None,
    now: float | None = None,
    unconfirmed: ReadUnconfirmed | None = None,
    is_strict: bool = True,
) -> list[TablePlan]:
    """Look at tables, or at all, and say what is to be done, and why.

    Args:
        max_bytes: of all rewrites together; what is beyond is deferred.
        unconfirmed: direct writes that `neve recover` has yet to look for; None: no snapshot and
            no orphan is removed, since somebody else does that.
        is_strict: whether a policy that names no table is an error; a service only warns, since
            its table may not be there yet.

    Raises:
        NotFoundError: a pattern fits no table.
        ConfigError: a policy of the configuration names no table.
    """
    lake.profile.require_catalog("maintenance")
    _check_policies(lake, is_strict=is_strict)
    at = time.time() if now is None else now
    plans = []
    removals = None
    if unconfirmed is not None:
        removals = _Removals(at, read_writes(unconfirmed), TablePlaces(lake))
    for observed in observe_tables(lake, patterns):
        try:
            plan = _plan_table(observed, at, max_bytes)
            if removals is not None and not isinstance(observed, UnreadableTable):
                plan = _with_removals(lake, plan, observed, removals)
        except Exception as error:  # noqa: BLE001 - a table that is odd costs no other its turn
            failure = failure_of(error, "maintain", observed.name)
            plan = TablePlan(observed.name, None, error=str(failure))
        plans.append(plan)
    return _within(plans, max_bytes)


def _check_policies(lake: Lake, *, is_strict: bool) -> None:
    for line in policies_without_table(lake):
        if is_strict:
            raise ConfigError(line, hint="see: neve tables; a pattern such as otel.* names several")
        logger.warning("%s", line)


@dataclass
class _Removals:
    """What the removals of all tables of one plan share.

    Args:
        most_orphans: how many orphans may still be named; a plan is in memory as a whole.
    """

    now: float
    recorded: RecordedWrites
    places: TablePlaces
    most_orphans: int = MOST_AT_ONCE


def _with_removals(
    lake: Lake, plan: TablePlan, observed: ObservedTable, removals: _Removals
) -> TablePlan:
    if plan.error is not None:
        return plan
    old_rows = plan_old_rows(lake, observed, removals.now)
    versions, orphans, unknown = _versions_and_orphans(lake, observed, removals)
    reasons = {
        "no versions and no orphans are removed": removals.recorded.damage,
        "no orphans are removed": unknown or (orphans and orphans.plan.skipped),
        "no rows are deleted by age": old_rows and old_rows.skipped,
    }
    notes = [f"{what}: {reason}" for what, reason in reasons.items() if reason]
    first, more = [], []
    if old_rows is not None and not old_rows.skipped:
        # First: what is deleted need not be rewritten.
        action = Action(plan.table, Step.OLD_ROWS, old_rows.reason, old_rows.effect)
        first.append(replace(action, old_rows=old_rows))
    if versions is not None:
        more.append(
            Action(plan.table, Step.EXPIRE, versions.why, versions.effect, versions=versions)
        )
    if orphans is not None and orphans.files:
        removals.most_orphans -= len(orphans.files)
        more.append(_orphans(plan.table, orphans))
    return replace(plan, actions=(*first, *plan.actions, *more), notes=(*plan.notes, *notes))


def _versions_and_orphans(
    lake: Lake, observed: ObservedTable, removals: _Removals
) -> tuple[PlannedVersions | None, PlannedOrphans | None, str]:
    """Plan what is removed. Also say why it is not known which files are orphans."""
    if removals.recorded.damage is not None:
        return None, None, ""
    writes, now = removals.recorded.writes, removals.now
    versions = plan_versions(lake, observed, writes, now)
    places, most = removals.places, removals.most_orphans
    try:
        return versions, plan_orphans(lake, observed, writes, now, places, versions, most), ""
    except NeveError as error:
        # Such as a lost manifest of an older version, which may be one of those that expire now.
        return versions, None, str(error)


def _orphans(table: str, orphans: PlannedOrphans) -> Action:
    files = len(orphans.files)
    return Action(
        table,
        Step.ORPHANS,
        f"{files:,} files that no snapshot names, older than {age_text(orphans.age_seconds)}",
        f"{size_text(orphans.plan.bytes)} fewer",
        files=files,
        orphans=orphans,
    )


def _plan_table(
    observed: ObservedTable | UnreadableTable, now: float, max_bytes: int | None
) -> TablePlan:
    if isinstance(observed, UnreadableTable):
        repair = f"see: neve recover --table {observed.name} --dry-run"
        return TablePlan(observed.name, None, error=f"{observed.error} ({repair})")
    policy = observed.policy
    if max_bytes is not None:
        # A larger group would be deferred each time.
        policy = replace(policy, max_group_bytes=min(policy.max_group_bytes, max_bytes))
        observed = replace(observed, policy=policy)
    plan = TablePlan(
        observed.name,
        observed.ref,
        order=sort_order(observed.metadata),
        target_file_bytes=policy.target_file_bytes,
        zorder=policy.zorder,
        small_bytes=policy.small_bytes,
        min_files=policy.min_files,
        delete_ratio=policy.delete_ratio,
        stored_bytes=observed.layout.bytes,
        writes_per_row=observed.writes_per_row,
    )
    try:
        if observed.is_compacted:
            _check_columns(observed)
            plan = replace(plan, actions=tuple(_actions(observed, plan, now)))
            reason = obstacle(observed) if plan.zorder else None
            if reason is not None:
                plan = replace(plan, notes=(f"no day is put in Z order: {reason}",))
        return _with_statistics(plan, observed, now)
    except NeveError as error:
        return replace(plan, actions=(), error=str(error))


def _with_statistics(plan: TablePlan, observed: ObservedTable, now: float) -> TablePlan:
    """Add statistics, after all that makes a new snapshot: they hold for one."""
    statistics = plan_statistics(observed, now, is_rewritten=bool(plan.actions))
    if statistics is None:
        return plan
    if statistics.skipped:
        note = f"no statistics are computed: {statistics.skipped}"
        return replace(plan, notes=(*plan.notes, note))
    effect = f"Spark's optimizer knows the distinct values of {', '.join(statistics.columns)}"
    action = Action(plan.table, Step.STATISTICS, statistics.why, effect, columns=statistics.columns)
    return replace(plan, actions=(*plan.actions, action))


def _check_columns(observed: ObservedTable) -> None:
    known = {each["name"] for each in observed.metadata.fields}
    for column in observed.policy.zorder:
        if column not in known:
            raise ConfigError(
                f"upkeep.tables: {observed.name} has no column {column} to z-order by",
                hint=f"see: neve describe {observed.name}",
            )


def _actions(observed: ObservedTable, plan: TablePlan, now: float) -> Iterator[Action]:
    groups = plan_groups(observed.layout.candidates, observed.policy, now)
    if plan.zorder:
        yield from _zorder(observed, plan, groups, now)
    else:
        yield from (_rewrite(observed.metadata, plan, group) for group in groups)
    layout, policy = observed.layout, observed.policy
    if layout.surplus_delete_files > policy.max_delete_files:
        yield Action(
            observed.name,
            Step.POSITION_DELETES,
            f"{layout.surplus_delete_files:,} position delete files too many",
            "deletes of a partition are joined, and those of files that are gone go",
        )
    yield from _manifests(observed, groups)


def _manifests(observed: ObservedTable, groups: Sequence[FileGroup]) -> Iterator[Action]:
    replaced = sum(len(group.paths) for group in groups)
    if len(observed.manifests) > wanted_manifests(observed):
        why = f"{len(observed.manifests):,} manifests, of "
        why += f"{size_text(observed.manifest_bytes)} together"
    elif replaced >= _MANY_REPLACED_FILES:
        why = f"manifests that name {replaced:,} replaced files"
    else:
        return
    yield Action(
        observed.name,
        Step.MANIFESTS,
        why,
        f"about {-(-observed.manifest_bytes // (8 * MIB)):,} manifests",
        observed.manifest_bytes,
    )


def _rewrite(metadata: MetadataJson, plan: TablePlan, group: FileGroup) -> Action:
    effect = f"{len(group.paths):,} files become {group.output_files:,}"
    if group.is_shared:
        effect = f"rows of {len(group.paths):,} files go into at most {group.most_days:,} days"
    if group.deleted:
        effect += f", without {group.deleted:,} deleted rows"
    return Action(
        plan.table,
        Step.SORT if plan.order else Step.BINPACK,
        group.why,
        effect,
        group.bytes,
        len(group.paths),
        partition_text(metadata, group.partition),
        group,
    )


def _zorder(
    observed: ObservedTable, plan: TablePlan, groups: Sequence[FileGroup], now: float
) -> Iterator[Action]:
    """Yield one call of Iceberg's procedure for each closed day, or one for a table without days.

    Groups that are of no closed day are rewritten as those of other tables.
    """
    days: dict[str | None, list[FileGroup]] = {}
    settled = now - observed.policy.settle_seconds
    has_days = time_column(observed.metadata) is not None
    for group in groups:
        where = closed_day(observed.metadata, group, settled) if has_days else None
        if has_days and where is None:
            yield _rewrite(observed.metadata, plan, group)
        else:
            days.setdefault(where, []).append(group)
    if obstacle(observed) is not None:
        return
    for where, some in days.items():
        size, files = sum(each.bytes for each in some), sum(len(each.paths) for each in some)
        outputs = observed.policy.files_for(size)
        yield Action(
            observed.name,
            Step.ZORDER,
            some[0].why,
            f"{files:,} files become about {outputs:,}, ordered by "
            f"{', '.join(observed.policy.zorder)}",
            size,
            files,
            partition_text(observed.metadata, some[0].partition),
            where=where,
        )


def _within(plans: Sequence[TablePlan], max_bytes: int | None) -> list[TablePlan]:
    """Defer what is beyond the budget, action by action, in the order in which they are done."""
    if max_bytes is None:
        return list(plans)
    left = max_bytes
    kept: list[TablePlan] = []
    for plan in plans:
        done: list[Action] = []
        deferred: list[Action] = []
        for action in plan.actions:
            if action.bytes <= left:
                left -= action.bytes
                done.append(action)
            else:
                deferred.append(action)
        large = max(deferred, key=lambda action: action.bytes, default=None)
        notes = plan.notes
        if large and large.bytes > max_bytes:
            note = f"{large.why}: one commit of {large.bytes:,} bytes, which the budget must have"
            notes = (*notes, note)
        kept.append(replace(plan, actions=tuple(done), deferred=tuple(deferred), notes=notes))
    return kept
