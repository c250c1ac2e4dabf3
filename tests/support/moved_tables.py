"""Tables to be moved, as Spark and PyIceberg make them, and what three engines read of them."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from neve.api import OpenLake
from neve.config import Settings
from neve.lake.file_store import FileStore
from neve.lake.profile import profile_named
from neve.lake.table_ref import TableRef
from neve.query.duckdb_connection import connect, load_extension

Rows = list[tuple[Any, ...]]
# What must be kept letter by letter.
ODD_VALUE = "a b%2F+ü"
ARROW = pa.schema([("id", pa.int64()), ("day", pa.string())])


def with_catalogs(settings: Settings, journals: os.PathLike[str], **catalogs: Settings) -> Settings:
    """Return settings that know further catalogs, each with a storage of its own."""
    further = {
        name: {**each.catalog.model_dump(), "storage": each.storage.model_dump()}
        for name, each in catalogs.items()
    }
    move = {"journals": str(journals)}
    return Settings.model_validate({**settings.model_dump(), "catalogs": further, "move": move})


def rows_of(*ids: int, day: str = ODD_VALUE) -> pa.Table:
    return pa.table({"id": list(ids), "day": [day] * len(ids)}, ARROW)


def make_by_pyiceberg(lake: OpenLake, ref: TableRef, **properties: str) -> None:
    """Make a partitioned table with four snapshots, a tag and a branch. No JVM."""
    catalog = lake.catalog(ref.catalog)
    catalog.create_namespace_if_not_exists(ref.identifier[:-1])
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "day", StringType()))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "day"))
    table = catalog.create_table(ref.identifier, schema, partition_spec=spec, properties=properties)
    table.append(rows_of(1, 2, 3))
    table.append(rows_of(4, 5, day="plain"))
    first = table.metadata.snapshots[0].snapshot_id
    second = table.metadata.snapshots[1].snapshot_id
    table.manage_snapshots().create_tag(first, "v1").create_branch(second, "audit").commit()
    table.delete("id = 2")
    table.append(rows_of(6))


def make_by_spark(lake: OpenLake, catalog: str, namespace: str) -> list[TableRef]:
    """Make a table of each kind that matters: every format version, every kind of delete."""
    name = f"`{catalog}`.`{namespace}`"
    lake.sql(f"CREATE NAMESPACE IF NOT EXISTS {name}")
    names = {"ns": name, "catalog": catalog, "namespace": namespace}
    for statement in _STATEMENTS.format(**names, merge_on_read=_MERGE_ON_READ).split(";"):
        lake.sql(statement)
    delete_by_equality(lake, TableRef(catalog, (namespace, UPSERTS)), 4)
    return [TableRef(catalog, (namespace, table)) for table in _TABLES]


# Has equality deletes, which PyIceberg does not read.
UPSERTS = "upserts"
_TABLES = ("oldest", "deletes", UPSERTS, "vectors", "expired")
_MERGE_ON_READ = "'write.delete.mode'='merge-on-read', 'write.merge.mode'='merge-on-read'"
_STATEMENTS = """
-- Format version 1, partition and schema evolution, compressed metadata.
CREATE TABLE {ns}.oldest (id BIGINT, day STRING) USING iceberg PARTITIONED BY (day)
  TBLPROPERTIES ('format-version'='1', 'write.metadata.compression-codec'='gzip');
INSERT INTO {ns}.oldest VALUES (1, 'a'), (2, 'b c');
ALTER TABLE {ns}.oldest ADD COLUMN price DOUBLE;
ALTER TABLE {ns}.oldest REPLACE PARTITION FIELD day WITH bucket(2, id);
INSERT INTO {ns}.oldest VALUES (3, 'a', 1.5), (4, 'd', 2.5);
ALTER TABLE {ns}.oldest RENAME COLUMN price TO amount;
CREATE TABLE {ns}.upserts (id BIGINT, day STRING) USING iceberg;
INSERT INTO {ns}.upserts SELECT /*+ COALESCE(1) */ id, 'x' FROM range(1, 9);
-- Position deletes, a branch that was written to, a tag.
CREATE TABLE {ns}.deletes (id BIGINT, day STRING) USING iceberg
  TBLPROPERTIES ('format-version'='2', {merge_on_read});
INSERT INTO {ns}.deletes SELECT /*+ COALESCE(1) */ id, 'x' FROM range(1, 9);
DELETE FROM {ns}.deletes WHERE id = 2;
ALTER TABLE {ns}.deletes CREATE TAG early;
ALTER TABLE {ns}.deletes CREATE BRANCH audit;
INSERT INTO {ns}.deletes.branch_audit VALUES (100, 'on the branch');
DELETE FROM {ns}.deletes WHERE id = 3;
-- Deletion vectors, row lineage, statistics of both kinds.
CREATE TABLE {ns}.vectors (id BIGINT, day STRING) USING iceberg PARTITIONED BY (day)
  TBLPROPERTIES ('format-version'='3', {merge_on_read});
