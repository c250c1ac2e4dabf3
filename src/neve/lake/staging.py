"""Snapshots that no reader sees yet, and the one commit that shows them. No JVM.

Every commit here is a single compare-and-set: it asserts what `main` was, and is sent once.
PyIceberg retries appends by itself, which would publish on a base nobody looked at; so updates are
built with its snapshot producers and handed to the catalog directly.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntryStatus
from pyiceberg.table import FileScanTask
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemovePropertiesUpdate,
    RemoveSnapshotRefUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
)

from neve.errors import NotFoundError, UnknownOutcomeError
from neve.lake.ancestry import main_ancestors
from neve.lake.append_snapshot import write_append
from neve.lake.commit_errors import committing
from neve.lake.faults import explained
from neve.lake.profile import CatalogProfile
from neve.lake.pyiceberg_private import delete_old_metadata, overwrite_update
from neve.lake.staged_snapshot import StagedSnapshot

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Change:
    """What one commit does. `main` moves to `to_main`; without it, onto an append of `files`."""

    base_main: int | None
    to_main: int | None = None
    files: tuple[DataFile, ...] = ()
    set_properties: Mapping[str, str] = field(default_factory=dict)
    remove_properties: tuple[str, ...] = ()
    branches: Mapping[str, int] = field(default_factory=dict)
    drop_refs: tuple[str, ...] = ()
    summary: Mapping[str, str] = field(default_factory=dict)


class StagingTable:
    """One table as those see it who stage and publish."""

    def __init__(self, profile: CatalogProfile, table: Table) -> None:
        self.profile = profile
        self.table = table
        # What the table was before commits whose outcome was unknown: see `_delete_old_metadata`.
        self._before_unknown: TableMetadata | None = None

    @property
    def name(self) -> str:
        """Namespace and table, with dots."""
        return ".".join(self.table.name())

    @property
    def main_id(self) -> int | None:
        ref = self.table.metadata.refs.get(MAIN_BRANCH)
        return ref.snapshot_id if ref else None

    @property
    def properties(self) -> Mapping[str, str]:
        return self.table.metadata.properties

    def refresh(self) -> None:
        """Read the catalog anew; to be done before each decision.

        Raises:
            NotFoundError: the table was dropped.
            CatalogError: the catalog does not answer, or with a failure.
        """
        try:
            with explained(self.profile):
                self.table.refresh()
        except NoSuchTableError as error:
            raise NotFoundError(f"table {self.name} does not exist any more") from error
        except ValueError as error:
            # PyIceberg compares the tables' ids.
            if "UUID" not in str(error):
                raise
            raise NotFoundError(
                f"table {self.name} was dropped and made anew",
                hint="the next run goes on with the new table",
            ) from error

    def staged(self, prefix: str) -> list[StagedSnapshot]:
        """Return what refs beginning with `prefix` name, the oldest first."""
        found = []
        for name, ref in self.table.metadata.refs.items():
            snapshot = self.table.metadata.snapshot_by_id(ref.snapshot_id)
            if name.startswith(prefix) and snapshot is not None:
                found.append(_staged(name, snapshot))
        return sorted(found, key=lambda one: (one.sequence_number, one.snapshot_id))

    def main_summaries(self) -> Iterator[Mapping[str, str]]:
        """Yield the summary of each snapshot that `main` grew from, the newest first."""
        for snapshot in main_ancestors(self.table.metadata):
            yield snapshot.summary.additional_properties if snapshot.summary else {}

    def summary_of(self, snapshot_id: int) -> Mapping[str, str] | None:
        """Return the summary of a snapshot; None if it was expired."""
        snapshot = self.table.metadata.snapshot_by_id(snapshot_id)
        if snapshot is None:
            return None
        return snapshot.summary.additional_properties if snapshot.summary else {}

    def published_summaries(self) -> Iterator[Mapping[str, str]]:
        """Yield the summary of each snapshot that `main` was at, also of those rolled back."""
        published = {entry.snapshot_id for entry in self.table.metadata.snapshot_log}
        for snapshot in self.table.metadata.snapshots:
            if snapshot.snapshot_id in published and snapshot.summary:
                yield snapshot.summary.additional_properties

    def exists(self, snapshot_id: int) -> bool:
        return self.table.metadata.snapshot_by_id(snapshot_id) is not None

    def added_files(self, snapshot_id: int) -> list[DataFile]:
        """Return the data files that a snapshot added. Raises NotFoundError: it was expired."""
        snapshot = self.table.metadata.snapshot_by_id(snapshot_id)
        if snapshot is None:
            raise NotFoundError(
                f"{self.name}: snapshot {snapshot_id} is gone",
                hint="what it held is done again from the buffer",
            )
        return [
            entry.data_file
            for manifest in snapshot.manifests(self.table.io)
            if manifest.content == ManifestContent.DATA
            and manifest.added_snapshot_id == snapshot_id
            for entry in manifest.fetch_manifest_entry(self.table.io)
            if entry.status == ManifestEntryStatus.ADDED and entry.snapshot_id == snapshot_id
        ]

    def added_rows(self, snapshot_id: int, limit: int) -> pa.Table:
        """Return some of the rows that a snapshot added, read here. Raises NotFoundError."""
        tasks = [FileScanTask(file) for file in self.added_files(snapshot_id)]
        schema = self.table.schema()
        scan = ArrowScan(self.table.metadata, self.table.io, schema, AlwaysTrue(), limit=limit)
        return scan.to_table(tasks)

    def stage(
        self,
        files: Sequence[DataFile],
        summary: Mapping[str, str],
        ref: str,
        drop_refs: Sequence[str] = (),
    ) -> StagedSnapshot:
        """Add a snapshot of `files` on top of `main`, named by a tag and seen by nobody.

        Atomic, one attempt. The tag keeps it from being expired. `drop_refs` go in the same commit.

        Raises:
            ConflictError: somebody else committed meanwhile; nothing was applied.
            UnknownOutcomeError: the answer was lost; `staged` shows whether it was applied.
        """
        added = self._append(files, summary)
        snapshot = added.snapshot
        tag = self._set_ref(ref, snapshot.snapshot_id, SnapshotRefType.TAG)
        dropped = (RemoveSnapshotRefUpdate(ref_name=name) for name in drop_refs)
        self._commit((added, tag, *dropped), self.main_id, f"staging {ref}")
        return _staged(ref, snapshot)

    def append(self, files: Sequence[DataFile], summary: Mapping[str, str]) -> int:
        """Add a snapshot of `files` to `main`, if nobody else has moved it; return its id.

        Atomic, one attempt; raises as `apply` does.
        """
        added = self._append(files, summary)
        snapshot_id = added.snapshot.snapshot_id
        updates = (added, self._set_ref(MAIN_BRANCH, snapshot_id))
        self._commit(updates, self.main_id, f"appending snapshot {snapshot_id}")
        return snapshot_id

    def replace(self, files: Sequence[DataFile], summary: Mapping[str, str]) -> int:
        """Have `main` hold these files instead of all others; return its snapshot.

        Atomic, one attempt; raises as `apply` does.
        """
        with explained(self.profile):
            added = overwrite_update(self.table, files, summary)
        snapshot_id = added.snapshot.snapshot_id
        updates = (added, self._set_ref(MAIN_BRANCH, snapshot_id))
        self._commit(updates, self.main_id, f"replacing all files, snapshot {snapshot_id}")
        return snapshot_id

    def apply(self, change: Change) -> int:
        """Commit a change if `main` is still what it was decided on; return where `main` is now.

        Atomic, one attempt. Data, marks and refs move together or not at all.

        Raises:
            ConflictError: `main` has moved, or another writer was first; nothing was applied.
            UnknownOutcomeError: the answer was lost; the table tells after a refresh.
        """
        updates: list[TableUpdate] = []
        target = change.to_main
        if target is None:
            added = self._append(change.files, change.summary)
            updates.append(added)
            target = added.snapshot.snapshot_id
        updates.append(self._set_ref(MAIN_BRANCH, target))
        updates += [self._set_ref(name, snapshot) for name, snapshot in change.branches.items()]
        updates += [RemoveSnapshotRefUpdate(ref_name=name) for name in change.drop_refs]
        if change.set_properties:
            updates.append(SetPropertiesUpdate(updates=dict(change.set_properties)))
        if change.remove_properties:
            updates.append(RemovePropertiesUpdate(removals=list(change.remove_properties)))
        self._commit(tuple(updates), change.base_main, f"moving main to snapshot {target}")
        return target

    def drop_refs(self, names: Sequence[str], properties: Sequence[str] = ()) -> None:
        """Forget staged or held snapshots; expiry removes their files. Atomic, idempotent.

        Args:
            properties: what says something of them, and is removed with them.
        """
        present = [name for name in names if name in self.table.metadata.refs]
        if not present:
            return
        updates: list[TableUpdate] = [RemoveSnapshotRefUpdate(ref_name=name) for name in present]
        removals = [name for name in properties if name in self.properties]
        if removals:
            updates.append(RemovePropertiesUpdate(removals=removals))
        self._commit(tuple(updates), self.main_id, f"dropping {', '.join(present)}")

    def _append(self, files: Sequence[DataFile], summary: Mapping[str, str]) -> AddSnapshotUpdate:
        with explained(self.profile):
            new = write_append(self.table.metadata, self.table.io, files, summary)
        return AddSnapshotUpdate(snapshot=new.snapshot)

    def _set_ref(
        self, name: str, snapshot_id: int, kind: SnapshotRefType = SnapshotRefType.BRANCH
    ) -> SetSnapshotRefUpdate:
        """Move or make a ref; one that is there keeps what it says of retention."""
        present = self.table.metadata.refs.get(name)
        return SetSnapshotRefUpdate(
            ref_name=name,
            type=kind,
            snapshot_id=snapshot_id,
            max_ref_age_ms=present and present.max_ref_age_ms,
            max_snapshot_age_ms=present and present.max_snapshot_age_ms,
            min_snapshots_to_keep=present and present.min_snapshots_to_keep,
        )

    def _commit(
        self,
        updates: tuple[TableUpdate, ...],
        base_main: int | None,
        what: str,
    ) -> None:
        requirements = (
            AssertTableUUID(uuid=self.table.metadata.table_uuid),
            AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=base_main),
        )
        before = self._before_unknown or self.table.metadata
        try:
            with committing(self.profile, self.name, what):
                answer = self.table.catalog.commit_table(self.table, requirements, updates)
        except UnknownOutcomeError:
            self._before_unknown = before
            raise
        # Known to be applied: nothing that fails from here on may say otherwise.
        self.table.metadata = answer.metadata
        self.table.metadata_location = answer.metadata_location
        self._before_unknown = None
        self._delete_old_metadata(before)

    def _delete_old_metadata(self, before: TableMetadata) -> None:
        """Delete metadata files that left the log, also by commits whose answer was lost.

        Servers do this by themselves; with a database, it is for whoever commits.
        """
        if self.profile.settings.type not in ("sqlite", "postgres"):
            return
        try:
            delete_old_metadata(self.table.io, before, self.table.metadata)
        except Exception as error:  # noqa: BLE001 - the commit is applied, whatever happens here
            logger.warning("%s: old metadata files are left: %s", self.name, error)


def _staged(ref: str, snapshot: Snapshot) -> StagedSnapshot:
    summary = dict(snapshot.summary.additional_properties) if snapshot.summary else {}
    return StagedSnapshot(
        snapshot.snapshot_id,
        snapshot.parent_snapshot_id,
        snapshot.sequence_number or 0,
        ref,
        MappingProxyType(summary),
        snapshot.timestamp_ms,
    )
