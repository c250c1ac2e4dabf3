"""One batch's way into its mirror: what finds its rows, and what replaces them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from neve.errors import (
    ConflictError,
    CorruptionError,
    NeveError,
    StorageError,
    UnsupportedError,
)
from neve.index.current_root import find_root
from neve.index.indexed_table import observe
from neve.index.maintain import Refreshed, refreshed
from neve.index.removal import remove_unreferenced
from neve.lake.catalog import load_table
from neve.lake.java_tables import JavaTable
from neve.lake.live_files import live_files
from neve.merge.index_locator import index_locator
from neve.merge.merge_into import MergeInto
from neve.merge.replace_rows import ReplaceRows
from neve.merge.strategy import ON_DOUBLED, ON_TRUNCATE, Choice, Strategy, choose
from neve.observe.traces import span

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

    from neve.index.indexed_table import Mirror
    from neve.lake import Lake
    from neve.lake.identifier import Identifier
    from neve.merge.batch import BatchWork
    from neve.merge.locators import Locator
    from neve.merge.report import TableReport
    from neve.merge.side_tables import SideTable
    from neve.merge.strategy import Writer

logger = logging.getLogger(__name__)


@dataclass
class Way:
    """How one batch is merged; it may turn out on the way that another one is needed."""

    work: BatchWork
    choice: Choice
    locator: Locator
    writer: Writer
    by_statement: MergeInto
    scan: Callable[[], Locator]
    leaves_index: bool = False

    def write(self, batch_id: str, now: datetime) -> list[DataFile]:
        """Decide the batch and write what can be before the commit, in one job if possible.

        Returns the files of tombstones.
        """
        work, name = self.work, self.work.spec.name
        if isinstance(self.writer, ReplaceRows):
            with span("merge.at_once", table=name):
                if self.writer.write_at_once(work, self.locator, batch_id, now):
                    return self.writer.tombstone_files
            if work.counts.index_is_broken:
                self._leave_index(self.writer)
        with span("merge.decide", table=name):
            work.look_up_once(self.locator)
            if work.counts.index_is_broken and isinstance(self.writer, ReplaceRows):
                # It could be read a moment ago; what it did not say would be taken for new rows.
                self._leave_index(self.writer)
                work.look_up(self.locator)
        if work.counts.truncated:
            if self.choice.strategy is not Strategy.MERGE:
                self.choice, self.writer = ON_TRUNCATE, self.by_statement
                if self.locator.name == "index":
                    # The statement may look a second time, and would not hear of a broken index.
                    work.look_up(self.scan())
        elif work.counts.doubled and self.writer is self.by_statement:
            table = load_table(work.lake.profile, work.lake.catalog(), work.spec.mirror)
            if _unless_unfit(table, work.main_id, ON_DOUBLED) is ON_DOUBLED:
                self.choice = ON_DOUBLED
                self.writer = ReplaceRows(table, self.by_statement.tombstones)
        with span("merge.write", table=name):
            return self.writer.write(work, batch_id, now)

    def _leave_index(self, writer: ReplaceRows) -> None:
        """Go on without an index that cannot be read, and have it built anew afterwards."""
        self.choice = Choice(Strategy.SCAN, "the index is broken, and is built anew")
        self.locator, self.leaves_index = self.scan(), True
        self.writer = ReplaceRows(writer.table, writer.tombstones)

    def commit(self, summary: Mapping[str, str]) -> None:
        """Commit to the mirror. Raises as `Writer.commit`."""
        with span("merge.commit", table=self.work.spec.name):
            self.writer.commit(self.work, summary)

    def tidy(self) -> None:
        """Remove files of the index that no retained snapshot names. Best effort."""
        if isinstance(self.writer, ReplaceRows) and self.writer.compacted:
            _remove_old_shards(self.work.lake, self.work.spec.mirror)


def choose_way(
    work: BatchWork,
    tombstones: SideTable,
    buried: int | None,
    now: datetime,
    forced: Strategy,
    report: TableReport,
    progress: Callable[[str], None],
) -> Way:
    """Take the cheapest way to find rows and to replace them.

    Args:
        buried: the snapshot of the tombstones that counts.
    """
    lake, spec = work.lake, work.spec
    choice = choose(work.found, spec, work.batch.events, forced)
    index = None
    if choice.strategy is Strategy.INDEX:
        with span("merge.index", table=spec.name):
            index, choice = _fresh_index(work, choice, forced, report, progress)
    scan = partial(work.scanning, buried, now)
    by_statement = MergeInto(lake, JavaTable(lake, work.session, lake.ref(spec.mirror)), tombstones)
    if choice.strategy is not Strategy.MERGE:
        table = load_table(lake.profile, lake.catalog(), spec.mirror)
        choice = _unless_unfit(table, work.main_id, choice)
    if choice.strategy is Strategy.MERGE:
        return Way(work, choice, scan(), by_statement, by_statement, scan)
    locator = scan() if index is None else index_locator(work.session, index, work.batch.events)
    return Way(work, choice, locator, ReplaceRows(table, tombstones, index), by_statement, scan)


def foreseen(work: BatchWork, forced: Strategy) -> Choice:
    """Say which way a batch that was looked up would take. Builds and writes nothing.

    Not foreseen is what only shows while an index is read or brought up to date.
    """
    choice = choose(work.found, work.spec, work.batch.events, forced)
    if choice.strategy is Strategy.INDEX:
        try:
            _, instead = _find_index(work, forced)
        except (UnsupportedError, StorageError) as error:
            instead = Choice(Strategy.SCAN, error.message)
        choice = instead or choice
    if choice.strategy is not Strategy.MERGE:
        table = load_table(work.lake.profile, work.lake.catalog(), work.spec.mirror)
        choice = _unless_unfit(table, work.main_id, choice)
    by_statement = choice.strategy is Strategy.MERGE
    if work.counts.truncated:
        return choice if by_statement else ON_TRUNCATE
    return ON_DOUBLED if work.counts.doubled and by_statement else choice


def _unless_unfit(table: Table, main_id: int, choice: Choice) -> Choice:
    """Leave a mirror with deletes that are no vectors to the statement."""
    try:
        # Read for the commit anyway, and held.
        live_files(table, main_id, ())
    except UnsupportedError as error:
        return Choice(Strategy.MERGE, error.message)
    return choice


def _find_index(work: BatchWork, forced: Strategy) -> tuple[Mirror, Choice | None]:
    """Look for an index to go on from; without one, say what is done instead. Writes nothing.

    Raises:
        UnsupportedError: the mirror cannot be indexed.
    """
    mirror = observe(work.lake, work.spec.mirror)
    mirror.columns  # noqa: B018 - raises before an index is wanted that cannot be
    root, why = find_root(mirror)
    if root is None and forced is not Strategy.INDEX:
        return mirror, Choice(Strategy.SCAN, f"there is no index yet: {why}")
    return mirror, None


def _fresh_index(
    work: BatchWork,
    choice: Choice,
    forced: Strategy,
    report: TableReport,
    progress: Callable[[str], None],
) -> tuple[Refreshed | None, Choice]:
    """Bring the index to the snapshot the batch is decided on, or say why it is not used.

    A merge does not wait for a whole index, unless it was asked to: it reads the keys once more,
    and the index is built when the batch is in.
    """
    try:
        mirror, instead = _find_index(work, forced)
        if mirror.main_id != work.main_id:
            raise ConflictError(f"{work.spec.name}: main has moved", retryable=True)
        if instead is not None:
            report.index_wanted = True
            return None, instead
        found = refreshed(work.lake, mirror, progress, may_rebuild=forced is Strategy.INDEX)
    except UnsupportedError as error:
        return None, Choice(Strategy.SCAN, error.message)
    except (CorruptionError, StorageError) as error:
        report.index_wanted = True
        return None, Choice(Strategy.SCAN, error.message)
    report.count_index(found)
    return found, choice


def _remove_old_shards(lake: Lake, mirror: Identifier) -> None:
    try:
        remove_unreferenced(observe(lake, mirror))
    except NeveError as error:
        name = ".".join(mirror)
        logger.warning("%s: old files of the index were not removed: %s", name, error)
