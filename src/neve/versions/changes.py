"""The rows that changed between two versions of a table, as a DataFrame."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everywhere

from neve.errors import UnsupportedError, UsageError
from neve.index.indexed_table import KEYS
from neve.lake.chosen_files import ChosenFile, ChosenRows, TableReader
from neve.lake.identifier import quote_identifier
from neve.lake.manifests import Manifest
from neve.lake.metadata_json import MetadataJson, field_names
from neve.versions.arguments import Mode, parse_mode
from neve.versions.file_changes import Step
from neve.versions.plan import (
    ChangePlan,
    Comparison,
    DeletedRows,
    Planner,
    files_of,
    layers,
)
from neve.versions.resolve import VersionRange, resolve_range
from neve.versions.rows import (
    DELETE,
    INSERT,
    STEP,
    TYPE,
    cancel,
    pair_updates,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructField, StructType

    from neve.lake import Lake
    from neve.lake.table_ref import TableRef
    from neve.versions.resolve import Version

logger = logging.getLogger(__name__)

CHANGE_TYPE, SNAPSHOT_ID, TIMESTAMP = "_change_type", "_commit_snapshot_id", "_commit_timestamp"

_REPLACE = "replace"
# So few positions, and files that have them, are written into the query.
_MOST_LISTED = 2_000
# So many positions are sent to every task; more are sorted and merged.
_MOST_BROADCAST = 2_000_000
_ONE_TASK_BYTES = 8 * 1024 * 1024


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
    parse_mode(ref.name, mode)
    table = TableReader(lake, ref)
    versions = resolve_range(ref.name, table.metadata, since, until, only_ends=mode == "net")
    _require_free_names(ref.name, table.metadata, versions.schema_id)
    plan = plan_changes(table, versions, mode)
    if mode == "appends":
        _require_appends(ref.name, versions, plan)
    return _Rows(lake, ref.name, table, versions).frame(plan, keys)


def plan_changes(table: TableReader, versions: VersionRange, mode: Mode) -> ChangePlan:
    """Say which files must be read."""
    planner = Planner(table)
    snapshots = table.metadata.snapshots
    start = None if versions.start_id is None else snapshots[versions.start_id]["manifest-list"]
    if not versions.commits:
        return planner.plan
    if mode == "net":
        planner.add(Step(len(versions.commits) - 1, start, versions.commits[-1].manifest_list))
        return planner.plan
    table.manifests.prefetch([commit.manifest_list for commit in versions.commits])
    before = start
    for number, commit in enumerate(versions.commits):
        if commit.operation == _REPLACE:
            planner.skip()
        else:
            planner.add(Step(number, before, commit.manifest_list))
        before = commit.manifest_list
    return planner.plan


def _require_free_names(name: str, metadata: MetadataJson, schema_id: int) -> None:
    ours = {CHANGE_TYPE, SNAPSHOT_ID, TIMESTAMP}
    for field in metadata.schema(schema_id)["fields"]:
        if field["name"].lower() in ours:
            raise UnsupportedError(
                f"{name} has a column {field['name']}, and changes have one of that name, too",
                hint="rename the column of the table",
            )


def _require_appends(name: str, versions: VersionRange, plan: ChangePlan) -> None:
    if steps := plan.steps_that_delete:
        commit = versions.commits[min(steps)]
        raise UnsupportedError(
            f"{name}: snapshot {commit.snapshot_id} ({commit.operation}) deletes rows, so that the "
            "range holds more than appends",
            hint="choose another range, or mode changes or net",
        )


@dataclass(frozen=True)
class _Place:
    """Rows of one file that one step deleted."""

    path: str
    step: int
    positions: BitMap64


class _Rows:
    """Turns a plan into rows."""

    def __init__(self, lake: Lake, name: str, table: TableReader, versions: VersionRange) -> None:
        self._lake = lake
        self._name = name
        self._table = table
        self._versions = versions
        fields = table.metadata.schema(versions.schema_id)["fields"]
        self._own_names = [str(field["name"]) for field in fields]
        self._names = [f"c{number}" for number in range(len(fields))]
        self._schema: StructType | None = None

    def frame(self, plan: ChangePlan, keys: Sequence[str] | None) -> DataFrame:
        # Only where a step both adds and deletes can there be carry-overs and updates.
        both = plan.steps_that_add & plan.steps_that_delete
        simple = [
            *self._added(one for one in plan.added if one.group not in both),
            *self._removed(one for one in plan.removed if one.group not in both),
            *self._deleted(_of_steps(plan.deleted, both, inside=False)),
        ]
        mixed = [
            *self._added(one for one in plan.added if one.group in both),
            *self._removed(one for one in plan.removed if one.group in both),
            *self._deleted(_of_steps(plan.deleted, both, inside=True)),
            *(part for one in plan.comparisons for part in self._compared(one)),
        ]
        key_columns = self._key_columns(keys)
        if mixed:
            rows = _union(mixed)
            if sum(file.bytes for file in files_of(plan)) <= _ONE_TASK_BYTES:
                # One task does it sooner than several that exchange rows.
                rows = rows.coalesce(1)
            rows = cancel(rows, self._names)
            simple.append(pair_updates(rows, key_columns) if key_columns else rows)
        return self._named(_union(simple or [self._with_step(self._scan([]), INSERT)]))

    def _named(self, rows: DataFrame) -> DataFrame:
        commits = self._versions.commits
        number = f"{STEP} + 1"
        snapshot_id = _lookup([one.snapshot_id for one in commits], number)
        committed_ms = _lookup([one.committed_ms for one in commits], number)
        for column, field in zip(self._names, self._fields, strict=True):
            if field.metadata:
                # Such as a comment, which not every step above keeps.
                rows = rows.withMetadata(column, field.metadata)
        names = zip(self._names, self._own_names, strict=True)
        return rows.selectExpr(
            *(f"{column} AS {quote_identifier((name,))}" for column, name in names),
            f"{TYPE} AS {CHANGE_TYPE}",
            f"{snapshot_id} AS {SNAPSHOT_ID}",
            f"timestamp_millis({committed_ms}) AS {TIMESTAMP}",
        )

    def _added(self, files: Iterable[ChosenFile]) -> list[DataFrame]:
        return [
            self._with_step(self._scan(layer), INSERT)
            for layer in layers(files, lambda one: one.entry.path)
        ]

    def _removed(self, files: Iterable[ChosenFile]) -> list[DataFrame]:
        return [
            self._with_step(self._scan(layer), DELETE)
            for layer in layers(files, lambda one: one.entry.path)
        ]

    def _deleted(self, rows: Iterable[DeletedRows]) -> list[DataFrame]:
        return [
            self._at_positions(layer) for layer in layers(rows, lambda one: one.file.entry.path)
        ]

    def _at_positions(self, rows: Sequence[DeletedRows]) -> DataFrame:
        """Return rows by their positions: those in `rows`, unless they were deleted before."""
        places = [
            _Place(one.file.entry.path, number, positions)
            for one in rows
            for number, positions in one.positions.items()
        ]
        scan = self._scan([one.file for one in rows]).frame
        if (
            len(places) <= _MOST_LISTED
            and sum(len(one.positions) for one in places) <= _MOST_LISTED
        ):
            return self._at_listed_positions(scan, places)
        return self._at_joined_positions(scan, places)

    def _at_listed_positions(self, scan: DataFrame, places: Sequence[_Place]) -> DataFrame:
        """Find few rows by a condition, which needs no job of its own."""
        file, position = F.col("file"), F.col("position")
        step = reduce(
            lambda cases, one: cases.when(
                (file == one.path) & F.expr(f"position IN ({', '.join(map(str, one.positions))})"),
                one.step,
            ),
            places,
            F.when(position.isNull(), None),
        )
        # Not the metadata columns themselves: Iceberg would look for them among the table's.
        rows = scan.selectExpr(*self._columns(), "concat(_file) AS file", "_pos + 0 AS position")
        rows = rows.withColumn(STEP, step).where(F.col(STEP).isNotNull())
        return rows.selectExpr(*self._names, f"'{DELETE}' AS {TYPE}", STEP)

    def _at_joined_positions(self, scan: DataFrame, places: Sequence[_Place]) -> DataFrame:
        table = pa.table(
            {
                "path": [one.path for one in places],
                STEP: pa.array([one.step for one in places], pa.int32()),
                "positions": pa.array(
                    [pa.array(one.positions.to_array(), pa.int64()) for one in places],
                    pa.list_(pa.int64()),
                ),
            }
        )
        positions = self._lake.spark.createDataFrame(table).select(
            "path", STEP, F.explode("positions").alias("position")
        )
        # Spark joins by one number much faster than by a path. The path is what counts, and is
        # compared in a way that Spark does not take for a second key.
        positions = positions.withColumn("key", F.expr("xxhash64(path) ^ position"))
        if sum(len(one.positions) for one in places) <= _MOST_BROADCAST:
            positions = F.broadcast(positions)
        scan = scan.selectExpr(
            *self._columns(), "_file AS file", "xxhash64(_file) ^ _pos AS row_key"
        )
        joined = scan.join(
            positions,
            (scan["row_key"] == positions["key"])
            & scan["file"].startswith(positions["path"])
            & positions["path"].startswith(scan["file"]),
        )
        return joined.selectExpr(*self._names, f"'{DELETE}' AS {TYPE}", STEP)

    def _compared(self, one: Comparison) -> list[DataFrame]:
        before = self._located(one.before, one.before_deletes)
        after = self._located(one.after, one.after_deletes)
        logger.info(
            "deletes do not name their rows: %d files before and %d after a commit are compared",
            len(one.before),
            len(one.after),
        )
        place = ["file", "row"]
        return [
            rows.join(others.select(place), place, "left_anti").select(
                *self._names, F.lit(kind).alias(TYPE), F.lit(one.number).alias(STEP)
            )
            for rows, others, kind in ((before, after, DELETE), (after, before, INSERT))
        ]

    def _located(self, files: Sequence[ChosenFile], deletes: Sequence[Manifest]) -> DataFrame:
        scan = self._scan(files, deletes).frame
        return scan.selectExpr(*self._columns(), "_file AS file", "_pos AS row")

    def _with_step(self, scan: ChosenRows, kind: str) -> DataFrame:
        step = _lookup(scan.group_of_spec, f"_spec_id - {scan.first_spec - 1}")
        return scan.frame.selectExpr(
            *self._columns(), f"'{kind}' AS {TYPE}", f"CAST({step} AS INT) AS {STEP}"
        )

    def _scan(self, files: Sequence[ChosenFile], deletes: Sequence[Manifest] = ()) -> ChosenRows:
        rows = self._table.rows(files, self._versions.schema_id, deletes)
        # The same for each scan.
        self._schema = self._schema or rows.frame.schema
        return rows

    @property
    def _fields(self) -> list[StructField]:
        """What Spark calls the table's columns, once there is a scan."""
        return self._schema.fields if self._schema else []

    def _columns(self) -> list[str]:
        """Return the columns of a scan as SQL: few calls to Java."""
        return [
            f"{quote_identifier((field.name,))} AS {name}"
            for field, name in zip(self._fields, self._names, strict=True)
        ]

    def _key_columns(self, keys: Sequence[str] | None) -> list[Column]:
        """Return the columns that identify a row; nested ones by their path."""
        paths = keys_of(self._table.metadata, self._versions.schema_id) if keys is None else keys
        numbers = dict(zip(self._own_names, self._names, strict=True))
        # Other letters will do, as in Spark; the same letters come first.
        any_case = {name.casefold(): column for name, column in numbers.items()} | numbers
        columns = []
        for path in paths:
            name, *inner = [path] if path in numbers else path.split(".")
            column = any_case.get(name) or any_case.get(name.casefold())
            if column is None:
                raise UsageError(
                    f"{self._name} has no column {path} to be a key",
                    hint=f"columns are: {', '.join(numbers)}",
                )
            columns.append(reduce(lambda outer, field: outer.getField(field), inner, F.col(column)))
        return columns


