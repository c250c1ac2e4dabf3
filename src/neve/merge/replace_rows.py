"""Applies a batch as files: new rows beside the old ones, old rows by deletion vectors.

One commit has the rows, the vectors, the checkpoint and the index's new root, and is made only if
`main` is exactly where the rows were looked up.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from neve import failpoints
from neve.errors import NeveError, StorageError
from neve.index.compaction import add_delta
from neve.index.current_root import store_root
from neve.index.indexed_table import NO_SNAPSHOT
from neve.index.maintain import compacted
from neve.lake.live_files import live_files
from neve.lake.row_delta import RowChanges, StatisticsFile, prepare_row_delta
from neve.lake.vectors import read_vector, write_vectors
from neve.merge.checkpoint import TOMBSTONES
from neve.merge.locators import Decided
from neve.merge.repeats import all_repeat
from neve.merge.side_tables import AT, BATCH, DELETED, KIND
from neve.merge.write_changes import Written, new_entries, write_changes

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

    from neve.index.maintain import Refreshed
    from neve.index.root import Root
    from neve.lake import Lake
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
    # Whether shards were merged, so that older ones are needed only as long as their snapshots.
    compacted: bool = False
    _written: Written = field(default_factory=Written)
    # Data files of which no row is left.
    _emptied: set[str] = field(default_factory=set)

    @property
    def tombstone_files(self) -> list[DataFile]:
        return self._written.tombstones

    def write_at_once(
        self, work: BatchWork, locator: Locator, batch_id: str, now: datetime
    ) -> bool:
        """Decide a batch and write it in one job; False when it has to be decided step by step."""
        with locator.planned(work.session):
            decided = work.in_one_go(locator)
            written = self._write(work, decided, batch_id, now, with_ties=False)
        work.take(written.tally, indexed=self.index is not None)
        # A TRUNCATE decides over all other events, and which of two different events of the same
        # sequence is the greater one is to be found in the changelog.
        is_undone = work.counts.truncated or (work.has_ties and not self._repeat(work, written))
        if is_undone or work.counts.index_is_broken:
            self._delete(written)
            return False
        self._written = written
        return True

    def _repeat(self, work: BatchWork, written: Written) -> bool:
        """Tell whether all events of a sequence that the mirror has were merged before."""
        if sum(map(len, written.ties)) < work.counts.repeated:
            return False
        ties = pa.concat_tables(written.ties)
        return all_repeat(self.table, ties, self._path_of)

    def _path_of(self, file: str) -> str:
        """The index names files by their ordinals, a scan by their paths."""
        return file if self.index is None else self.index.root.files[int(file)]

    def write(self, work: BatchWork, batch_id: str, now: datetime) -> list[DataFile]:
        if work.has_changes:
            changes = Decided(work.changes(with_absent=True))
            self._written = self._write(work, changes, batch_id, now, with_ties=True)
            if any(one.cached < 0 for one in self._written.tally.values()):
                # Looked up once more, since what was kept of the first time is lost.
                raise StorageError(
                    "the index could not be read while a batch was written",
                    hint="it is tried again",
                    retryable=True,
                )
        return self._written.tombstones

    def _write(
        self, work: BatchWork, changes: Decided, batch_id: str, now: datetime, *, with_ties: bool
    ) -> Written:
        stamp = {KIND: DELETED, BATCH: batch_id, AT: now}
        hash_keys = self.index.root.hasher if self.index else None
        graves = self.tombstones.staging.table
        return write_changes(
            changes, work.shape, self.table, graves, stamp, hash_keys, with_ties=with_ties
        )

    def _delete(self, written: Written) -> None:
        """Delete files that no commit will name; what cannot be deleted is an orphan."""
        for io, files in (
            (self.table.io, written.data_files),
            (self.tombstones.staging.table.io, written.tombstones),
        ):
            for file in files:
                with suppress(OSError):
                    io.delete(file.file_path)

    def commit(self, work: BatchWork, summary: Mapping[str, str]) -> None:
        table, written = self.table, self._written
        deleted = {self._path_of(file): rows for file, rows in written.deleted.items()}
        touched = live_files(table, work.main_id, deleted) if deleted else {}
        for path, positions in deleted.items():
            vector = touched[path].vector
            if vector is not None:
                positions |= read_vector(table.io, vector)  # noqa: PLW2901 - in place
        self._emptied = {
            path for path, gone in deleted.items() if len(gone) == touched[path].record_count
        }
        kept = {path: gone for path, gone in deleted.items() if path not in self._emptied}
        vectors = write_vectors(table.metadata, table.io, kept)
        work.counts.vectors_written = len(vectors)
        prepared = prepare_row_delta(
            work.session,
            table,
            RowChanges(work.main_id, written.data_files, vectors, self._emptied, dict(summary)),
        )
        failpoints.reach("merge.applied")
        properties, statistics = self._next_root(work.lake, prepared.snapshot_id, summary)
        prepared.commit(properties, statistics)

    def _next_root(
        self, lake: Lake, snapshot_id: int, summary: Mapping[str, str]
    ) -> tuple[dict[str, str], StatisticsFile | None]:
        """Write the index's next root; if that fails the merge still counts, and it is stale."""
        if self.index is None:
            return {}, None
        try:
            root = self._grown(lake, self.index, snapshot_id)
            tombstones = summary[TOMBSTONES]
            named = replace(
                root,
                tombstones_snapshot_id=None if tombstones == NO_SNAPSHOT else int(tombstones),
            )
            stored = store_root(self.index.mirror, named)
        except (NeveError, OSError) as error:
            logger.warning("%s: the index was not kept: %s", ".".join(self.table.name()), error)
            return {}, None
        return dict(stored.properties), stored.statistics

    def _grown(self, lake: Lake, index: Refreshed, snapshot_id: int) -> Root:
        io, location = self.table.io, index.mirror.index_location
        left = index.root.without_files(self._emptied)
        grown, ordinals = left.with_files(file.file_path for file in self._written.data_files)
        entries = new_entries(self._written, ordinals)
        if entries is None:
            return replace(grown, snapshot_id=snapshot_id)
        grown = add_delta(io, grown, location, entries, snapshot_id)
        small = compacted(lake, index.mirror, grown)
        self.compacted = small is not grown
        return small
