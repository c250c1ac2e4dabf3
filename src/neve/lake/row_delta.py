"""Replace rows: one commit that adds data files and deletion vectors together.

The commit is a compare-and-set on the snapshot that was looked at. A row that somebody else added
or removed since, or moved by a compaction, is a conflict, whatever row it is: positions and keys
were looked up in that snapshot, and no other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import uuid4

from pydantic_core import to_json
from pyiceberg.manifest import ManifestContent, ManifestFile

from neve.errors import ConflictError, StorageError, UsageError
from neve.lake import jvm
from neve.lake.commit_loop import CommitCounters, RetryPolicy, commit_until_known
from neve.lake.content_files import data_files_json, live_files_json, vectors_json
from neve.lake.document_table import DocumentTable
from neve.lake.json_table import JsonTable, json_table
from neve.lake.jvm.commits import ChangedFiles, MadeSnapshot, RowDelta, held_in_memory
from neve.lake.live_files import LiveFile, live_files
from neve.lake.manifest_bytes import manifests_in, read_file, read_manifests
from neve.lake.metadata_json import MAIN
from neve.lake.metadata_updates import (
    Json,
    add_snapshot,
    set_branch,
    set_properties,
    set_statistics_file,
)
from neve.lake.profile import profile_named
from neve.lake.side_by_side_writes import SideBySideWrites
from neve.lake.sql import explain
from neve.lake.table_ref import TableRef
from neve.lake.trimmed_metadata import trimmed_document

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

    from neve.lake.lake import Lake
    from neve.lake.vectors import DeletionVector

_ONCE = RetryPolicy(attempts=1)
# Java's, of a file that it looks for in memory.
_NOT_IN_MEMORY = "No in-memory file found"


@dataclass(frozen=True)
class StatisticsFile:
    """A Puffin file that belongs to a snapshot."""

    snapshot_id: int
    path: str
    size: int
    footer_size: int


@dataclass(frozen=True)
class RowChanges:
    """What a commit does to rows.

    A data file's new vector replaces the one it has, so it must hold that one's rows, too. A file
    without a row left is better `emptied`: it leaves the table, and its vector with it.
    """

    base_snapshot_id: int | None
    data_files: Sequence[DataFile] = ()
    vectors: Sequence[DeletionVector] = ()
    emptied: Collection[str] = ()
    summary: Mapping[str, str] = field(default_factory=dict)


class PreparedCommit:
    """A snapshot whose id is known and that is not yet sent; what names it can be written now."""

    def __init__(self, source: JsonTable, snapshot: Json, writes: SideBySideWrites) -> None:
        self.snapshot_id = int(snapshot["snapshot-id"])
        self._source = source
        self._snapshot = snapshot
        self._writes = writes

    def finish_writes(self) -> None:
        """Wait until the snapshot's files are there. Raises StorageError."""
        try:
            self._writes.finish()
        except OSError as error:
            raise StorageError(
                f"{self._source.name}: a file of snapshot {self.snapshot_id} cannot be written: "
                f"{error}",
                retryable=True,
            ) from error

    def commit(
        self,
        properties: Mapping[str, str] | None = None,
        statistics: StatisticsFile | None = None,
        summary: Mapping[str, str] | None = None,
    ) -> int:
        """Make the snapshot `main`, with properties and its statistics file, in one swap.

        Atomic, one attempt.

        Args:
            summary: what the snapshot's summary says besides what it was prepared with.

        Raises:
            ConflictError: another writer was first; nothing was applied.
            UnknownOutcomeError: the answer was lost, and the snapshot is not there, or not yet.
        """
        self.finish_writes()
        source = self._source
        updates = [
            add_snapshot(_with_summary(self._snapshot, summary or {})),
            set_branch(source.metadata, MAIN, self.snapshot_id),
            *_updates(properties, statistics),
        ]

        def attempt() -> int:
            source.commit(MAIN, updates, f"snapshot {self.snapshot_id}")
            return self.snapshot_id

        def find_applied() -> int | None:
            source.refresh()
            return self.snapshot_id if self.snapshot_id in source.metadata.snapshots else None

        # The base is fixed, so there is nothing to refresh and nothing to try again.
        return commit_until_known(
            lambda: None, attempt, find_applied, policy=_ONCE, counters=CommitCounters()
        )


