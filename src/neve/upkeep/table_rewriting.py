"""Rewrites groups of a table's files: several are written at once, one thread commits them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from neve.lake.compaction import GroupRewrite, PlannedOutput, WrittenGroup

if TYPE_CHECKING:
    from neve.lake import Lake
    from neve.upkeep.compaction import FileGroup
    from neve.upkeep.maintenance_report import MaintenanceReport
    from neve.upkeep.plan import TablePlan

logger = logging.getLogger(__name__)

# Groups of closed hours that are written within this time share a commit: each commit writes a
# manifest, and has writers of the table try again. What a kill costs is so much work.
_SECONDS_BETWEEN_COMMITS = 10.0

MayBegin = Callable[["FileGroup"], bool]


@dataclass
class TableRewriting:
    """Groups of one table at one snapshot, and what became of them."""

    lake: Lake
    plan: TablePlan
    rewriter: GroupRewrite
    report: MaintenanceReport
    clock: Callable[[], float] = time.monotonic
    _written: dict[str, FileGroup] = field(default_factory=dict)
    _waiting: list[WrittenGroup] = field(default_factory=list)
    _lost: list[FileGroup] = field(default_factory=list)

    def rewrite(
        self, groups: Sequence[FileGroup], at_once: int, may_begin: MayBegin
    ) -> list[FileGroup]:
        """Rewrite groups; return those that lost to another writer, of which nothing is left.

        Raises:
            NeveError: a group could not be read or written, or a commit failed. The groups that
                were written before are committed.
        """
        committed, errors = self.clock(), []
        for group, outcome in self._write_all(groups, at_once, may_begin):
            if isinstance(outcome, Exception):
                errors.append(outcome)
            elif outcome is not None:
                self._written[outcome.id] = group
                self._waiting.append(outcome)
                if not group.is_closed or self.clock() - committed >= _SECONDS_BETWEEN_COMMITS:
                    self._commit()
                    committed = self.clock()
        self._commit()
        if errors:
            raise errors[0]
        return self._lost

    def _write_all(
        self, groups: Sequence[FileGroup], at_once: int, may_begin: MayBegin
    ) -> Iterator[tuple[FileGroup, WrittenGroup | Exception | None]]:
        """Write groups, and yield each with its new files as soon as they are there."""

        def write(group: FileGroup) -> WrittenGroup | Exception | None:
            try:
                return self._write(group) if may_begin(group) else None
            except Exception as error:  # noqa: BLE001 - raised when the others are committed
                return error

        if at_once == 1:
            yield from ((group, write(group)) for group in groups)
            return
        pool = ThreadPoolExecutor(at_once, "neve-rewrites")
        try:
            futures = {pool.submit(write, group): group for group in groups}
            for done in as_completed(futures):
                yield futures[done], done.result()
        finally:
            pool.shutdown(cancel_futures=True)

    def _write(self, group: FileGroup) -> WrittenGroup | None:
        plan = self.plan
        self.lake.progress(f"{plan.table}: {group.why}, {len(group.paths):,} files")
        output = PlannedOutput(
            group.output_files,
            plan.target_file_bytes,
            group.records,
            group.bytes,
            group.most_days,
        )
        return self.rewriter.write(group.paths, plan.order, output)

    def _commit(self) -> None:
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        lost = self.rewriter.commit(waiting)
        for written in waiting:
            group = self._written.pop(written.id)
            if written in lost:
                files = len(group.paths)
                logger.info("%s: a rewrite of %d files gave way", self.plan.table, files)
                self.report.conflicts += 1
                self._lost.append(group)
            else:
                self._count(group, written)

    def _count(self, group: FileGroup, written: WrittenGroup) -> None:
        self.report.actions += 1
        self.report.rewritten_files += written.input_files
        self.report.new_files += written.files
        self.report.rewritten_bytes += group.bytes
        self.report.new_bytes += written.bytes