def keys_of(metadata: MetadataJson, schema_id: int) -> list[str]:
    """Return the columns that a table itself says identify a row."""
    if KEYS in metadata.properties:
        keys: list[str] = json.loads(metadata.properties[KEYS])
        return keys
    schema = metadata.schema(schema_id)
    names = dict(field_names(schema["fields"]))
    return [names[number] for number in schema.get("identifier-field-ids") or ()]


def _of_steps(
    rows: Iterable[DeletedRows], steps: set[int], *, inside: bool
) -> Iterable[DeletedRows]:
    """Return deleted rows of some steps, or of all others."""
    for one in rows:
        chosen = {
            number: positions
            for number, positions in one.positions.items()
            if (number in steps) == inside
        }
        if chosen:
            yield DeletedRows(one.file, chosen)


def _union(parts: Sequence[DataFrame]) -> DataFrame:
    return reduce(DataFrame.unionByName, parts)


def _lookup(values: Sequence[int], place: str) -> str:
    """Return SQL for the n-th of some numbers, counted from 1; Spark makes a constant of them."""
    if len(set(values)) <= 1:
        return f"CAST({values[0] if values else 'NULL'} AS BIGINT)"
    numbers = ",".join(map(str, values))
    return f"element_at(CAST(split('{numbers}', ',') AS ARRAY<BIGINT>), {place})"
