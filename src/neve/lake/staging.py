"""Snapshots that no reader sees yet, and the one commit that shows them. No JVM.

Every commit here is a single compare-and-set: it asserts what `main` was, and is sent once.
PyIceberg retries appends by itself, which would publish on a base nobody looked at. Metadata stays
JSON (`json_table.py`), so that a commit costs little however many snapshots a table has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntryStatus
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.snapshots import Snapshot

from neve.errors import NotFoundError, UnsupportedError
from neve.lake.append_snapshot import snapshot_json, write_append
from neve.lake.commit_errors import refused
from neve.lake.create import TableSpec, ensure_table, lacks_columns
from neve.lake.far_days import (
    UNASSIGNED_SPEC_ID,
    add_unpartitioned_spec,
    lack_spec,
    unpartitioned_spec_id,
)
from neve.lake.faults import explained
from neve.lake.json_table import JsonTable, json_table
from neve.lake.metadata_json import MAIN, MetadataJson
from neve.lake.metadata_updates import (
    Json,
    add_snapshot,
    remove_properties,
    remove_ref,
    set_branch,
    set_properties,
    set_tag,
)
from neve.lake.pyiceberg_private import overwrite_update
from neve.lake.side_by_side_writes import SideBySideWrites
from neve.lake.staged_snapshot import StagedSnapshot
from neve.lake.table_ref import TableRef
from neve.lake.trimmed_metadata import TrimmedMetadata

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.io import FileIO
    from pyiceberg.table.metadata import TableMetadata

    from neve.lake.identifier import Identifier
    from neve.lake.profile import CatalogProfile


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
    """One table as those see it who stage and publish, just read.

    Args:
        table: the table, also as PyIceberg has loaded it; another one of the same name is not it.

    Raises:
        NotFoundError: there is no such table any more.
    """

    def __init__(self, profile: CatalogProfile, table: Table | JsonTable) -> None:
        self.profile = profile
        if isinstance(table, Table):
            uuid = str(table.metadata.table_uuid)
            table = json_table(profile, table.catalog, tuple(table.name()), uuid)
        self._table = table
        self._trimmed = TrimmedMetadata()
        self._parsed: Table | None = None
        self.refresh()

    @property
    def identifier(self) -> Identifier:
        return self._table.identifier

    @property
    def name(self) -> str:
        """Namespace and table, with dots."""
        return self._table.name

    @property
    def ref(self) -> TableRef:
        return TableRef(self.profile.name, self.identifier)

    @property
    def document(self) -> MetadataJson:
        """Its metadata, as it was read last or as our last commit has made it."""
        return self._table.metadata

    @property
    def metadata(self) -> TableMetadata:
        """Its shape and its current snapshot, for those who write files and manifests."""
        return self._trimmed.parse(self.document)

    @property
    def io(self) -> FileIO:
        return self._table.io

    @property
    def table(self) -> Table:
        """The table as PyIceberg has it. Parsing takes as long as there are snapshots."""
        location = self.document.metadata_location
        if self._parsed is None or self._parsed.metadata_location != location:
            metadata = TableMetadataUtil.parse_obj(dict(self.document.document))
            self._parsed = Table(self.identifier, metadata, location, self.io, self._table.catalog)
        return self._parsed

    @property
    def main_id(self) -> int | None:
        return self.document.refs.get(MAIN)

    @property
    def properties(self) -> Mapping[str, str]:
        return self.document.properties

    def refresh(self) -> None:
        """Ask the catalog anew; to be done before each decision.

        Raises:
            NotFoundError: the table was dropped, or dropped and created again.
            CatalogError: the catalog does not answer, or with a failure.
        """
        self._table.refresh()

    def staged(self, prefix: str) -> list[StagedSnapshot]:
        """Return what refs beginning with `prefix` name, the oldest first."""
        return self.document.staged(prefix)

    def main_summaries(self, since: int = 0) -> Iterator[Mapping[str, str]]:
        """Yield the summary of each snapshot that `main` grew from, the newest first.

        Args:
            since: the lowest sequence number that is asked for. A parent has a lower one than its
                child (Iceberg specification, "Sequence Numbers"), in format version 1 all have 0.
        """
        for snapshot in self.document.iter_main_history():
            if (snapshot.get("sequence-number") or 0) < since:
                return
            yield snapshot.get("summary") or {}

    def summary_of(self, snapshot_id: int) -> Mapping[str, str] | None:
        """Return the summary of a snapshot; None if it was expired."""
        snapshot = self.document.snapshots.get(snapshot_id)
        return None if snapshot is None else snapshot.get("summary") or {}

    def published_summaries(self) -> Iterator[Mapping[str, str]]:
        """Yield the summary of each snapshot that `main` was at, also of those rolled back."""
        log = self.document.document.get("snapshot-log") or ()
        published = {entry["snapshot-id"] for entry in log}
        for snapshot_id, snapshot in self.document.snapshots.items():
            if snapshot_id in published:
                yield snapshot.get("summary") or {}

    def exists(self, snapshot_id: int) -> bool:
        return snapshot_id in self.document.snapshots

    def added_files(self, snapshot_id: int) -> list[DataFile]:
        """Return the data files that a snapshot added. Raises NotFoundError: it was expired."""
        if not self.exists(snapshot_id):
            raise NotFoundError(
                f"{self.name}: snapshot {snapshot_id} is gone",
                hint="what it held is done again from the buffer",
            )
        snapshot = Snapshot.model_validate(self.document.snapshots[snapshot_id])
        return [
            entry.data_file
            for manifest in snapshot.manifests(self.io)
            if manifest.content == ManifestContent.DATA
            and manifest.added_snapshot_id == snapshot_id
            for entry in manifest.fetch_manifest_entry(self.io)
            if entry.status == ManifestEntryStatus.ADDED and entry.snapshot_id == snapshot_id
        ]

    def added_rows(self, snapshot_id: int, limit: int) -> pa.Table:
        """Return some of the rows that a snapshot added, read here. Raises NotFoundError."""
        tasks = [FileScanTask(file) for file in self.added_files(snapshot_id)]
        scan = ArrowScan(self.metadata, self.io, self.metadata.schema(), AlwaysTrue(), limit=limit)
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
        self._give_spec(files)
        added = self._append(files, summary)
        updates = [
            add_snapshot(added),
            set_tag(ref, added["snapshot-id"]),
            *(remove_ref(name) for name in drop_refs),
        ]
        self._commit(updates, self.main_id, f"staging {ref}")
        return StagedSnapshot.of(ref, added)

    def append(self, files: Sequence[DataFile], summary: Mapping[str, str]) -> int:
        """Add a snapshot of `files` to `main`, if nobody else has moved it; return its id.

        Atomic, one attempt; raises as `apply` does.
        """
        return self._add_to_main(self._append(files, summary), "appending")

    def replace(self, files: Sequence[DataFile], summary: Mapping[str, str]) -> int:
        """Have `main` hold these files instead of all others; return its snapshot.

        Atomic, one attempt; raises as `apply` does.
        """
        with explained(self.profile):
            added = overwrite_update(self.table, files, summary).snapshot
        return self._add_to_main(snapshot_json(added), "replacing all files")

    def apply(self, change: Change) -> int:
        """Commit a change if `main` is still what it was decided on; return where `main` is now.

        Atomic, one attempt. Data, marks and refs move together or not at all.

        Raises:
            ConflictError: `main` has moved, or another writer was first; nothing was applied.
            UnknownOutcomeError: the answer was lost; the table tells after a refresh.
        """
        updates: list[Json] = []
        target = change.to_main
        if target is None:
            added = self._append(change.files, change.summary)
            updates.append(add_snapshot(added))
            target = int(added["snapshot-id"])
        branches = {MAIN: target, **change.branches}
        updates += [set_branch(self.document, *branch) for branch in branches.items()]
        updates += [remove_ref(name) for name in change.drop_refs]
        if change.set_properties:
            updates.append(set_properties(change.set_properties))
        if change.remove_properties:
            updates.append(remove_properties(change.remove_properties))
        self._commit(updates, change.base_main, f"moving main to snapshot {target}")
        return target

    def drop_refs(self, names: Sequence[str], properties: Sequence[str] = ()) -> None:
        """Forget staged or held snapshots; expiry removes their files. Atomic, idempotent.

        Args:
            properties: what says something of them, and is removed with them.
        """
        present = [name for name in names if name in self.document.refs]
        if not present:
            return
        updates = [remove_ref(name) for name in present]
        removals = [name for name in properties if name in self.properties]
        if removals:
            updates.append(remove_properties(removals))
        self._commit(updates, self.main_id, f"dropping {', '.join(present)}")

    def _give_spec(self, files: Sequence[DataFile]) -> None:
        """Give files of far-off days the table's unpartitioned spec, which it gets now if need be.

        A commit of its own, which changes nothing for readers: the catalog chooses the id.
        """
        without = lack_spec(files)
        if without and unpartitioned_spec_id(self.metadata) == UNASSIGNED_SPEC_ID:
            update = add_unpartitioned_spec(self.document.document["partition-specs"])
            self._table.commit(MAIN, [update], "adding an unpartitioned spec")
        for file in without:
            file.spec_id = unpartitioned_spec_id(self.metadata)

    def _append(self, files: Sequence[DataFile], summary: Mapping[str, str]) -> Json:
        with explained(self.profile):
            # The list names manifests by sizes that are known before they are written.
            writes = SideBySideWrites(self.io)
            try:
                new = write_append(self.metadata, writes, files, summary)
                writes.finish()
            except ValueError as error:
                # Of its format version or of a property of the table, as a rule.
                raise UnsupportedError(f"{self.name} cannot be appended to: {error}") from error
        return snapshot_json(new.snapshot)

    def _add_to_main(self, added: Json, what: str) -> int:
        snapshot_id = int(added["snapshot-id"])
        updates = [add_snapshot(added), set_branch(self.document, MAIN, snapshot_id)]
        self._commit(updates, self.main_id, f"{what}, snapshot {snapshot_id}")
        return snapshot_id

    def _commit(self, updates: Sequence[Json], base_main: int | None, what: str) -> None:
        if base_main != self.main_id:
            raise refused(self.name, what, f"main is not at snapshot {base_main} any more")
        self._table.commit(MAIN, updates, what)


def load_staging_table(
    profile: CatalogProfile, catalog: Catalog, identifier: Identifier
) -> StagingTable:
    """Return a table to stage to, just read. Raises NotFoundError."""
    return StagingTable(profile, json_table(profile, catalog, identifier))


def find_staging_table(
    profile: CatalogProfile, catalog: Catalog, identifier: Identifier
) -> StagingTable | None:
    """Return a table to stage to, just read; None: there is none of that name."""
    try:
        return load_staging_table(profile, catalog, identifier)
    except NotFoundError:
        return None


def ensure_staging_table(
    profile: CatalogProfile, catalog: Catalog, spec: TableSpec
) -> StagingTable:
    """Return a table to stage to, just read; made now, or given the columns that it lacks.

    Idempotent; raises as `ensure_table` does.
    """
    table = find_staging_table(profile, catalog, spec.identifier)
    if table is None or lacks_columns(table.metadata.schema(), spec):
        return StagingTable(profile, ensure_table(profile, catalog, spec))
    return table
