"""Tables that PyIceberg cannot write, through Iceberg's Java API: format version 3, branches.

Every commit is one compare-and-set. It raises what `commit_errors.py` says: `ConflictError` means
that nothing was applied, `UnknownOutcomeError` that only the table can tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from neve.errors import ConflictError
from neve.lake import jvm
from neve.lake.java_commits import committing_in_java
from neve.lake.jvm import tables
from neve.lake.jvm.tables import MAIN, Task
from neve.lake.paths import require_usable_places

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from neve.lake.lake import Lake
    from neve.lake.table_ref import TableRef

__all__ = ["MAIN", "JavaTable", "Task", "isolated", "reusable"]


@contextmanager
def isolated(lake: Lake, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """Yield a session of its own with the lake's catalogs; its settings leak nowhere.

    Its connections to the catalogs are its own, too, and closed at the end.
    """
    session = tables.isolated(lake.spark, conf)
    try:
        yield session
    finally:
        if jvm.is_running(session.sparkContext):
            jvm.close_catalogs(session)


@contextmanager
def reusable(lake: Lake, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """Yield a session of its own as `isolated` does, and keep it for the next caller.

    To connect to the catalogs and to close them takes longer than a small commit. The lake closes
    what it keeps. Whoever changes a setting has to set it back; after an error the session goes.
    """
    session = lake.take_session()
    if session is None:
        session = tables.isolated(lake.spark, conf)
    try:
        yield session
    except BaseException:
        if jvm.is_running(session.sparkContext):
            jvm.close_catalogs(session)
        raise
    lake.keep_session(session)


class JavaTable:
    """A table committed through Iceberg's Java API."""

    def __init__(self, lake: Lake, session: SparkSession, ref: TableRef) -> None:
        self.lake = lake
        self.session = session
        self.ref = ref

    @property
    def name(self) -> str:
        return self.ref.name

    def create(
        self,
        schema_json: str,
        spec_json: str,
        properties: Mapping[str, str],
        summary: Mapping[str, str],
    ) -> None:
        """Create it with an empty first snapshot. Raises ConflictError: somebody else did."""
        require_usable_places(*self.ref.identifier)
        with self._committing("creating it"):
            tables.create_table(self.session, self.ref, schema_json, spec_json, properties, summary)

    def union_schema(
        self, schema_json: str, properties: Mapping[str, str], renamed: Mapping[str, str]
    ) -> None:
        """Rename columns, then add and widen them as in a schema, in one commit."""
        with self._committing("changing its schema"):
            tables.union_schema(self.session, self.ref, schema_json, properties, renamed)

    def create_branch(self, branch: str, snapshot_id: int) -> None:
        with self._committing(f"creating branch {branch}"):
            tables.create_branch(self.session, self.ref, branch, snapshot_id)

    def remove_branches(self, branches: Iterable[str]) -> None:
        with self._committing("removing branches"):
            tables.remove_branches(self.session, self.ref, branches)

    def append_nothing(self, branch: str, summary: Mapping[str, str]) -> None:
        with self._committing(f"an empty snapshot on {branch}"):
            tables.append_nothing(self.session, self.ref, branch, summary)

    def added_records(self, branch: str) -> int:
        """Return how many rows the newest commit on a branch has added.

        Raises:
            ConflictError: somebody has removed the branch.
        """
        with self.lake.explaining():
            added = tables.added_records(self.session, self.ref, branch)
        if added is None:
            raise ConflictError(f"{self.name}: {branch} is gone", retryable=True)
        return added

    def publish_branch(self, branch: str, base_id: int, properties: Mapping[str, str]) -> int:
        """Move `main` to a branch's head, if `main` is still at `base_id`; drop the branch.

        Raises:
            ConflictError: `main` has moved, or the branch is gone; nothing was applied.
            UnknownOutcomeError: the answer was lost.
        """
        with self._committing(f"publishing {branch}"):
            head = tables.publish_branch(self.session, self.ref, branch, base_id, properties)
        if head is None:
            raise ConflictError(
                f"{self.name}: main has moved away from snapshot {base_id}, or {branch} is gone",
                hint="it is tried again",
                retryable=True,
            )
        return head

    def plan_files(self, snapshot_id: int, after_id: int | None = None) -> list[Task]:
        """Return the files of a snapshot, or those appended after another one."""
        with self.lake.explaining():
            return tables.plan_files(self.session, self.ref, snapshot_id, after_id)

    def spark_schema(self, schema_json: str) -> StructType:
        """Return an Iceberg schema as Spark has it; reads no catalog."""
        return tables.spark_schema(self.session, schema_json)

    def scan(
        self, tasks: Sequence[Task], schema_json: str | None = None
    ) -> AbstractContextManager[DataFrame]:
        """Yield the rows of exactly these files, deletes applied, with `_file` and `_pos`.

        Args:
            schema_json: read with this schema instead of the table's own; its fields are found in
                the files by their ids, also those that the table has dropped.
        """
        return tables.staged_scan(self.session, self.ref, tasks, schema_json)

    def _committing(self, what: str) -> AbstractContextManager[None]:
        return committing_in_java(self.name, what)
