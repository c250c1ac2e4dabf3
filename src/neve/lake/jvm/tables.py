"""Iceberg's Java tables: what has no SQL of its own.

Functions take and return Python values, except for `Task`, which carries a Java object that only
`staged_scan` opens. Java exceptions pass through; `java_tables.py` says what they mean.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from neve.lake.table_ref import TableRef

MAIN = "main"


@dataclass(frozen=True)
class Task:
    """One data file that a scan would read, with the deletes that belong to it."""

    path: str
    records: int
    sequence_number: int
    java: Any
    # The table it was planned from.
    table: Any = None


def isolated(session: SparkSession, conf: Mapping[str, str]) -> SparkSession:
    """Return a session with the same catalogs whose settings and views are its own."""
    clone = SparkSession(session.sparkContext, session._jsparkSession.cloneSession())
    for key, value in conf.items():
        clone.conf.set(key, value)
    return clone


def create_table(
    session: SparkSession,
    ref: TableRef,
    schema_json: str,
    spec_json: str,
    properties: Mapping[str, str],
    summary: Mapping[str, str],
) -> None:
    """Create a table whose first snapshot is empty and has a summary of ours. Atomic."""
    iceberg = _jvm(session).org.apache.iceberg
    with active(session):
        catalog = iceberg.spark.Spark3Util.loadIcebergCatalog(session._jsparkSession, ref.catalog)
    namespace = _array(session, ref.identifier[:-1])
    name = iceberg.catalog.TableIdentifier.of(
        iceberg.catalog.Namespace.of(namespace), ref.identifier[-1]
    )
    schema = iceberg.SchemaParser.fromJson(schema_json)
    spec = iceberg.PartitionSpecParser.fromJson(schema, spec_json)
    transaction = (
        catalog.buildTable(name, schema)
        .withPartitionSpec(spec)
        .withProperties(_java_map(session, properties))
        .createTransaction()
    )
    append = transaction.newFastAppend()
    for key, value in summary.items():
        append.set(key, value)
    append.commit()
    transaction.commitTransaction()


def union_schema(
    session: SparkSession,
    ref: TableRef,
    schema_json: str,
    properties: Mapping[str, str],
    renamed: Mapping[str, str],
) -> None:
    """Rename columns, add those a table lacks and widen those that became wider. Atomic."""
    table = load(session, ref)
    schema = _jvm(session).org.apache.iceberg.SchemaParser.fromJson(schema_json)
    transaction = table.newTransaction()
    names = transaction.updateSchema()
    for old, new in renamed.items():
        names.renameColumn(old, new)
    names.commit()
    transaction.updateSchema().unionByNameWith(schema).commit()
    update = transaction.updateProperties()
    for key, value in properties.items():
        update.set(key, value)
    update.commit()
    transaction.commitTransaction()


def create_branch(session: SparkSession, ref: TableRef, branch: str, snapshot_id: int) -> None:
    load(session, ref).manageSnapshots().createBranch(branch, snapshot_id).commit()


def remove_branches(session: SparkSession, ref: TableRef, branches: Iterable[str]) -> None:
    table = load(session, ref)
    # Another worker may have removed one of them a moment ago.
    present = [branch for branch in branches if table.refs().containsKey(branch)]
    update = table.manageSnapshots()
    for branch in present:
        update = update.removeBranch(branch)
    if present:
        update.commit()


def append_nothing(
    session: SparkSession, ref: TableRef, branch: str, summary: Mapping[str, str]
) -> None:
    """Add an empty snapshot to a branch, for the sake of its summary."""
    append = load(session, ref).newFastAppend().toBranch(branch)
    for key, value in summary.items():
        append.set(key, value)
    append.commit()


def added_records(session: SparkSession, ref: TableRef, branch: str) -> int | None:
    """Return how many rows the newest commit on a branch has added; None: there is no branch."""
    snapshot = load(session, ref).snapshot(branch)
    return None if snapshot is None else int(snapshot.summary().get("added-records") or 0)


def publish_branch(
    session: SparkSession,
    ref: TableRef,
    branch: str,
    base_id: int,
    properties: Mapping[str, str],
) -> int | None:
    """Move `main` to a branch's head and drop the branch, if `main` is still at `base_id`.

    One compare-and-set, one attempt. None: `main` has moved, or somebody has removed the branch;
    nothing was sent.
    """
    operations = load(session, ref).operations()
    base = operations.refresh()
    main, written = base.ref(MAIN), base.ref(branch)
    if main is None or main.snapshotId() != base_id or written is None:
        return None
    head = int(written.snapshotId())
    update = _jvm(session).org.apache.iceberg.TableMetadata.buildFrom(base)
    update.setBranchSnapshot(head, MAIN)
    update.removeRef(branch)
    update.setProperties(_java_map(session, properties))
    operations.commit(base, update.build())
    return head


def plan_files(
    session: SparkSession, ref: TableRef, snapshot_id: int, after_id: int | None
) -> list[Task]:
    """Return the files of a snapshot, or only those appended after another one.

    One call over py4j for each file of the range: tens of thousands take seconds.
    """
    table = load(session, ref)
    if after_id is None:
        scan = table.newScan().useSnapshot(snapshot_id)
    else:
        scan = table.newIncrementalAppendScan().fromSnapshotExclusive(after_id)
        scan = scan.toSnapshot(snapshot_id)
    planned = scan.planFiles()
    try:
        tasks = []
        for java in _each(planned.iterator()):
            file = java.file()
            number = file.dataSequenceNumber()
            tasks.append(
                Task(file.location(), int(file.recordCount()), int(number or 0), java, table)
            )
        return tasks
    finally:
        planned.close()


@contextmanager
def staged_scan(
    session: SparkSession, ref: TableRef, tasks: Sequence[Task], schema_json: str | None = None
) -> Iterator[DataFrame]:
    """Yield the rows of exactly these files, deletes applied, with `_file` and `_pos`."""
    table = tasks[0].table if tasks else load(session, ref)
    if schema_json is not None:
        table = _with_schema(session, table, schema_json)
    manager = _jvm(session).org.apache.iceberg.spark.ScanTaskSetManager.get()
    name = f"neve-{uuid.uuid4()}"
    java_tasks = _jvm(session).java.util.ArrayList()
    for task in tasks:
        java_tasks.add(task.java)
    if tasks:
        manager.stageTasks(table, name, java_tasks)
    try:
        rows = _task_set_rows(session, table, name).select("*", "_file", "_pos")
        # Iceberg stages no empty set; then nothing is read at all.
        yield rows if tasks else rows.where("false")
    finally:
        manager.removeTasks(table, name)


def _task_set_rows(session: SparkSession, table: Any, task_set: str) -> DataFrame:
    """Return the rows of a staged set of scan tasks: the columns of `table.schema()`.

    With format version 3, Iceberg adds `_row_id` and `_last_updated_sequence_number` to the
    columns, marked as metadata. Spark then offers no metadata column but those two, so that `_file`
    cannot be selected. A relation without the two has all of them.
    """
    jvm = _jvm(session)
    none = jvm.scala.Option.empty()
    options = jvm.org.apache.spark.sql.util.CaseInsensitiveStringMap.empty()
    relations = jvm.org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
    source = jvm.org.apache.iceberg.spark.source.SparkRewriteTable(table, task_set)
    with active(session):
        every = relations.create(source, none, none, options, none)
        columns = every.output().take(table.schema().columns().size())
        relation = every.copy(source, columns, none, none, options, none)
        rows = jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, relation)
    return DataFrame(rows, session)


def _with_schema(session: SparkSession, table: Any, schema_json: str) -> Any:
    """Return a copy of a table, in memory only, that has another schema."""
    iceberg = _jvm(session).org.apache.iceberg
    base = table.operations().current()
    update = iceberg.TableMetadata.buildFrom(base)
    schema = iceberg.SchemaParser.fromJson(schema_json)
    update.setCurrentSchema(schema, base.lastColumnId())
    operations = iceberg.StaticTableOperations(update.discardChanges().build(), table.io())
    return iceberg.BaseTable(operations, table.name())


def spark_schema(session: SparkSession, schema_json: str) -> StructType:
    """Return an Iceberg schema as Spark has it; reads no catalog."""
    iceberg = _jvm(session).org.apache.iceberg
    converted = iceberg.spark.SparkSchemaUtil.convert(iceberg.SchemaParser.fromJson(schema_json))
    return StructType.fromJson(json.loads(converted.json()))


def load(session: SparkSession, ref: TableRef) -> Any:
    """Load a table as the catalog has it now: the session's catalogs do not cache."""
    with active(session):
        return _jvm(session).org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
            session._jsparkSession, ref.quoted
        )


