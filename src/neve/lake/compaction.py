"""Data files rewritten into fewer and sorted ones: chosen groups, or Iceberg's own procedures."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from neve import failpoints
from neve.errors import ConflictError, NeveError
from neve.lake.commit_errors import refused
from neve.lake.commit_loop import CommitCounters, RetryPolicy, commit_until_known
from neve.lake.identifier import quote_identifier
from neve.lake.java_commits import committing_in_java
from neve.lake.jvm.file_rewrites import FileRewrite, add_unsorted_order
from neve.lake.jvm.file_rewrites import SortColumn as SortColumn
from neve.lake.jvm.file_rewrites import WrittenGroup as WrittenGroup
from neve.lake.metadata_json import field_paths
from neve.lake.rewrite_properties import PlannedOutput as PlannedOutput

if TYPE_CHECKING:
    from neve.lake.lake import Lake
    from neve.lake.metadata_json import MetadataJson
    from neve.lake.table_ref import TableRef

logger = logging.getLogger(__name__)


# In the summary of a commit that replaced files: which rewrite it was.
REWRITE_ID = "neve.rewrite-id"
# Of a commit that others overtake. Iceberg itself tries each four times on the newest version.
_ATTEMPTS = 3
# So long after a snapshot was read, groups are read from a newer one: expiry may take the older
# one, and what has to be checked before a commit grows. A look at it reads all manifests.
_SNAPSHOT_SECONDS = 300.0


class GroupRewrite:
    """A table whose files are rewritten group by group.

    Groups may be written by several threads; one commits them.

    Args:
        paths: the files of all groups.
    """

    def __init__(
        self,
        lake: Lake,
        ref: TableRef,
        paths: Collection[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lake = lake
        self._ref = ref
        self._paths = paths
        self._clock = clock
        self._lock = threading.Lock()
        self._current: FileRewrite | None = None
        self._read_at = 0.0

    def write(
        self, paths: Sequence[str], order: Sequence[SortColumn], output: PlannedOutput
    ) -> WrittenGroup | None:
        """Write the rows of files that are still there into new files, without deleted ones.

        Commits nothing. None: fewer than two files are still there, and nothing is to be done.
        """
        with self._lake.explaining():
            rewrite = self._newest()
            present = rewrite.present(paths)
            if not present or (len(present) < 2 <= len(paths)):
                return None
            return rewrite.write(present, order, output)

    def _newest(self) -> FileRewrite:
        """Return the table at a snapshot that will not expire before what is read is committed."""
        with self._lock:
            current, now = self._current, self._clock()
            if current is None or now - self._read_at >= _SNAPSHOT_SECONDS or current.is_expired:
                self._current = current = FileRewrite(self._lake.spark, self._ref, self._paths)
                self._read_at = now
            return current

    def commit(self, groups: Sequence[WrittenGroup]) -> list[WrittenGroup]:
        """Replace the old files of groups by the new ones. Rows stay the same.

        One atomic commit for those that were read from the same snapshot; if it is refused, one
        for each group, so that a lost race costs one group.

        Returns:
            The groups that lost: rows of their files were deleted, the files replaced, or the
            snapshot that they were read from expired, meanwhile; nothing of them was applied, and
            their new files are deleted.

        Raises:
            UnknownOutcomeError: the answer was lost; nothing is deleted.
            NeveError: what else the commit raises; the new files are deleted, unless the answer of
                an earlier attempt was lost, which may come through yet.
        """
        by_snapshot: dict[int, list[WrittenGroup]] = {}
        for group in groups:
            by_snapshot.setdefault(id(group.rewrite), []).append(group)
        return [lost for same in by_snapshot.values() for lost in self._commit_together(same)]

    def _commit_together(self, groups: Sequence[WrittenGroup]) -> list[WrittenGroup]:
        failpoints.reach("compact.written")
        counters = CommitCounters()
        try:
            self._commit(groups, counters)
        except ConflictError:
            if len(groups) > 1 and counters.unknown_outcomes == 0:
                return [lost for group in groups for lost in self._commit_together([group])]
            self._abort(groups, counters)
            return list(groups)
        except NeveError:
            self._abort(groups, counters)
            raise
        failpoints.reach("compact.committed")
        return []

    def _abort(self, groups: Sequence[WrittenGroup], counters: CommitCounters) -> None:
        if counters.unknown_outcomes == 0:
            with self._lake.explaining():
                for group in groups:
                    group.rewrite.abort(group)

    def _commit(self, groups: Sequence[WrittenGroup], counters: CommitCounters) -> None:
        """Replace the files of groups, atomically. A group may be tried again with fewer others."""
        rewrite_id = groups[0].id if len(groups) == 1 else str(uuid.uuid4())
        summary, rewrite = {REWRITE_ID: rewrite_id}, groups[0].rewrite

        def attempt() -> bool:
            with committing_in_java(self._ref.name, "replacing data files"):
                if rewrite.is_expired:
                    # Nobody can tell any more which rows were deleted since.
                    what = "the snapshot that was rewritten is expired"
                    raise refused(self._ref.name, "replacing data files", what)
                rewrite.commit(groups, summary)
            return True

        def find_applied() -> bool | None:
            with self._lake.explaining():
                return rewrite.has_commit(REWRITE_ID, rewrite_id) or None

        commit_until_known(
            lambda: None,
            attempt,
            find_applied,
            policy=RetryPolicy(attempts=_ATTEMPTS),
            counters=counters,
        )


def sort_order(metadata: MetadataJson) -> tuple[SortColumn, ...]:
    """Return the table's sort order; nothing if it has none, or one by computed values."""
    columns, paths = [], dict(field_paths(metadata.fields))
    for each in metadata.sort_fields:
        path = paths.get(each["source-id"])
        if each["transform"] != "identity" or path is None:
            return ()
        is_descending = each["direction"] == "desc"
        columns.append(SortColumn(path, is_descending, each["null-order"] == "nulls-first"))
    return tuple(columns)


