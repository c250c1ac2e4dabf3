"""Carries a plan out: table by table, group by group, giving way to whoever commits meanwhile."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from neve.errors import ConflictError
from neve.lake.compaction import GroupRewrite, call_procedure, rewrite_in_z_order
from neve.observe.failures import failure_of
from neve.observe.traces import span
from neve.upkeep.maintenance_report import MaintenanceReport as MaintenanceReport
from neve.upkeep.observed_table import observe_table
from neve.upkeep.plan import Action, Step, TablePlan
from neve.upkeep.position_deletes import FEWEST_FILES
from neve.upkeep.removals import PlannedOrphans, PlannedVersions, remove_planned
from neve.upkeep.retention import carry_out_retention
from neve.upkeep.row_age import delete_old_rows
from neve.upkeep.table_places import TablePlaces
from neve.upkeep.table_rewriting import TableRewriting

if TYPE_CHECKING:
    from neve.lake import Lake
    from neve.lake.table_ref import TableRef

logger = logging.getLogger(__name__)

PART = "maintain"
# A group that lost to another writer is halved so often, each time on the newest version.
_MOST_HALVINGS = 2


class Maintainer:
    """Carries plans out.

    Args:
        groups_at_once: how many groups of files are rewritten at the same time.
        max_seconds: nothing is begun so long after the start.
        stop: once it is set, nothing more is begun.
    """

    def __init__(
        self,
        lake: Lake,
        *,
        groups_at_once: int = 1,
        max_seconds: float | None = None,
        stop: threading.Event | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lake = lake
        self._groups_at_once = groups_at_once
        self._clock = clock
        self._deadline = None if max_seconds is None else clock() + max_seconds
        self._stop = stop or threading.Event()
        self._places = TablePlaces(lake)

    def carry_out(self, plans: Iterable[TablePlan]) -> list[MaintenanceReport]:
        """Do what plans say. A table that fails stops no other.

        Each action is one commit, atomic, and idempotent: what is done already is not there any
        more. It can be killed at any moment; files that were written and not committed are orphans.
        """
        return [self._maintain(plan) for plan in plans]

    def _maintain(self, plan: TablePlan) -> MaintenanceReport:
        report = MaintenanceReport(
            plan.table,
            stored_bytes=plan.stored_bytes,
            writes_per_row=plan.writes_per_row,
            notes=plan.notes,
            error=plan.error,
        )
        if plan.error is not None or plan.ref is None:
            return report
        reasons = dict.fromkeys(action.why for action in plan.deferred)
        report.left += [f"{why}: beyond the budget of bytes" for why in reasons]
        began = time.monotonic()
        with span("maintain.table", table=plan.table):
            for do in self._parts(plan, plan.ref, report):
                self._try(do, report)
            if report.rewritten_files and plan.writes_per_row is not None:
                report.writes_per_row = self._writes_per_row(plan.ref)
        report.say_share()
        report.seconds = round(time.monotonic() - began, 3)
        return report

    def _writes_per_row(self, ref: TableRef) -> float | None:
        try:
            metadata = self._lake.reader(ref.catalog).read_document(ref.identifier)
            return observe_table(self._lake, ref, metadata).writes_per_row if metadata else None
        except Exception as error:  # noqa: BLE001 - what was done is done: a figure less
            logger.info("%s: how often rows were written is not known: %s", ref.name, error)
            return None

    def _parts(
        self, plan: TablePlan, ref: TableRef, report: MaintenanceReport
    ) -> Iterator[Callable[[], None]]:
        """Yield what is done to a table, in this order. If one fails, the others are done."""
        others = [action for action in plan.actions if action.group is None]
        old_rows = [action for action in others if action.step is Step.OLD_ROWS]
        yield partial(self._call_all, plan, ref, old_rows, report)
        yield partial(self._rewrite_groups, plan, ref, report)
        for action in others:
            if action not in old_rows:
                yield partial(self._call_all, plan, ref, [action], report)

    def _try(self, do: Callable[[], None], report: MaintenanceReport) -> None:
        try:
            do()
        except Exception as error:  # noqa: BLE001 - the rest is maintained all the same
            failure = failure_of(error, PART, report.table)
            logger.warning("%s was not maintained as planned: %s", report.table, failure)
            # What fails later may fail for the same reason, and says less.
            report.error = report.error or str(failure)

    def _rewrite_groups(self, plan: TablePlan, ref: TableRef, report: MaintenanceReport) -> None:
        groups = [action.group for action in plan.actions if action.group is not None]
        for halvings in range(_MOST_HALVINGS + 1):
            if not groups:
                return
            if halvings:
                groups = [half for group in groups for half in (group.halves() or (group,))]
            paths = frozenset(path for group in groups for path in group.paths)
            rewriter = GroupRewrite(self._lake, ref, paths)
            rewriting = TableRewriting(self._lake, plan, rewriter, report)
            at_once = 1 if halvings else self._groups_at_once
            groups = rewriting.rewrite(
                groups, at_once, lambda group: self._may_begin(report, group.why)
            )
        report.left += [f"{group.why}: another writer was first each time" for group in groups]

    def _call_all(
        self, plan: TablePlan, ref: TableRef, actions: Iterable[Action], report: MaintenanceReport
    ) -> None:
        for action in actions:
            if self._may_begin(report, action.why):
                self._call(plan, ref, action, report)

    def _call(
        self, plan: TablePlan, ref: TableRef, action: Action, report: MaintenanceReport
    ) -> None:
        self._lake.progress(f"{plan.table}: {action.step.value}, {action.why}")
        try:
            if action.step is Step.ZORDER:
                done = self._zorder(plan, ref, action)
                report.rewritten_files += int(done.get("rewritten_data_files_count", 0))
                report.new_files += int(done.get("added_data_files_count", 0))
                report.rewritten_bytes += int(done.get("rewritten_bytes_count", 0))
                if int(done.get("failed_data_files_count", 0)):
                    report.left.append(f"{action.why}: another writer was first for some files")
            elif action.step is Step.POSITION_DELETES:
                options = {"min-input-files": FEWEST_FILES}
                procedure = "rewrite_position_delete_files"
                call_procedure(self._lake, ref, procedure, {"options": options})
            elif action.versions is not None:
                self._expire(ref, action.versions, report)
            elif action.old_rows is not None:
                report.deleted_rows += delete_old_rows(self._lake, ref, action.old_rows).rows
            elif action.orphans is not None:
                self._remove(action.orphans, report)
            elif action.step is Step.MANIFESTS:
                call_procedure(self._lake, ref, "rewrite_manifests", {"use_caching": False})
            elif action.step is Step.STATISTICS:
                # Replaces the snapshot's statistics file. A mirror's index is named by a property,
                # too, and found by it then.
                call_procedure(self._lake, ref, "compute_table_stats", {"columns": action.columns})
        except ConflictError as error:
            logger.info("%s: %s gave way: %s", plan.table, action.step.value, error)
            report.conflicts += 1
            report.left.append(f"{action.why}: another writer was first")
            return
        report.actions += 1

    def _expire(self, ref: TableRef, versions: PlannedVersions, report: MaintenanceReport) -> None:
        removed = carry_out_retention(
            self._lake,
            ref,
            versions.plan,
            versions.policy,
            versions.now,
            versions.needed,
            places=self._places,
        )
        report.expired_snapshots += removed.snapshots
        if removed.left:
            note = f"files of expired snapshots are left: {removed.left}"
            report.notes = (*report.notes, note)

    def _remove(self, orphans: PlannedOrphans, report: MaintenanceReport) -> None:
        removed = remove_planned(self._lake, orphans, self._stop)
        report.removed_orphans += removed.files
        report.removed_bytes += removed.bytes
        if not orphans.plan.is_complete:
            report.left.append("orphans: there are more")

    def _zorder(self, plan: TablePlan, ref: TableRef, action: Action) -> Mapping[str, Any]:
        options = {
            "min-input-files": plan.min_files,
            "min-file-size-bytes": plan.small_bytes,
            "target-file-size-bytes": plan.target_file_bytes,
            "max-file-size-bytes": 2 * plan.target_file_bytes,
            "delete-ratio-threshold": plan.delete_ratio,
            "partial-progress.enabled": "true",
        }
        return rewrite_in_z_order(self._lake, ref, plan.zorder, action.where, options)

    def _may_begin(self, report: MaintenanceReport, why: str) -> bool:
        if self._stop.is_set():
            report.left.append(f"{why}: stopped")
            return False
        if self._deadline is not None and self._clock() >= self._deadline:
            report.left.append(f"{why}: beyond the budget of time")
            return False
        return True