@contextmanager
def active(session: SparkSession) -> Iterator[None]:
    """Make it, for this thread, the session whose settings say which catalogs there are."""
    sessions = _jvm(session).org.apache.spark.sql.classic.SparkSession
    before = sessions.getActiveSession()
    sessions.setActiveSession(session._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def session_settings(session: SparkSession) -> dict[str, str]:
    """Return a session's settings as they are now; the default catalog is the one `USE` chose.

    PySpark's `conf.getAll` takes a call to Java for each setting.
    """
    java: Any = session._jsparkSession
    pairs = (pair.partition(" -> ") for pair in java.conf().getAll().mkString("\0").split("\0"))
    settings = {key: value for key, _, value in pairs if key}
    # Without `active`, the answer is that of another session of this process.
    with active(session):
        catalog = java.sessionState().catalogManager().currentCatalog().name()
    return {**settings, "spark.sql.defaultCatalog": catalog}


def _jvm(session: SparkSession) -> Any:
    return session._jvm


def _each(iterator: Any) -> Iterator[Any]:
    while iterator.hasNext():
        yield iterator.next()


def _java_map(session: SparkSession, values: Mapping[str, str]) -> Any:
    java = _jvm(session).java.util.HashMap()
    for key, value in values.items():
        java.put(key, value)
    return java


def _array(session: SparkSession, values: Sequence[str]) -> Any:
    gateway: Any = session.sparkContext._gateway
    array = gateway.new_array(gateway.jvm.java.lang.String, len(values))
    for number, value in enumerate(values):
        array[number] = value
    return array