def rewrite_in_z_order(
    lake: Lake, ref: TableRef, columns: Sequence[str], where: str | None, options: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Rewrite files in Z order, by Iceberg's procedure; return its result. Raises ConflictError."""
    with committing_in_java(ref.name, "adding a sort order"):
        add_unsorted_order(lake.spark, ref)
    names = ", ".join(quote_identifier((column,)) for column in columns)
    arguments: dict[str, Any] = {"strategy": "sort", "sort_order": f"zorder({names})"}
    if where is not None:
        arguments["where"] = where
    return call_procedure(lake, ref, "rewrite_data_files", {**arguments, "options": options})


def call_procedure(
    lake: Lake, ref: TableRef, procedure: str, arguments: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Call one of Iceberg's procedures on a table; return the first row of its result.

    Args:
        arguments: texts and numbers by name; a mapping becomes a map of texts, a tuple an array.

    Raises:
        ConflictError: other writers were first in each of Iceberg's attempts.
    """
    texts: dict[str, Any] = {"table": ref.quoted}
    call = ["table => :table"]
    for name, value in arguments.items():
        if isinstance(value, Mapping):
            pairs = []
            for number, (key, inner) in enumerate(value.items()):
                texts[f"{name}_{number}"] = str(inner)
                pairs.append(f"'{key}', :{name}_{number}")
            call.append(f"{name} => map({', '.join(pairs)})")
        elif isinstance(value, tuple):
            names = [f"{name}_{number}" for number in range(len(value))]
            texts |= dict(zip(names, value, strict=True))
            call.append(f"{name} => array({', '.join(f':{each}' for each in names)})")
        else:
            texts[name] = value
            call.append(f"{name} => :{name}")
    statement = f"CALL {quote_identifier((ref.catalog, 'system', procedure))}({', '.join(call)})"
    session = lake.spark
    with committing_in_java(ref.name, procedure):
        rows = session.sql(statement, texts).collect()
    return rows[0].asDict() if rows else {}


def rewrite_data_files(lake: Lake, ref: TableRef, max_files: int) -> None:
    """Rewrite at most `max_files` small data files of a table. Atomic; rows stay the same."""
    options = {"min-input-files": 2, "max-files-to-rewrite": max_files}
    call_procedure(lake, ref, "rewrite_data_files", {"options": options})