INSERT INTO {ns}.vectors SELECT /*+ COALESCE(1) */ id, 'x y' FROM range(1, 9);
DELETE FROM {ns}.vectors WHERE id = 2;
MERGE INTO {ns}.vectors t USING (SELECT 3 AS id UNION ALL SELECT 20) s ON t.id = s.id
  WHEN MATCHED THEN UPDATE SET day = 'z'
  WHEN NOT MATCHED THEN INSERT (id, day) VALUES (s.id, 'new');
CALL {catalog}.system.compute_table_stats(table => '{namespace}.vectors');
CALL {catalog}.system.compute_partition_stats(table => '{namespace}.vectors');
-- Where Iceberg's own procedure loses files: the snapshots that added them are expired.
CREATE TABLE {ns}.expired (id BIGINT, day STRING) USING iceberg;
INSERT INTO {ns}.expired VALUES (1, 'a');
INSERT INTO {ns}.expired VALUES (2, 'b');
INSERT INTO {ns}.expired VALUES (3, 'c');
CALL {catalog}.system.rewrite_manifests(table => '{namespace}.expired');
CALL {catalog}.system.expire_snapshots(table => '{namespace}.expired',
  older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1)
"""


def delete_by_equality(lake: OpenLake, ref: TableRef, *keys: int) -> None:
    """Delete keys of an unpartitioned table as Flink's upserts do: by a file with their values."""
    table = lake.load(ref)
    field = pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})
    content = io.BytesIO()
    pq.write_table(pa.table([pa.array(keys, pa.int64())], schema=pa.schema([field])), content)
    path = f"{table.location()}/data/equality-deletes.parquet"
    with table.io.new_output(path).create() as file:
        file.write(content.getvalue())
    spark = lake.spark
    gateway, iceberg = spark.sparkContext._gateway, spark._jvm.org.apache.iceberg
    loaded = iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, ref.quoted)
    ids = gateway.new_array(gateway.jvm.int, 1)
    ids[0] = 1
    deletes = (
        iceberg.FileMetadata.deleteFileBuilder(loaded.spec())
        .ofEqualityDeletes(ids)
        .withPath(path)
        .withFormat("parquet")
        .withFileSizeInBytes(len(content.getvalue()))
        .withRecordCount(len(keys))
        .build()
    )
    loaded.newRowDelta().addDeletes(deletes).commit()


def read_by_pyiceberg(lake: OpenLake, ref: TableRef) -> dict[int, Rows]:
    """Return the rows of every snapshot."""
    table = lake.load(ref)
    return {
        each.snapshot_id: _plain(table.scan(snapshot_id=each.snapshot_id).to_arrow())
        for each in table.metadata.snapshots
    }


def read_by_spark(lake: OpenLake, ref: TableRef) -> dict[int, Rows]:
    snapshots = lake.reader(ref.catalog).read(ref.identifier).snapshots
    select = f"SELECT * FROM {ref.quoted} VERSION AS OF"
    return {each: _plain(lake.spark.sql(f"{select} {each}").toArrow()) for each in snapshots}


def read_by_duckdb(lake: OpenLake, ref: TableRef) -> dict[int, Rows]:
    metadata = lake.reader(ref.catalog).read(ref.identifier)
    storage = profile_named(lake.settings, ref.catalog).storage
    with connect() as database:
        if metadata.location.startswith("s3"):
            load_extension(database, "httpfs")
            secret = storage.secret_access_key.get_secret_value()
            database.execute(
                "CREATE TEMPORARY SECRET (TYPE s3, URL_STYLE 'path', USE_SSL false, "
                f"ENDPOINT '{storage.endpoint.removeprefix('http://')}', "
                f"REGION '{storage.region}', KEY_ID '{storage.access_key_id}', SECRET '{secret}')"
            )
        statement = "SELECT * FROM iceberg_scan(?, snapshot_from_id := ?)"
        return {
            each: _plain(
                database.execute(statement, [metadata.metadata_location, each]).to_arrow_table()
            )
            for each in metadata.snapshots
        }


_READERS = {"Spark": read_by_spark, "PyIceberg": read_by_pyiceberg, "DuckDB": read_by_duckdb}


def read_by_all(lake: OpenLake, ref: TableRef) -> dict[str, dict[int, Rows]]:
    """Return what each engine that reads such a table reads of every snapshot."""
    return {
        engine: read(lake, ref)
        for engine, read in _READERS.items()
        if (engine, ref.identifier[-1]) != ("PyIceberg", UPSERTS)
    }


def agreed(answers: dict[str, dict[int, Rows]]) -> dict[int, Rows]:
    """Return what all engines have read."""
    first, *others = answers.values()
    assert others == [first] * len(others), answers
    return first


def _plain(table: pa.Table) -> Rows:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def refs_of(lake: OpenLake, ref: TableRef) -> dict[str, int]:
    return dict(lake.reader(ref.catalog).read(ref.identifier).refs)


def destroy(lake: OpenLake, refs: Iterable[TableRef]) -> None:
    """Remove tables from their catalog, and every file of them."""
    for ref in refs:
        location = lake.reader(ref.catalog).read(ref.identifier).location
        lake.catalog(ref.catalog).drop_table(ref.identifier)
        with FileStore(profile_named(lake.settings, ref.catalog)) as store:
            store.delete(list(store.list_sizes(location)))
            assert store.list_sizes(location) == {}
