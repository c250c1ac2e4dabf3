"""A lake whose tables can be read at any version, and between two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from neve.lake import Lake

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from neve.lake.lake import SqlArgs
    from neve.versions.resolve import Version


class VersionedLake(Lake):
    """Adds the version clauses to SQL, and the changes of a table."""

    def sql(self, statement: str, args: SqlArgs = None) -> DataFrame:
        """Run Spark SQL, with the clauses VERSION AS OF, VERSION SINCE and VERSION BETWEEN.

        Two-part names and `CALL system.…` mean the configured catalog.

        Args:
            args: the values of `:name`, by name, or of each `?`, in their order.
        """
        from neve.versions.statements import run_statement

        return run_statement(self, super().sql, statement, args)

    def changes(
        self,
        table: str,
        since: Version | None = None,
        until: Version | None = None,
        mode: Literal["changes", "net", "appends"] = "changes",
        keys: Sequence[str] | None = None,
    ) -> DataFrame:
        """Return the rows of a table that changed after `since`, up to and including `until`.

        The same as `neve changes`. The columns are the table's, then `_change_type`,
        `_commit_snapshot_id` and `_commit_timestamp`.

        Args:
            since: a snapshot id, a tag, a branch or a time; without it, from the beginning.
            until: the same; without it, the current version.
            mode: `changes` are all changes, commit by commit; `net` is what differs between the
                two ends; `appends` are added rows only, and an error if there are other changes.
            keys: columns that identify a row, so that updates are told from deletes and inserts.
                Without them, the identifier fields of the table, or the keys of a mirror.

        Raises:
            NotFoundError: there is no such version or table.
            UsageError: a version, the mode or a key makes no sense.
            UnsupportedError: the mode is `appends`, and the range holds other changes.
        """
        from neve.versions.arguments import parse_mode, parse_version
        from neve.versions.changes import read_changes

        ref = self.ref(table)
        start, end = (None if each is None else parse_version(each) for each in (since, until))
        mode = parse_mode(ref.name, mode)
        with self.explaining():
            return read_changes(self, ref, start, end, mode, keys)