def _with_summary(snapshot: Json, summary: Mapping[str, str]) -> Json:
    return {**snapshot, "summary": {**snapshot["summary"], **summary}}


def _updates(
    properties: Mapping[str, str] | None, statistics: StatisticsFile | None
) -> Iterator[Json]:
    if properties:
        yield set_properties(properties)
    if statistics:
        yield set_statistics_file(
            statistics.snapshot_id, statistics.path, statistics.size, statistics.footer_size
        )


def source_of(lake: Lake, table: Table) -> JsonTable:
    """Return what a commit to a table compares with: as it was read, or as it is now."""
    if isinstance(table, DocumentTable):
        return table.source
    ref, uuid = TableRef.of(table), str(table.metadata.table_uuid)
    profile = profile_named(lake.settings, ref.catalog)
    source = json_table(profile, lake.catalog(ref.catalog), ref.identifier, uuid)
    source.refresh()
    return source


def prepare_row_delta(
    lake: Lake,
    table: Table,
    changes: RowChanges,
    *,
    files: Mapping[str, LiveFile] | None = None,
    writes: SideBySideWrites | None = None,
) -> PreparedCommit:
    """Write the manifests of a commit; nothing is seen of it before it is sent.

    Args:
        table: of any configured catalog, with metadata no older than the base.
        files: the data files that get a vector or leave, as they are at the base, if known.
        writes: what the commit's files are written with, if others are on their way already.

    Raises:
        ConflictError: `main` is not, or no longer, at the base, or a vector is for another file.
        UsageError: a new vector cannot hold all the rows of the one it replaces.
    """
    name = TableRef.of(table).name
    touched = _touched(table, changes, files)
    replaced = [file.vector for file in touched.values() if file.vector]
    source = source_of(lake, table)
    main = source.metadata.refs.get(MAIN)
    if main != changes.base_snapshot_id:
        raise _conflict(name, f"main is at {main}, and no longer at {changes.base_snapshot_id}")
    metadata = table.metadata
    changed = ChangedFiles(
        data_files_json(metadata, changes.data_files),
        vectors_json(metadata, changes.vectors, touched),
        vectors_json(metadata, replaced, touched),
        live_files_json(metadata, [touched[path] for path in changes.emptied]),
    )
    writes = writes or SideBySideWrites(table.io)
    made = _Maker(lake, source, changed, changes, writes).make()
    # Two vectors for one file are accepted by a commit, and then every scan of the table fails.
    if made.vectors_gone != len(replaced):
        raise _conflict(name, f"{len(replaced)} deletion vectors to be replaced are not there")
    if made.files_gone != len(changes.emptied):
        raise _conflict(name, f"{len(changes.emptied)} data files to be removed are not there")
    return PreparedCommit(source, made.document, writes)


