"""What stands in the place of version clauses when Spark gets the statement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from neve.errors import NeveError, UsageError
from neve.lake.chosen_files import TableReader
from neve.versions.arguments import parse_options, parse_version
from neve.versions.changes import read_changes
from neve.versions.clauses import Parameter, Point, VersionClause
from neve.versions.named_tables import (
    named_table,
    readable_metadata,
    require_versions,
    without_versions,
)
from neve.versions.resolve import Version, resolve_version

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from neve.lake import Lake
    from neve.lake.lake import SqlArgs
    from neve.lake.table_ref import TableRef


class Replacing:
    """Finds what stands in the place of each clause of one statement.

    Args:
        args: the values of the statement's parameters.
        add_view: makes a temporary view of rows and returns its name.
    """

    def __init__(self, lake: Lake, args: SqlArgs, add_view: Callable[[DataFrame], str]) -> None:
        self._lake = lake
        self._args = args
        self._add_view = add_view
        self._taken: set[Any] = set()
        # Read once, so that all ranges of a statement end at the same version.
        self._tables: dict[TableRef, TableReader] = {}

    def text_for(self, clause: VersionClause) -> str | None:
        """Return the text in the place of a clause; None leaves it to Spark as it is."""
        if clause.kind == "as of":
            return self._snapshot_for(clause)
        return clause.written(self._add_view(self._changes(clause)))

    def remaining_args(self) -> SqlArgs:
        """Return the values that Spark binds: those of `?` that still stand in the statement."""
        if not isinstance(self._args, list):
            return self._args
        return [value for at, value in enumerate(self._args) if at not in self._taken]

    def explain(self, clauses: Sequence[VersionClause], error: NeveError) -> None:
        """Raise what is wrong with a version that Spark refused; nothing if they are right."""
        for clause in clauses:
            if clause.kind == "as of" and not clause.is_cte:
                ref = named_table(self._lake, clause.table)
                if metadata := readable_metadata(self._lake, ref):
                    try:
                        resolve_version(ref.name, metadata, self._version(clause.points[0]))
                    except NeveError as reason:
                        raise reason from error

    def _changes(self, clause: VersionClause) -> DataFrame:
        if clause.is_cte:
            raise without_versions(clause.table, "a query of this statement's WITH")
        # A temporary view hides a table of its name.
        if len(clause.table) == 1:
            require_versions(self._lake, clause.table)
        ref = named_table(self._lake, clause.table)
        options = {name: self._option(value) for name, value in clause.options.items()}
        mode, keys = parse_options(ref.name, options)
        versions = [self._version(point) for point in clause.points]
        self._take([*clause.points, *clause.options.values()])
        try:
            start, end = versions[0], _second(versions)
            with self._lake.explaining():
                if ref not in self._tables:
                    self._tables[ref] = TableReader(self._lake, ref)
                return read_changes(
                    self._lake, ref, start, end, mode, keys, table=self._tables[ref]
                )
        except NeveError:
            if readable_metadata(self._lake, ref) is None:
                require_versions(self._lake, clause.table)
            raise

    def _snapshot_for(self, clause: VersionClause) -> str | None:
        """Return the snapshot at a time; ids and refs are Spark's own.

        But for refs of digits, which Iceberg takes for ids.
        """
        (point,) = clause.points
        version = self._version(point)
        if clause.is_cte or (isinstance(version, int) and not isinstance(point, Parameter)):
            return None
        if not isinstance(version, int):
            ref = named_table(self._lake, clause.table)
            metadata = readable_metadata(self._lake, ref)
            if metadata is None or (version in metadata.refs and not str(version).isdecimal()):
                return None
            version = resolve_version(ref.name, metadata, version)
        # Spark binds no numbers there.
        self._take(clause.points)
        return str(version)

    def _version(self, point: Point) -> Version:
        return parse_version(self._value(point) if isinstance(point, Parameter) else point)

    def _option(self, value: str | Parameter) -> str:
        given = self._value(value) if isinstance(value, Parameter) else value
        if not isinstance(given, str):
            raise UsageError(
                f"mode and keys of a version clause are texts, not {type(given).__name__}"
            )
        return given

    def _value(self, parameter: Parameter) -> Any:
        key, args = parameter.key, self._args
        if isinstance(args, dict) and isinstance(key, str) and key in args:
            return args[key]
        if isinstance(args, list) and isinstance(key, int) and key < len(args):
            return args[key]
        marker = f":{key}" if isinstance(key, str) else f"the {key + 1}. ?"
        raise UsageError(f"the parameter {marker} of the statement has no value")

    def _take(self, points: Sequence[Point]) -> None:
        self._taken |= {point.key for point in points if isinstance(point, Parameter)}


def _second(versions: Sequence[Version]) -> Version | None:
    return versions[1] if len(versions) > 1 else None
