"""The table that a follower keeps: created, given columns, and committed to with a position.

A batch is written to a branch, and one swap moves `main` there if it is still what the batch was
written on. The swap also sets the property that copies the position.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.sql import types as T  # noqa: N812 - as everywhere

from neve import failpoints
from neve.errors import CatalogError, NeveError, NotFoundError, UnknownOutcomeError
from neve.lake.commit_loop import RetryPolicy, read_until_available
from neve.lake.identifier import quote_identifier
from neve.lake.java_commits import committing_in_java
from neve.lake.java_tables import MAIN, JavaTable
from neve.lake.paths import require_usable_places
from neve.lake.profile import profile_named
from neve.lake.table_reads import file_reader
from neve.versions.target_position import SUMMARY, Position, find_position
from neve.versions.target_rows import is_wider

if TYPE_CHECKING:
    import threading

    from pyspark.sql import SparkSession

    from neve.lake import Lake
    from neve.lake.metadata_json import MetadataJson
    from neve.lake.table_ref import TableRef

BRANCH_PREFIX = "neve-follow-"
# Longer than a batch takes: a process at work that lost its branch would begin again, for ever.
STALE_BRANCH_SECONDS = 24 * 3600
_OUR_BRANCH = re.compile(rf"{BRANCH_PREFIX}(\d{{1,12}})-[0-9a-f]{{12}}")
_SESSION_BRANCH = "spark.wap.branch"
_ALLOWS_SESSION_BRANCH = "write.wap.enabled"
# Small changes to large tables: deletes are written beside the files.
_MODES = {f"write.{kind}.mode": "merge-on-read" for kind in ("merge", "update", "delete")}


class TargetTable:
    """A table that is kept, as it was at the last look."""

    def __init__(
        self, lake: Lake, session: SparkSession, ref: TableRef, stop: threading.Event | None
    ) -> None:
        self.ref = ref
        self.metadata: MetadataJson | None = None
        self._lake = lake
        self._session = session
        self._java = JavaTable(lake, session, ref)
        self._stop = stop

    @property
    def name(self) -> str:
        return self.ref.name

    @property
    def schema(self) -> T.StructType:
        with self._lake.explaining():
            return self._session.table(self.ref.quoted).schema

    @property
    def is_empty(self) -> bool:
        """Whether it certainly has no row."""
        summary = None if self.metadata is None else self.metadata.current_summary
        return summary is not None and summary.get("total-records") == "0"

    def refresh(self) -> None:
        """Read the catalog anew."""
        reader = self._lake.reader(self.ref.catalog)

        def read() -> MetadataJson | None:
            try:
                return reader.read_document(self.ref.identifier)
            except NotFoundError:
                return None

        self.metadata = read_until_available(read, RetryPolicy(), self._stop)

    def position(self, follower: str) -> Position | None:
        if self.metadata is None:
            return None
        return find_position(self.metadata, follower, file_reader(self._lake, self.ref))

    def prepare(
        self, fields: Sequence[T.StructField], format_version: int, renamed: Mapping[str, str]
    ) -> None:
        """Create the table, or rename, add and widen its columns. Idempotent.

        Raises:
            ConflictError: another writer was first.
        """
        if self.metadata is None:
            self._create(fields, format_version)
            self.refresh()
        elif renamed or fields:
            self._change_columns(fields, renamed)
        properties = {} if self.metadata is None else self.metadata.properties
        if self._names_branch_in_session and properties.get(_ALLOWS_SESSION_BRANCH) != "true":
            self._alter(f"SET TBLPROPERTIES ('{_ALLOWS_SESSION_BRANCH}' = 'true')")
        if self.metadata is not None and self.metadata.current_snapshot_id is None:
            # A branch begins at a snapshot.
            self._java.append_nothing(MAIN, {})
            self.refresh()

    def publish(self, position: Position, write: Callable[[str], bool]) -> None:
        """Write to a branch and move `main` there, with a position. Atomic, one attempt.

        Args:
            write: writes to the table that it is given the name of; False: there was nothing.

        Raises:
            ConflictError: another writer was first; nothing was applied.
            UnknownOutcomeError: the answer was lost.
        """
        base_id = None if self.metadata is None else self.metadata.current_snapshot_id
        if base_id is None:
            raise CatalogError(f"{self.name} was dropped meanwhile", hint="run it again")
        for key, value in position.summary().items():
            # What Spark commits in this session, which is the follower's own, carries it.
            self._session.conf.set(f"spark.sql.iceberg.snapshot-property.{key}", value)
        with self._branch(base_id) as branch:
            with (
                committing_in_java(self.name, f"the batch up to snapshot {position.snapshot_id}"),
                self._named(branch) as name,
            ):
                wrote = write(name)
            if not wrote:
                self._java.append_nothing(branch, position.summary())
            failpoints.reach("follow.applied")
            properties = position.properties(self._sequence_number(branch))
            self._java.publish_branch(branch, base_id, properties)

    @contextmanager
    def _named(self, branch: str) -> Iterator[str]:
        """Yield the name under which a statement writes to a branch.

        For `table.branch_x` Iceberg first asks for a table `branch_x` in a namespace `table`.
        S3 Tables, which has no nested namespaces, refuses to be asked; there the session says
        which branch is written, and the table must allow it.
        """
        if not self._names_branch_in_session:
            yield quote_identifier((self.ref.catalog, *self.ref.identifier, f"branch_{branch}"))
            return
        self._session.conf.set(_SESSION_BRANCH, branch)
        try:
            yield self.ref.quoted
        finally:
            self._session.conf.unset(_SESSION_BRANCH)

    @property
    def _names_branch_in_session(self) -> bool:
        profile = profile_named(self._lake.settings, self.ref.catalog)
        return profile.settings.type == "s3tables"

    def _sequence_number(self, branch: str) -> int:
        """Return the sequence number of a branch's snapshot, which must have a position."""
        self.refresh()
        metadata = self.metadata
        head_id = None if metadata is None else metadata.refs.get(branch)
        head = metadata.snapshots[head_id] if metadata and head_id is not None else {}
        if SUMMARY not in (head.get("summary") or {}):
            raise CatalogError(
                f"{self.name}: branch {branch} lacks the position of its batch; not published",
                hint="another process removed or changed the branch; run it again",
            )
        return int(head.get("sequence-number") or 0)

    @contextmanager
    def _branch(self, base_id: int) -> Iterator[str]:
        """Yield a new branch; it is removed where it is certain that it was not published."""
        self._remove_stale_branches()
        branch = f"{BRANCH_PREFIX}{int(time.time())}-{uuid.uuid4().hex[:12]}"
        self._java.create_branch(branch, base_id)
        try:
            yield branch
        except UnknownOutcomeError:
            raise
        except NeveError:
            self._java.remove_branches([branch])
            raise

    def _remove_stale_branches(self) -> None:
        """Remove what killed processes left; those at work may still need theirs."""
        refs = () if self.metadata is None else self.metadata.refs
        if stale := stale_branches(refs, time.time()):
            self._java.remove_branches(stale)

    def _create(self, fields: Sequence[T.StructField], format_version: int) -> None:
        """Create it empty. S3 Tables knows no CREATE TABLE AS SELECT, so it has no snapshot."""
        require_usable_places(*self.ref.identifier)
        namespace = quote_identifier((self.ref.catalog, *self.ref.identifier[:-1]))
        properties = {"format-version": str(max(2, format_version)), **_MODES}
        options = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
        with committing_in_java(self.name, "creating it"):
            self._session.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
            self._session.sql(
                f"CREATE TABLE {self.ref.quoted} ({_ddl(fields)}) USING iceberg "
                f"TBLPROPERTIES ({options})"
            )

    def _change_columns(self, fields: Sequence[T.StructField], renamed: Mapping[str, str]) -> None:
        present = {field.name.lower(): field for field in self.schema.fields}
        for old, new in renamed.items():
            if old.lower() in present and new.lower() not in present:
                self._alter(f"RENAME COLUMN {_quoted(old)} TO {_quoted(new)}")
                present[new.lower()] = present.pop(old.lower())
        for field in fields:
            column = present.get(field.name.lower())
            if column is None:
                self._alter(f"ADD COLUMN {_ddl([field])}")
            else:
                self._grow((field.name,), column.dataType, field.dataType)

    def _grow(self, path: tuple[str, ...], present: T.DataType, wanted: T.DataType) -> None:
        """Widen a column, or add fields inside it."""
        if is_wider(present, wanted):
            self._alter(f"ALTER COLUMN {quote_identifier(path)} TYPE {wanted.simpleString()}")
        elif isinstance(present, T.ArrayType) and isinstance(wanted, T.ArrayType):
            self._grow((*path, "element"), present.elementType, wanted.elementType)
        elif isinstance(present, T.MapType) and isinstance(wanted, T.MapType):
            self._grow((*path, "value"), present.valueType, wanted.valueType)
        elif isinstance(present, T.StructType) and isinstance(wanted, T.StructType):
            known = {field.name.lower(): field.dataType for field in present.fields}
            for field in wanted.fields:
                inner = (*path, field.name)
                if field.name.lower() in known:
                    self._grow(inner, known[field.name.lower()], field.dataType)
                else:
                    kind = _ddl([T.StructField("f", field.dataType)]).removeprefix("f ")
                    self._alter(f"ADD COLUMN {quote_identifier(inner)} {kind}")

    def _alter(self, change: str) -> None:
        with committing_in_java(self.name, f"ALTER TABLE {change}"):
            self._session.sql(f"ALTER TABLE {self.ref.quoted} {change}")


def stale_branches(refs: Iterable[str], now: float) -> list[str]:
    """Return the branches of batches that ended without a word; the name has the time of each."""
    ours = ((name, _OUR_BRANCH.fullmatch(name)) for name in refs)
    before = now - STALE_BRANCH_SECONDS
    return [name for name, match in ours if match and int(match[1]) < before]


def _ddl(fields: Sequence[T.StructField]) -> str:
    """Write columns as Spark reads them; all may be NULL."""
    return T.StructType([T.StructField(field.name, field.dataType) for field in fields]).toDDL()


def _quoted(name: str) -> str:
    return quote_identifier((name,))