@dataclass(frozen=True)
class _Maker:
    """Has Iceberg make a snapshot of what its base is made of, and writes the files of it."""

    lake: Lake
    source: JsonTable
    changed: ChangedFiles
    changes: RowChanges
    writes: SideBySideWrites

    def make(self) -> MadeSnapshot:
        base, io = self.source.metadata, self.source.io
        base_id = self.changes.base_snapshot_id
        manifests: list[ManifestFile] = []
        files: dict[str, bytes] = {}
        if base_id is not None:
            manifest_list = base.snapshots[base_id]["manifest-list"]
            files[manifest_list] = read_file(io, manifest_list)
            manifests = manifests_in(files[manifest_list])
        needed = [one for one in manifests if self._is_needed(one)]
        with _explaining():
            try:
                return self._make({**files, **read_manifests(io, needed)})
            except jvm.JavaError as error:
                # It also merges manifests when there are many, and only Iceberg knows which.
                if len(needed) == len(manifests) or not _is_missing(error):
                    raise
                return self._make({**files, **read_manifests(io, manifests)})

    def _is_needed(self, manifest: ManifestFile) -> bool:
        if manifest.content is ManifestContent.DELETES:
            return bool(self.changes.emptied or self.changes.vectors)
        return bool(self.changes.emptied)

    def _make(self, files: Mapping[str, bytes]) -> MadeSnapshot:
        base = self.source.metadata
        document = to_json(trimmed_document(base))
        # A name of its own: Java decompresses a file that the table's own name says is compressed.
        location = f"{uuid4().hex}.metadata.json"
        with held_in_memory(self.lake.spark, {**files, location: document}):
            delta = RowDelta(self.lake.spark, location)
            made = delta.make_snapshot(
                self.changes.base_snapshot_id, self.changed, self.changes.summary
            )
            snapshot_id = made.document["snapshot-id"]
            self.writes.write(made.document["manifest-list"], made.manifest_list)
            paths = [
                manifest.manifest_path
                for manifest in manifests_in(made.manifest_list)
                if manifest.added_snapshot_id == snapshot_id
            ]
            for path in paths:
                self.writes.write(path, delta.read(path))
            # While they are on their way.
            delta.forget(made.document["manifest-list"], paths)
        return made


def _is_missing(error: BaseException) -> bool:
    return any(_NOT_IN_MEMORY in message for message in jvm.messages(error))


def _touched(
    table: Table, changes: RowChanges, known: Mapping[str, LiveFile] | None
) -> Mapping[str, LiveFile]:
    """Return the data files that get a vector, or leave, as they are at the base."""
    new = {vector.data_file: vector for vector in changes.vectors}
    if len(new) < len(changes.vectors) or not new.keys().isdisjoint(changes.emptied):
        raise UsageError("a data file has two new deletion vectors, or one and leaves")
    touched = {*new, *changes.emptied}
    if not touched or changes.base_snapshot_id is None:
        return {}
    files = known
    if files is None:
        files = live_files(table, changes.base_snapshot_id, touched)
    for path, vector in new.items():
        before = files[path].vector
        if before and before.cardinality > vector.cardinality:
            raise UsageError(f"the new deletion vector of {path} would bring rows back")
    return files


def commit_row_delta(
    lake: Lake,
    table: Table,
    changes: RowChanges,
    properties: Mapping[str, str] | None = None,
) -> int:
    """Commit rows and deletion vectors in one snapshot; return its id.

    Atomic, one attempt. Raises as `prepare_row_delta` and `PreparedCommit.commit`.
    """
    return prepare_row_delta(lake, table, changes).commit(properties)


def set_statistics(
    source: JsonTable,
    statistics: StatisticsFile,
    properties: Mapping[str, str] | None = None,
) -> None:
    """Register a snapshot's statistics file, replacing the one it has, and set properties.

    Atomic, one attempt; `main` does not move. Raises as `PreparedCommit.commit`.
    """
    what = f"registering the statistics of snapshot {statistics.snapshot_id}"
    source.commit(MAIN, list(_updates(properties, statistics)), what)


def read_statistics(table: Table) -> dict[int, StatisticsFile]:
    """Return the statistics file of each snapshot that has one."""
    return {
        one.snapshot_id: StatisticsFile(
            one.snapshot_id,
            one.statistics_path,
            one.file_size_in_bytes,
            one.file_footer_size_in_bytes,
        )
        for one in table.metadata.statistics
    }


@contextmanager
def _explaining() -> Iterator[None]:
    """Explain what is raised by what sends nothing."""
    try:
        yield
    except jvm.JavaError as error:
        raise explain(error) from error


def _conflict(table: str, reason: str) -> ConflictError:
    return ConflictError(f"{table}: {reason}", hint="it is tried again", retryable=True)
