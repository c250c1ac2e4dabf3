"""Tables whose changes are read, each in a namespace of its own."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq

from neve.lake.chosen_files import TableReader
from neve.lake.paths import local_path
from neve.lake.plain_rows import Allowance
from neve.versions import driver_rows
from neve.versions.changes import plan_changes, read_changes
from neve.versions.resolve import resolve_range

MERGE_ON_READ = ", ".join(
    f"'write.{operation}.mode' = 'merge-on-read'" for operation in ("delete", "update", "merge")
)


@contextmanager
def read_by_spark() -> Iterator[None]:
    """Let Spark read changes, however few they are."""
    with mock.patch.object(driver_rows, "LIMIT", Allowance(-1, 0, 0, 0, 0)):
        yield


def is_read_on_driver(frame) -> bool:
    return frame._jdf.queryExecution().analyzed().nodeName() == "LocalRelation"


class Versioned:
    """A table, and what is known of its versions."""

    def __init__(self, lake, columns="id BIGINT, name STRING", properties="", clauses=""):
        self.lake = lake
        namespace = f"t_{uuid.uuid4().hex[:12]}"
        lake.sql(f"CREATE NAMESPACE {namespace}")
        self.name = f"{namespace}.t"
        # How `changes` were read, each time.
        self.paths: list[str] = []
        self.ref = lake.ref(self.name)
        table_properties = f"TBLPROPERTIES ({properties})" if properties else ""
        self.sql(f"CREATE TABLE {self.name} ({columns}) USING iceberg {clauses} {table_properties}")

    def sql(self, statement):
        self.lake.sql(statement.replace("{t}", self.name))
        return self.version()

    def version(self):
        reader = TableReader(self.lake, self.ref)
        return reader.metadata.current_snapshot_id

    def metadata(self):
        """Return the metadata as JSON, to be changed."""
        return json.loads(json.dumps(TableReader(self.lake, self.ref).metadata.document))

    def replace_metadata(self, document):
        """Give the table other metadata than what happened to it."""
        location = self.lake.load(self.ref).location()
        path = local_path(location) / "metadata" / f"{uuid.uuid4()}.metadata.json"
        path.write_text(json.dumps(document))
        self.lake.catalog().drop_table(self.ref.identifier)
        self.lake.catalog().register_table(self.ref.identifier, path.as_uri())

    def changes(self, since=None, until=None, mode="changes", keys=None):
        """Return the changes as (type, values…) with how often they occur."""
        rows = self.rows(since, until, mode, keys)
        return Counter((row[-3], *row[:-3]) for row in rows)

    def rows(self, since=None, until=None, mode="changes", keys=None):
        """Return the changes, which are the same by Spark and on the driver."""
        with read_by_spark():
            by_spark = read_changes(self.lake, self.ref, since, until, mode, keys)
        assert not is_read_on_driver(by_spark)
        here = read_changes(self.lake, self.ref, since, until, mode, keys)
        self.paths.append("driver" if is_read_on_driver(here) else "Spark")
        assert _shape(here.schema) == _shape(by_spark.schema)
        assert here.columns[-3:] == ["_change_type", "_commit_snapshot_id", "_commit_timestamp"]
        rows = here.collect()
        assert Counter(map(repr, by_spark.collect())) == Counter(map(repr, rows))
        return rows

    def files(self):
        rows = self.lake.sql(f"SELECT file_path FROM {self.name}.files WHERE content = 0").collect()
        return {row[0] for row in rows}

    def plan(self, since, until=None, mode="changes"):
        table = TableReader(self.lake, self.ref)
        return plan_changes(table, resolve_range(self.name, table.metadata, since, until), mode)


def _shape(schema):
    """Return names, types and comments; who groups rows says less of what may be NULL."""
    return [(one.name, one.dataType.simpleString(), one.metadata) for one in schema.fields]


def delete_by_equality(table, path, *keys, partition=None):
    """Delete keys as Flink's upserts do: by a file with their values.

    Args:
        partition: as in the path of a data file; without it the file has the table's spec, which
            then must be unpartitioned.
    """
    field = pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})
    pq.write_table(pa.table([pa.array(keys, pa.int64())], schema=pa.schema([field])), path)
    spark = table.lake.spark
    gateway, iceberg = spark.sparkContext._gateway, spark._jvm.org.apache.iceberg
    loaded = iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, table.ref.quoted)
    ids = gateway.new_array(gateway.jvm.int, 1)
    ids[0] = 1
    builder = (
        iceberg.FileMetadata.deleteFileBuilder(loaded.spec())
        .ofEqualityDeletes(ids)
        .withPath(path.as_uri())
        .withFormat("parquet")
        .withFileSizeInBytes(path.stat().st_size)
        .withRecordCount(len(keys))
    )
    if partition:
        builder.withPartitionPath(partition)
    loaded.newRowDelta().addDeletes(builder.build()).commit()
    return table.version()
