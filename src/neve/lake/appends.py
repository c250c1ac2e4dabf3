"""Appends to a table, each exactly once: data files that are written already, and one commit.

An append has an id of its own, which its snapshot's summary holds. After a conflict or a lost
answer the table is read again, and the id says whether the append is applied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from neve.lake.commit_loop import CommitCounters, RetryPolicy, commit_until_known
from neve.lake.staging import StagingTable

if TYPE_CHECKING:
    import threading

    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

    from neve.lake.profile import CatalogProfile

# In the summary of a snapshot: the id of the append that made it.
APPEND_ID = "neve.append-id"


class AppendTable:
    """One table as those see it who append to it without Spark."""

    def __init__(self, profile: CatalogProfile, table: Table) -> None:
        self._staging = StagingTable(profile, table)

    @property
    def name(self) -> str:
        """Namespace and table, with dots."""
        return self._staging.name

    @property
    def uuid(self) -> str:
        return str(self._staging.table.metadata.table_uuid)

    @property
    def main_id(self) -> int | None:
        return self._staging.main_id

    @property
    def metadata(self) -> TableMetadata:
        """Its schema, partition spec, sort order and properties, for those who write files."""
        return self._staging.table.metadata

    @property
    def io(self) -> FileIO:
        return self._staging.table.io

    def refresh(self) -> None:
        """Read the catalog anew. Raises NotFoundError: it was dropped, or made anew."""
        self._staging.refresh()

    def append(
        self,
        files: Sequence[DataFile],
        append_id: str,
        *,
        policy: RetryPolicy,
        counters: CommitCounters,
        stop: threading.Event | None = None,
    ) -> int:
        """Add files to `main`, exactly once for an id; return the snapshot that has them.

        Raises:
            ConflictError: others were first in every attempt; nothing was applied.
            UnknownOutcomeError: the answer was lost, and the table does not show the append yet.
                The files must stay.
            NeveError: the catalog or the store failed; nothing was applied.
        """
        return commit_until_known(
            self.refresh,
            lambda: self.find(append_id) or self._staging.append(files, {APPEND_ID: append_id}),
            lambda: self.find(append_id),
            policy=policy,
            counters=counters,
            stop=stop,
        )

    def find(self, append_id: str) -> int | None:
        """Return the snapshot of an append, as the table was last read; None: it has none."""
        for snapshot in self._staging.table.metadata.snapshots:
            summary = snapshot.summary.additional_properties if snapshot.summary else {}
            if summary.get(APPEND_ID) == append_id:
                return snapshot.snapshot_id
        return None
