"""Tables of a further configured catalog: everything in the lake takes a `TableRef`."""

import pyarrow as pa
import pytest

import neve
from neve.config import Settings
from neve.errors import NotFoundError
from neve.lake.data_files import write_data_files
from neve.lake.expiry import SnapshotRemoval, remove_expired
from neve.lake.frames import added_rows, write_frame
from neve.lake.java_tables import JavaTable
from neve.lake.row_delta import (
    RowChanges,
    StatisticsFile,
    commit_row_delta,
    read_statistics,
    set_statistics,
    source_of,
)
from neve.lake.table_ref import TableRef
from tests.support.lakes import sqlite_settings


@pytest.fixture
def lake(embedded_lake, tmp_path):
    further = {
        "type": "sqlite",
        "uri": f"sqlite:///{tmp_path}/further.db",
        "warehouse": str(tmp_path / "further"),
    }
    document = {**sqlite_settings(tmp_path).model_dump(), "catalogs": {"archive": further}}
    with neve.open(Settings.model_validate(document)) as lake:
        yield lake


def test_names(lake):
    assert lake.ref("ns.t") == TableRef("lake", ("ns", "t"))
    assert lake.ref("archive.ns.t") == TableRef("archive", ("ns", "t"))
    # No catalog has that name: a namespace of two parts.
    assert lake.ref("deep.ns.t") == TableRef("lake", ("deep", "ns", "t"))
    assert lake.ref(("archive", "ns", "t")) == TableRef("lake", ("archive", "ns", "t"))
    assert lake.ref("archive.ns.t").name == "archive.ns.t"
    with pytest.raises(NotFoundError, match="catalog archive"):
        lake.load(lake.ref("archive.ns.t"))


def test_a_table_of_a_further_catalog(lake):
    ref = lake.ref("archive.ns.t")
    lake.sql("CREATE NAMESPACE archive.ns").collect()
    lake.sql(
        "CREATE TABLE archive.ns.t (id BIGINT) USING iceberg "
        "TBLPROPERTIES ('format-version'='3', 'write.delete.mode'='merge-on-read')"
    ).collect()

    def commit(*ids):
        table = lake.load(ref)
        rows = pa.table({"id": pa.array(ids, pa.int64())})
        files = write_data_files(table.metadata, table.io, rows)
        changes = RowChanges(table.metadata.current_snapshot_id, files)
        return commit_row_delta(lake, table, changes)

    first, second = commit(1, 2), commit(3)
    table = lake.load(ref)
    assert TableRef.of(table) == ref
    assert [row.id for row in added_rows(lake.spark, ref, second, first).collect()] == [3]
    assert [row.id for row in lake.changes("archive.ns.t", first).collect()] == [3]
    lake.sql("USE archive.ns")
    assert lake.sql(f"SELECT id FROM t VERSION SINCE {first}").collect() == [(3,)]
    lake.sql("USE lake")
    assert [each.snapshot_id for each in lake.table("archive.ns.t").history] == [second, first]
    statistics = StatisticsFile(second, "file:/somewhere/root.puffin", 400, 200)
    set_statistics(source_of(lake, lake.load(ref)), statistics, {"mark": "1"})
    assert read_statistics(lake.load(ref)) == {second: statistics}

    java = JavaTable(lake, lake.spark, ref)
    java.create_branch("b", second)
    java.append_nothing("b", {"k": "v"})
    head = java.publish_branch("b", second, {})
    assert lake.load(ref).metadata.current_snapshot_id == head
    assert len(java.plan_files(head)) == 2
    copy = JavaTable(lake, lake.spark, ref.with_suffix("_copy"))
    schema, spec = table.schema().model_dump_json(), table.spec().model_dump_json()
    copy.create(schema, spec, {"format-version": "2"}, {"k": "v"})
    assert lake.load(copy.ref).metadata.table_uuid != table.metadata.table_uuid
    files = write_frame(lake.spark.range(3).toDF("id"), lake.load(copy.ref))
    assert sum(file.record_count for file in files) == 3

    uuid = str(table.metadata.table_uuid)
    old = SnapshotRemoval((first, second))
    assert remove_expired(lake, ref, uuid, lambda _: old, lambda *_: "").snapshots == 2
    assert [one.snapshot_id for one in lake.load(ref).metadata.snapshots] == [head]
    # The configured catalog was never asked.
    assert lake.catalog().list_namespaces() == []
