"""Rewriting chosen files, with the classes that Iceberg's `rewrite_data_files` is made of.

The procedure chooses files by size and by a filter on rows, which cannot say "the files of this
hour that were not rewritten yet". Reading, writing, row ids, deletes and the commit are Iceberg's.
Everything raises what Java raises.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everywhere

from neve.lake.identifier import quote_identifier
from neve.lake.jvm.planned_files import PlannedFiles
from neve.lake.jvm.tables import _each, _java_map, active, load
from neve.lake.rewrite_properties import PlannedOutput, parquet_properties
from neve.lake.table_ref import TableRef

# All files of a group are read by one task: nothing is shuffled where one sort is enough.
_ONE_TASK_BYTES = 1 << 50


@dataclass(frozen=True)
class SortColumn:
    """A column of an order, by its name after those of the columns it is in."""

    path: tuple[str, ...]
    is_descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True)
class WrittenGroup:
    """New files that are written and not committed.

    Args:
        files: how many new ones.
        input_files: how many old ones they are to replace.
        java: Iceberg's group, for the commit.
        rewrite: of the snapshot that was read; whoever commits it checks what came after that.
    """

    id: str
    files: int
    bytes: int
    input_files: int
    java: Any
    rewrite: FileRewrite


class FileRewrite:
    """A table at one snapshot, some of whose files are rewritten group by group."""

    def __init__(self, session: SparkSession, ref: TableRef, paths: Collection[str]) -> None:
        self._session = session
        self._jvm: Any = session._jvm
        self._catalog = ref.catalog
        self._table = load(session, ref)
        snapshot = self._table.currentSnapshot()
        self._snapshot_id = None if snapshot is None else int(snapshot.snapshotId())
        # Here, and not when they are first asked for: several threads ask.
        gateway = session.sparkContext._gateway
        self._planned = PlannedFiles(gateway, self._table, self._snapshot_id, paths)

    @property
    def is_expired(self) -> bool:
        """Whether the table, as it was last read, lacks the snapshot: no group can be committed."""
        return self._snapshot_id is not None and self._table.snapshot(self._snapshot_id) is None

    def present(self, paths: Collection[str]) -> list[str]:
        """Return those of the files that the snapshot has."""
        return [path for path in paths if path in self._planned.paths]

    def write(
        self,
        paths: Sequence[str],
        order: Sequence[SortColumn],
        output: PlannedOutput,
    ) -> WrittenGroup:
        """Read files that are present, deletes applied, and write their rows into new ones.

        Commits nothing.
        """
        tasks = self._planned.tasks(paths)
        spec_id = int(tasks.get(0).spec().specId())
        partition = self._time_partition() if output.days else None
        with self._staged(tasks, self._tuned(output, is_sorted=bool(order))) as group_id:
            if partition is not None:
                new_files = self._write_into_days(group_id, output, spec_id, *partition)
                spec_id = int(self._table.spec().specId())
            elif self._has_columns_of(spec_id):
                new_files = self._write_rows(group_id, order, output, spec_id)
            else:
                spec_id = int(self._table.spec().specId())
                new_files = self._write_anew(group_id, self._read_rows(group_id), output)
            group = self._group(tasks, spec_id, output)
            group.setOutputFiles(new_files)
        size = sum(int(file.fileSizeInBytes()) for file in _each(new_files.iterator()))
        return WrittenGroup(group_id, int(new_files.size()), size, len(paths), group, self)

    def commit(self, groups: Iterable[WrittenGroup], summary: Mapping[str, str]) -> None:
        """Replace the old files by the new ones, if nobody has deleted rows of them meanwhile."""
        written = self._jvm.java.util.HashSet()
        for group in groups:
            written.add(group.java)
        self._manager(summary).commitFileGroups(written)

    def abort(self, group: WrittenGroup) -> None:
        """Delete new files that were certainly not committed."""
        self._manager({}).abortFileGroup(group.java)

    def has_commit(self, key: str, value: str) -> bool:
        """Tell whether a snapshot of the table, as it is now, has this in its summary."""
        self._table.refresh()
        return any(
            snapshot.summary().get(key) == value
            for snapshot in _each(self._table.snapshots().iterator())
        )

    def _has_columns_of(self, spec_id: int) -> bool:
        """Tell whether a table still has the columns that it was partitioned by once."""
        schema, spec = self._table.schema(), self._table.specs().get(spec_id)
        return all(
            schema.findField(field.sourceId()) is not None
            for field in _each(spec.fields().iterator())
        )

    def _read_rows(self, group_id: str) -> DataFrame:
        return (
            self._session.read.format("iceberg")
            .option("split-size", _ONE_TASK_BYTES)
            .option("file-open-cost", "0")
            .load(group_id)
        )

    def _time_partition(self) -> tuple[SortColumn, Column] | None:
        """Return a time column and the day or hour of it that the table is partitioned by alone."""
        fields = list(_each(self._table.spec().fields().iterator()))
        transform = str(fields[0].transform()) if len(fields) == 1 else ""
        if transform not in ("day", "hour"):
            return None
        name = self._table.schema().findColumnName(fields[0].sourceId())
        column = quote_identifier((name,))
        function = quote_identifier((self._catalog, "system", f"{transform}s"))
        return SortColumn((name,)), F.call_function(function, F.col(column))

    def _write_into_days(
        self, group_id: str, output: PlannedOutput, spec_id: int, time: SortColumn, day: Column
    ) -> Any:
        """Write the rows of the days with most rows into these, and all others as they were.

        Rows of the others share files again. Rows without a time are no day, and go with the days.
        """
        rows = self._read_rows(group_id)
        counted = rows.where(day.isNotNull()).groupBy(day.alias("day")).count()
        ranked = counted.orderBy(F.desc("count"), F.desc("day")).limit(output.days + 1).collect()
        if len(ranked) <= output.days:
            return self._write_anew(group_id, rows, output)
        own = day.isNull() | day.isin([row["day"] for row in ranked[:-1]])
        new_files = self._jvm.java.util.HashSet()
        new_files.addAll(self._write_anew(group_id, rows.where(own), output))
        others = rows.where(~own).transform(_ordered, [time], output.files)
        new_files.addAll(self._save(group_id, others, output, {"output-spec-id": spec_id}))
        return new_files

    def _write_anew(self, group_id: str, rows: DataFrame, output: PlannedOutput) -> Any:
        """Write rows as those of an INSERT: into the present partitions, in the table's order."""
        return self._save(group_id, rows, output, {})

    def _write_rows(
        self, group_id: str, order: Sequence[SortColumn], output: PlannedOutput, spec_id: int
    ) -> Any:
        options: dict[str, Any] = {"output-spec-id": spec_id}
        if order:
            options["output-sort-order-id"] = self._table.sortOrder().orderId()
        rows = self._read_rows(group_id).transform(_ordered, order, output.files)
        return self._save(group_id, rows, output, options)

    def _save(
        self, group_id: str, rows: DataFrame, output: PlannedOutput, options: Mapping[str, Any]
    ) -> Any:
        """Write rows in their own order if there are options; return a Java set of new files."""
        writer = rows.write.format("iceberg").options(**options)
        if options:
            writer = writer.option("use-table-distribution-and-ordering", "false")
        writer = writer.option("target-file-size-bytes", output.target_file_bytes)
        writer.mode("append").save(group_id)
        coordinator = self._jvm.org.apache.iceberg.spark.FileRewriteCoordinator.get()
        return coordinator.fetchNewFiles(self._table, group_id)

    def _tuned(self, output: PlannedOutput, *, is_sorted: bool) -> Any:
        """Return a copy of the table, in memory only, by whose properties new files are written."""
        properties = dict(self._table.properties())
        added = parquet_properties(properties, output, is_sorted=is_sorted)
        if not added:
            return self._table
        iceberg = self._jvm.org.apache.iceberg
        base = self._table.operations().current()
        update = iceberg.TableMetadata.buildFrom(base)
        update.setProperties(_java_map(self._session, added)).discardChanges()
        copy = update.withMetadataLocation(base.metadataFileLocation()).build()
        operations = iceberg.StaticTableOperations(
            copy, self._table.io(), self._table.locationProvider()
        )
        return iceberg.BaseTable(operations, self._table.name())

    @contextmanager
    def _staged(self, tasks: Any, table: Any) -> Iterator[str]:
        """Have Spark find the tasks and the table under a name, as long as the block runs."""
        spark = self._jvm.org.apache.iceberg.spark
        cache, manager = self._table_cache(), spark.ScanTaskSetManager.get()
        group_id = str(uuid.uuid4())
        with active(self._session):
            cache.add(group_id, table)
            manager.stageTasks(self._table, group_id, tasks)
            try:
                yield group_id
            finally:
                cache.remove(group_id)
                manager.removeTasks(self._table, group_id)
                spark.FileRewriteCoordinator.get().clearRewrite(self._table, group_id)

    def _table_cache(self) -> Any:
        """Return `SparkTableCache.get()`, which py4j takes for the method with an argument."""
        loader = self._table.getClass().getClassLoader()
        get = loader.loadClass("org.apache.iceberg.spark.SparkTableCache").getMethod("get", None)
        return get.invoke(None, None)

    def _group(self, tasks: Any, spec_id: int, output: PlannedOutput) -> Any:
        size = output.target_file_bytes
        actions = self._jvm.org.apache.iceberg.actions
        info = (
            getattr(actions, "ImmutableRewriteDataFiles$FileGroupInfo")
            .builder()
            .globalIndex(1)
            .partitionIndex(1)
            .partition(tasks.get(0).file().partition())
            .build()
        )
        return actions.RewriteFileGroup(info, tasks, spec_id, size, size, output.files)

    def _manager(self, summary: Mapping[str, str]) -> Any:
        # The new files keep the sequence number of the rows in them: equality deletes that came
        # meanwhile still apply, and a rewritten file can be told from a new one.
        keeps_sequence_number = True
        return self._jvm.org.apache.iceberg.actions.RewriteDataFilesCommitManager(
            self._table,
            self._snapshot_id,
            keeps_sequence_number,
            _java_map(self._session, summary),
        )


