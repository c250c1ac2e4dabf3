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
from typing import TYPE_CHECKING, Any

from neve import failpoints
from neve.errors import NeveError
from neve.index.compaction import add_delta
from neve.index.current_root import store_root
from neve.index.indexed_table import NO_SNAPSHOT, mirror_of
from neve.lake.document_table import DocumentTable
from neve.lake.live_files import live_files
from neve.lake.row_delta import (
    PreparedCommit,
    RowChanges,
    StatisticsFile,
    prepare_row_delta,
    source_of,
)
from neve.lake.side_by_side_writes import SideBySideWrites
from neve.lake.vectors import read_vectors, write_vectors
from neve.merge.checkpoint import TOMBSTONES
from neve.merge.double_entry import require_written
from neve.merge.side_tables import AT, BATCH, DELETED, KIND
from neve.merge.write_changes import Written, write_changes

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

    from neve.index.indexed_table import Mirror
    from neve.index.maintain import Refreshed
    from neve.index.root import Root
    from neve.lake import Lake
    from neve.merge.batch import BatchWork
    from neve.merge.locators import Locator
    from neve.merge.side_tables import SideTable
    from neve.merge.spec import MergeSpec

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
    # The mirror's snapshot, on its way while the tables beside the mirror are written.
    _prepared: Future[PreparedCommit] | None = None
    # Data files of which no row is left.
    _emptied: set[str] = field(default_factory=set)

    def write(
        self, work: BatchWork, locator: Locator, batch_id: str, now: datetime
    ) -> list[DataFile]:
        """Decide and count a batch and write it, in one job; return the files of tombstones."""
        stamp = {KIND: DELETED, BATCH: batch_id, AT: now}
        tombstones = self.tombstones.staging.table
        root = self.index.root if self.index else None
        # Merged events are joined, which Spark plans best as it goes.
        with nullcontext() if work.reads_merged else locator.planned(work.session):
            self._written = write_changes(
                work.decided(locator), work.shape, self.table, tombstones, stamp, root, now
            )
        work.count(self._written.tally, indexed=self.index is not None)
        return self._written.tombstones

    def committed_mirror(self, lake: Lake, spec: MergeSpec) -> Mirror:
        """Return the mirror as the commit has left it, without loading it again."""
        table = DocumentTable(source_of(lake, self.table))
        return mirror_of(
            lake,
            spec.mirror,
            table,
            self.tombstones.staging.table,
            spec.tombstone_retention_seconds,
        )

    def require_balance(self, work: BatchWork) -> None:
        """Refuse files that have other rows than were counted. Raises UnbalancedError."""
        for what, counted, files in (
            ("rows", work.counts.upserted, self._written.data_files),
            ("tombstones", work.counts.tombstones, self._written.tombstones),
        ):
            written = sum(file.record_count for file in files)
            require_written(work.spec.name, what, counted, written)

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

    def begin_commit(self, work: BatchWork) -> None:
        """Write vectors and manifests from now on; nothing is seen of them before `commit`."""
        self._prepared = _on_a_thread(lambda: self._prepare(work))

    def commit(self, work: BatchWork, summary: Mapping[str, str]) -> None:
        prepared = self._prepared.result() if self._prepared else self._prepare(work)
        properties, statistics = self._next_root(prepared.snapshot_id, summary)
        prepared.finish_writes()
        failpoints.reach("merge.applied")
        prepared.commit(properties, statistics, summary)

    def _prepare(self, work: BatchWork) -> PreparedCommit:
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
        # Vectors, manifests and the index's files name each other by sizes that are known already.
        writes = SideBySideWrites(table.io)
        new_vectors = write_vectors(table.metadata, writes, kept)
        work.counts.vectors_written = len(new_vectors)
        changes = RowChanges(work.main_id, written.data_files, new_vectors, self._emptied)
        return prepare_row_delta(work.lake, table, changes, files=touched, writes=writes)

    def _next_root(
        self, snapshot_id: int, summary: Mapping[str, str]
    ) -> tuple[dict[str, str], StatisticsFile | None]:
        """Write the index's next root; if that fails the merge still counts, and it is stale."""
        if self.index is None:
            return {}, None
        writes = SideBySideWrites(self.table.io)
        try:
            root = self._grown(self.index, snapshot_id, writes)
            tombstones = summary[TOMBSTONES]
            named = replace(
                root, tombstones_snapshot_id=None if tombstones == NO_SNAPSHOT else int(tombstones)
            )
            stored = store_root(self.index.mirror, named, writes)
            writes.finish()
        except (NeveError, OSError) as error:
            logger.warning("%s: the index was not kept: %s", ".".join(self.table.name()), error)
            return {}, None
        self.committed_root = named
        return stored.properties, stored.statistics

    def _grown(self, index: Refreshed, snapshot_id: int, io: FileIO) -> Root:
        location = index.mirror.index_location
        left = index.root.without_files(self._emptied)
        grown, ordinals = left.with_files(file.file_path for file in self._written.data_files)
        entries = self._written.new_entries(ordinals)
        if entries is None:
            return replace(grown, snapshot_id=snapshot_id)
        return add_delta(io, grown, location, entries, snapshot_id)


def _on_a_thread(work: Callable[[], PreparedCommit]) -> Future[PreparedCommit]:
    """Begin work on a thread of its own; whoever asks for the result gets what it raises."""
    result: Future[PreparedCommit] = Future()

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised to whoever asks
            result.set_exception(error)

    threading.Thread(target=run, daemon=True, name="neve-prepares").start()
    return result
