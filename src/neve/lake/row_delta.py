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

from neve.errors import ConflictError, UsageError
from neve.lake import jvm
from neve.lake.commit_loop import CommitCounters, RetryPolicy, commit_until_known
from neve.lake.content_files import data_files_json, live_files_json, vectors_json
from neve.lake.java_commits import committing_in_java
from neve.lake.jvm import commits
from neve.lake.jvm.commits import RowDelta as RowDelta
from neve.lake.jvm.commits import StatisticsFile
from neve.lake.live_files import LiveFile, live_files
from neve.lake.sql import explain
from neve.lake.table_ref import TableRef

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyspark.sql import SparkSession

    from neve.lake.vectors import DeletionVector

__all__ = [
    "PreparedCommit",
    "RowChanges",
    "StatisticsFile",
    "commit_row_delta",
    "prepare_row_delta",
    "read_statistics",
    "set_statistics",
]

_ONCE = RetryPolicy(attempts=1)


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

    def __init__(self, table: str, delta: RowDelta, snapshot_id: int) -> None:
        self.snapshot_id = snapshot_id
        self._table = table
        self._delta = delta

    def commit(
        self,
        properties: Mapping[str, str] | None = None,
        statistics: StatisticsFile | None = None,
    ) -> int:
        """Make the snapshot `main`, with properties and its statistics file, in one swap.

        Atomic, one attempt.

        Raises:
            ConflictError: another writer was first; nothing was applied.
            UnknownOutcomeError: the answer was lost, and the snapshot is not there, or not yet.
        """

        def attempt() -> int:
            with committing_in_java(self._table, f"snapshot {self.snapshot_id}"):
                self._delta.send(properties or {}, statistics)
            return self.snapshot_id

        def find_applied() -> int | None:
            with _explaining():
                return self.snapshot_id if self._delta.is_applied(self.snapshot_id) else None

        # The base is fixed, so there is nothing to refresh and nothing to try again.
        return commit_until_known(
            lambda: None, attempt, find_applied, policy=_ONCE, counters=CommitCounters()
        )


def load_for_commit(spark: SparkSession, table: Table) -> RowDelta:
    """Load a table for a commit, which may be prepared later: its base is `main` as it is now."""
    with _explaining():
        return RowDelta(spark, TableRef.of(table).quoted)


def prepare_row_delta(
    spark: SparkSession,
    table: Table,
    changes: RowChanges,
    *,
    loaded: RowDelta | None = None,
    files: Mapping[str, LiveFile] | None = None,
) -> PreparedCommit:
    """Write the manifests of a commit; nothing is seen of it before it is sent.

    Args:
        table: of any configured catalog, with metadata no older than the base.
        loaded: the same table, if `load_for_commit` was called before.
        files: the data files that get a vector or leave, as they are at the base, if known.

    Raises:
        ConflictError: `main` is not, or no longer, at the base, or a vector is for another file.
        UsageError: a new vector cannot hold all the rows of the one it replaces.
    """
    name = TableRef.of(table).name
    touched = _touched(table, changes, files)
    replaced = [file.vector for file in touched.values() if file.vector]
    delta = loaded or load_for_commit(spark, table)
    with _explaining():
        if delta.base_snapshot_id != changes.base_snapshot_id:
            raise _conflict(
                name,
                f"main is at {delta.base_snapshot_id}, and no longer at {changes.base_snapshot_id}",
            )
        snapshot_id, vectors_gone, files_gone = delta.prepare(
            data_files_json(table.metadata, changes.data_files),
            vectors_json(table.metadata, changes.vectors, touched),
            vectors_json(table.metadata, replaced, touched),
            live_files_json(table.metadata, [touched[path] for path in changes.emptied]),
            changes.summary,
        )
    # Two vectors for one file are accepted by a commit, and then every scan of the table fails.
    if vectors_gone != len(replaced):
        raise _conflict(name, f"{len(replaced)} deletion vectors to be replaced are not there")
    if files_gone != len(changes.emptied):
        raise _conflict(name, f"{len(changes.emptied)} data files to be removed are not there")
    return PreparedCommit(name, delta, snapshot_id)


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
    spark: SparkSession,
    table: Table,
    changes: RowChanges,
    properties: Mapping[str, str] | None = None,
) -> int:
    """Commit rows and deletion vectors in one snapshot; return its id.

    Atomic, one attempt. Raises as `prepare_row_delta` and `PreparedCommit.commit`.
    """
    return prepare_row_delta(spark, table, changes).commit(properties)


def set_statistics(
    spark: SparkSession,
    ref: TableRef,
    statistics: StatisticsFile,
    properties: Mapping[str, str] | None = None,
) -> None:
    """Register a snapshot's statistics file, replacing the one it has, and set properties.

    Atomic, one attempt; `main` does not move. Raises as `PreparedCommit.commit`.
    """
    what = f"registering the statistics of snapshot {statistics.snapshot_id}"
    with committing_in_java(ref.name, what):
        commits.set_statistics(spark, ref.quoted, statistics, properties or {})


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
