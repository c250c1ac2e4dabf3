"""Applies a batch as files: new rows beside the old ones, old rows by deletion vectors.

One commit has the rows, the vectors, the checkpoint and the index's new root, and is made only if
`main` is exactly where the rows were looked up.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from neve import failpoints
from neve.errors import NeveError
from neve.index.compaction import add_delta
from neve.index.current_root import store_root
from neve.index.indexed_table import NO_SNAPSHOT
from neve.lake.live_files import live_files
from neve.lake.row_delta import (
    RowChanges,
    StatisticsFile,
    load_for_commit,
    prepare_row_delta,
)
from neve.lake.vectors import read_vectors, write_vectors
from neve.merge.checkpoint import TOMBSTONES
from neve.merge.side_tables import AT, BATCH, DELETED, KIND
from neve.merge.write_changes import Written, write_changes

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

    from neve.index.maintain import Refreshed
    from neve.index.root import Root
    from neve.lake.row_delta import RowDelta
    from neve.merge.batch import BatchWork
    from neve.merge.locators import Locator
    from neve.merge.side_tables import SideTable

logger = logging.getLogger(__name__)


@dataclass
class ReplaceRows:
    """Writes data files and deletion vectors, and keeps the index if there is one."""

    table: Table
    tombstones: SideTable
    # The index of the snapshot the batch was decided on.
    index: Refreshed | None = None
    # The root that the commit names.
    committed_root: Root | None = None
    _written: Written = field(default_factory=Written)
    # The mirror's table in Java, from when the rows are written on.
    _loaded: Future[RowDelta] | None = None
    # Data files of which no row is left.
    _emptied: set[str] = field(default_factory=set)

    def write(
        self, work: BatchWork, locator: Locator, batch_id: str, now: datetime
    ) -> list[DataFile]:
        """Decide and count a batch and write it, in one job; return the files of tombstones."""
        stamp = {KIND: DELETED, BATCH: batch_id, AT: now}
        tombstones = self.tombstones.staging.table
        root = self.index.root if self.index else None
        if self._loaded is None:
            # While the job runs, Java reads the table that is committed to then.
            self._loaded = _on_a_thread(partial(load_for_commit, work.session, self.table))
        # Merged events are joined, which Spark plans best as it goes.
        with nullcontext() if work.reads_merged else locator.planned(work.session):
            self._written = write_changes(
                work.decided(locator), work.shape, self.table, tombstones, stamp, root, now
            )
        work.count(self._written.tally, indexed=self.index is not None)
        return self._written.tombstones

    @property
    def tied_between(self) -> tuple[Any, Any]:
        """The least and the greatest of the first sequence column of unresolved ties."""
        return min(self._written.tied), max(self._written.tied)

    def discard(self) -> None:
        """Delete files that no commit will name; what cannot be deleted is an orphan."""
        for io, files in (
            (self.table.io, self._written.data_files),
            (self.tombstones.staging.table.io, self._written.tombstones),
        ):
            for file in files:
                with suppress(OSError):
                    io.delete(file.file_path)

    def _path_of(self, file: str) -> str:
        """The index names files by their ordinals, a scan by their paths."""
        return file if self.index is None else self.index.root.files[int(file)]

    def commit(self, work: BatchWork, summary: Mapping[str, str]) -> None:
        table, written = self.table, self._written
        deleted = {self._path_of(file): rows for file, rows in written.deleted.items()}
        touched = live_files(table, work.main_id, deleted) if deleted else {}
        vectors = [file.vector for file in touched.values() if file.vector]
        for path, positions in read_vectors(table.io, vectors).items():
            deleted[path] |= positions
        self._emptied = {
            path for path, rows in deleted.items() if len(rows) == touched[path].record_count
        }
        kept = {path: rows for path, rows in deleted.items() if path not in self._emptied}
        new_vectors = write_vectors(table.metadata, table.io, kept)
        work.counts.vectors_written = len(new_vectors)
        prepared = prepare_row_delta(
            work.session,
            table,
            RowChanges(work.main_id, written.data_files, new_vectors, self._emptied, dict(summary)),
            loaded=self._loaded.result() if self._loaded else None,
            files=touched,
        )
        failpoints.reach("merge.applied")
        properties, statistics = self._next_root(prepared.snapshot_id, summary)
        prepared.commit(properties, statistics)

    def _next_root(
        self, snapshot_id: int, summary: Mapping[str, str]
    ) -> tuple[dict[str, str], StatisticsFile | None]:
        """Write the index's next root; if that fails the merge still counts, and it is stale."""
        if self.index is None:
            return {}, None
        try:
            root = self._grown(self.index, snapshot_id)
            tombstones = summary[TOMBSTONES]
            named = replace(
                root, tombstones_snapshot_id=None if tombstones == NO_SNAPSHOT else int(tombstones)
            )
            stored = store_root(self.index.mirror, named)
        except (NeveError, OSError) as error:
            logger.warning("%s: the index was not kept: %s", ".".join(self.table.name()), error)
            return {}, None
        self.committed_root = named
        return stored.properties, stored.statistics

    def _grown(self, index: Refreshed, snapshot_id: int) -> Root:
        io, location = self.table.io, index.mirror.index_location
        left = index.root.without_files(self._emptied)
        grown, ordinals = left.with_files(file.file_path for file in self._written.data_files)
        entries = self._written.new_entries(ordinals)
        if entries is None:
            return replace(grown, snapshot_id=snapshot_id)
        return add_delta(io, grown, location, entries, snapshot_id)


def _on_a_thread(work: Callable[[], RowDelta]) -> Future[RowDelta]:
    """Begin work on a thread of its own; whoever asks for the result gets what it raises."""
    result: Future[RowDelta] = Future()

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised to whoever asks
            result.set_exception(error)

    threading.Thread(target=run, daemon=True, name="neve-load").start()
    return result