def add_unsorted_order(session: SparkSession, ref: TableRef) -> None:
    """Have a table know the order 0, which means unsorted. One compare-and-set; idempotent.

    Files in Z order are written as unsorted. Tables that PyIceberg made lack that order, and
    Iceberg 1.12 refuses to write them: "Cannot use output sort order id 0".
    """
    operations = load(session, ref).operations()
    base = operations.refresh()
    if base.sortOrdersById().containsKey(0):
        return
    iceberg: Any = session._jvm.org.apache.iceberg  # type: ignore[union-attr]
    update = iceberg.TableMetadata.buildFrom(base)
    update.addSortOrder(iceberg.SortOrder.unsorted())
    operations.commit(base, update.build())


def _ordered(rows: DataFrame, order: Sequence[SortColumn], output_files: int) -> DataFrame:
    if not order:
        return rows
    columns = [_column(each) for each in order]
    if output_files > 1:
        rows = rows.repartitionByRange(output_files, *columns)
    return rows.sortWithinPartitions(*columns)


def _column(sort: SortColumn) -> Any:
    column = F.col(quote_identifier(sort.path))
    if sort.is_descending:
        return column.desc_nulls_first() if sort.nulls_first else column.desc_nulls_last()
    return column.asc_nulls_first() if sort.nulls_first else column.asc_nulls_last()
