"""Read the events of a batch from the changelog, with the columns that the mirror gets."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from neve.errors import ConflictError, NeveError, UnknownOutcomeError
from neve.lake.frames import added_rows
from neve.lake.java_tables import JavaTable
from neve.lake.plain_types import NeedsSparkError, spark_field
from neve.merge import columns as cols
from neve.merge.check import fields_to_read
from neve.merge.dropped import needs_schema
from neve.merge.pending import Batch, Slice

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyspark.sql import DataFrame

    from neve.lake import Lake
    from neve.merge.plan import Look
    from neve.merge.spec import MergeSpec


# Each is a call to Java or some.
_MOST_LISTED_FILES = 32


@contextmanager
def retried_if_expired(lake: Lake, spec: MergeSpec, tables: Look) -> Iterator[None]:
    """Let a batch be tried again that fails because somebody expired the snapshots it reads.

    Raises:
        ConflictError: in place of what failed. The next attempt looks at the changelog anew.
    """
    try:
        yield
    except (ConflictError, UnknownOutcomeError):
        raise
    except NeveError as error:
        looked_at = {snapshot.snapshot_id for snapshot in tables.changelog.snapshots}
        changelog = lake.load(lake.ref(spec.changelog)).metadata
        if looked_at <= {snapshot.snapshot_id for snapshot in changelog.snapshots}:
            raise
        raise ConflictError(
            f"{spec.changelog_name}: snapshots were expired while they were read",
            hint="it is tried again",
            retryable=True,
        ) from error


def require_same_columns(spec: MergeSpec, tables: Look, changes: DataFrame) -> None:
    """Refuse columns that nobody has compared with the mirror's: they changed a moment ago."""
    looked_at = {field.name for field in fields_to_read(spec, tables.changelog.schema())}
    read = {name for name in changes.columns if not name.startswith(cols.DROPPED)}
    read -= {cols.FILE, cols.POSITION}
    if read != looked_at:
        changed = ", ".join(sorted(read ^ looked_at))
        raise ConflictError(
            f"{spec.changelog_name}: its columns have changed: {changed}",
            hint="it is tried again",
            retryable=True,
        )


def plain_columns(tables: Look) -> T.StructType | None:
    """Return the mirror's columns, if they stay as they are and Spark's names of them are known.

    As `mirror_columns` does, but without a look at the changelog and without Java.
    """
    if tables.mirror is None or tables.drift.changes_mirror:
        return None
    fields = json.loads(tables.mirror.schema().model_dump_json())["fields"]
    try:
        return T.StructType([_unnoted(spark_field(field)) for field in fields])
    except NeedsSparkError:
        return None


def _unnoted(field: T.StructField) -> T.StructField:
    return T.StructField(field.name, field.dataType)


def mirror_columns(changelog: JavaTable, tables: Look, changes: T.StructType) -> T.StructType:
    """Return the mirror's columns as they are once it has followed the changelog."""
    if tables.mirror is None:
        return T.StructType([field for field in changes if field.name in tables.drift.mirrored])
    renamed = dict(tables.drift.renamed)
    present = [
        T.StructField(renamed.get(field.name, field.name), field.dataType)
        for field in changelog.spark_schema(tables.mirror.schema().model_dump_json())
    ]
    sources = {each.column.name: each.read_as for each in tables.drift.dropped}
    wider = {
        name: changes[source].dataType
        for name in tables.drift.widened
        if (source := name if name in changes.names else sources[name]) in changes.names
    }
    fields = [T.StructField(field.name, wider.get(field.name, field.dataType)) for field in present]
    return T.StructType([*fields, *(changes[name] for name in tables.drift.added)])


def read_changes(stack: ExitStack, changelog: JavaTable, tables: Look, batch: Batch) -> DataFrame:
    """Read the events of a batch, with the place of each in its file."""
    schema = tables.drift.read_schema
    if batch.until_id is not None:
        after_id, until_id = batch.after_id, batch.until_id
        if schema and needs_schema(tables.changelog, schema, after_id, until_id):
            tasks = changelog.plan_files(until_id, after_id)
            return stack.enter_context(changelog.scan(tasks, schema.model_dump_json()))
        if _has_few_files(tables, batch):
            # Planned here, the changelog is loaded once: Spark loads a table that it is given by
            # its name again before it runs the query.
            return stack.enter_context(changelog.scan(changelog.plan_files(until_id, after_id)))
        rows = added_rows(changelog.session, changelog.ref, batch.until_id, batch.after_id)
        return rows.select("*", cols.FILE, cols.POSITION)
    return read_slices(stack, changelog, batch.slices, schema)


def _has_few_files(tables: Look, batch: Batch) -> bool:
    """Tell whether a batch is of snapshots that added so few files that Python may list them."""
    if batch.after_id is None or tables.pending.whole is not None:
        return False
    added = 0
    for snapshot in tables.pending.snapshots:
        count = snapshot.summary["added-data-files"] if snapshot.summary else None
        # Not said: some engine's commit.
        added += int(count) if count is not None else _MOST_LISTED_FILES + 1
        if snapshot.snapshot_id == batch.until_id:
            break
    return added <= _MOST_LISTED_FILES


def read_slices(
    stack: ExitStack, changelog: JavaTable, slices: Sequence[Slice], schema: Schema | None
) -> DataFrame:
    """Read rows of files, each with its place."""
    schema_json = schema.model_dump_json() if schema else None
    rows = stack.enter_context(changelog.scan([part.task for part in slices], schema_json))
    # At most two files are cut: the first and the last.
    cut = [part for part in slices if not part.is_whole]
    if not cut:
        return rows
    inside = [
        (F.col(cols.FILE) == part.task.path)
        & (F.col(cols.POSITION) >= part.start)
        & (F.col(cols.POSITION) < part.end)
        for part in cut
    ]
    whole = ~F.col(cols.FILE).isin([part.task.path for part in cut])
    return rows.where(reduce(or_, inside, whole))
