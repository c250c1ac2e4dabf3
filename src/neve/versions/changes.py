"""The rows that changed between two versions of a table, as a DataFrame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from neve.lake import Lake
    from neve.lake.table_ref import TableRef
    from neve.versions.resolve import Version

Mode = Literal["changes", "net", "appends"]


def read_changes(
    lake: Lake,
    ref: TableRef,
    since: Version | None = None,
    until: Version | None = None,
    mode: Mode = "changes",
    keys: Sequence[str] | None = None,
) -> DataFrame:
    """Return the rows that changed after `since`, up to and including `until`.

    The columns are the table's, then `_change_type`, `_commit_snapshot_id`, `_commit_timestamp`.

    Args:
        since: the version before the first change; without it, from the beginning.
        until: the version of the last change; without it, the current one.
        mode: `changes` are all changes, commit by commit; `net` is what differs between the two
            ends; `appends` are added rows only, and an error if there are other changes.
        keys: columns that identify a row, so that updates are told from deletes and inserts.
            Without them, the identifier fields of the table, or the keys of a mirror.

    Raises:
        NotFoundError: there is no such version or table.
        UsageError: a version, a mode or a key makes no sense.
        UnsupportedError: `appends`, and the range holds other changes.
    """
    raise NotImplementedError
