"""Data files rewritten into fewer and sorted ones: chosen groups, or Iceberg's own procedures."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neve import failpoints
from neve.errors import NeveError
from neve.lake.commit_loop import CommitCounters, RetryPolicy, commit_until_known
from neve.lake.identifier import quote_identifier
from neve.lake.java_commits import committing_in_java
from neve.lake.jvm.file_rewrites import (
    FileRewrite,
    WrittenGroup,
    add_unsorted_order,
)
from neve.lake.jvm.file_rewrites import (
    SortColumn as SortColumn,
)

if TYPE_CHECKING:
    from neve.lake.lake import Lake
    from neve.lake.metadata_json import MetadataJson
    from neve.lake.table_ref import TableRef

logger = logging.getLogger(__name__)


# In the summary of a commit that replaced files: which rewrite it was.
REWRITE_ID = "neve.rewrite-id"
# Of a commit that others overtake. Iceberg itself tries each four times on the newest version.
_ATTEMPTS = 3


@dataclass(frozen=True)
class Rewritten:
    """What became of a group."""

    input_files: int
    output_files: int
    output_bytes: int


class GroupRewrite:
    """A table at one snapshot, whose files are rewritten group by group, one commit each."""

    def __init__(self, lake: Lake, ref: TableRef) -> None:
        self._lake = lake
        self._ref = ref
        # Groups are written side by side; commits of this process would only refuse each other.
        self._committing = threading.Lock()
        with lake.explaining():
            self._rewrite = FileRewrite(lake.spark, ref)

    def rewrite(
        self,
        paths: Sequence[str],
        order: Sequence[SortColumn],
        output_files: int,
        target_file_bytes: int,
    ) -> Rewritten | None:
        """Rewrite files that are still there; None: fewer than two are, and nothing is to be done.

        Atomic; rows stay the same, deleted ones go.

        Raises:
            ConflictError: rows of these files were deleted, or the files replaced, meanwhile;
                nothing was applied, and the new files are deleted.
            UnknownOutcomeError: the answer was lost; nothing is deleted.
            NeveError: what else the commit raises; the new files are deleted, unless the answer of
                an earlier attempt was lost, which may come through yet.
        """
        with self._lake.explaining():
            present = self._rewrite.present(paths)
            if not present or (len(present) < 2 <= len(paths)):
                return None
            group = self._rewrite.write(present, order, output_files, target_file_bytes)
        failpoints.reach("compact.written")
        counters = CommitCounters()
        try:
            with self._committing:
                self._commit(group, counters)
        except NeveError:
            if counters.unknown_outcomes == 0:
                with self._lake.explaining():
                    self._rewrite.abort(group)
            raise
        failpoints.reach("compact.committed")
        return Rewritten(len(present), group.files, group.bytes)

    def _commit(self, group: WrittenGroup, counters: CommitCounters) -> None:
        summary = {REWRITE_ID: group.id}

        def attempt() -> bool:
            with committing_in_java(self._ref.name, "replacing data files"):
                self._rewrite.commit(group, summary)
            return True

        def find_applied() -> bool | None:
            with self._lake.explaining():
                return self._rewrite.has_commit(REWRITE_ID, group.id) or None

        commit_until_known(
            lambda: None,
            attempt,
            find_applied,
            policy=RetryPolicy(attempts=_ATTEMPTS),
            counters=counters,
        )


def sort_order(metadata: MetadataJson) -> tuple[SortColumn, ...]:
    """Return the table's sort order; nothing if it has none, or one by computed values."""
    columns = []
    for each in metadata.sort_fields:
        name = metadata.column_names.get(each["source-id"])
        if each["transform"] != "identity" or name is None:
            return ()
        is_descending = each["direction"] == "desc"
        columns.append(SortColumn(name, is_descending, each["null-order"] == "nulls-first"))
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
        arguments: texts and numbers by name; a mapping becomes a map of texts.

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
