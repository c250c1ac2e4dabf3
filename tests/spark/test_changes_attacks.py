"""Tables that make reading changes hard, and what happens to one while it is read."""

from __future__ import annotations

import gc
import statistics
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from threading import Barrier

import fastavro
import pytest

import neve
from neve.errors import NeveError
from neve.lake import temporary_manifests
from neve.lake.chosen_files import TableReader, _line, _write_list
from neve.lake.manifests import ManifestReader, inherit
from neve.lake.paths import local_path
from neve.versions.changes import plan_changes, read_changes
from neve.versions.driver_rows import read_on_driver
from neve.versions.resolve import resolve_range
from tests.support.version_oracle import VersionOracle, differences, read_rows
from tests.support.versioned import MERGE_ON_READ, Versioned, delete_by_equality, read_by_spark


def check(table, *ends):
    """Compare every commit, and some pairs of versions, with what Spark reads of whole versions."""
    oracle = VersionOracle(
        table.lake.load(table.ref),
        lambda number: table.lake.query(f"SELECT * FROM {table.name} VERSION AS OF {number}"),
    )
    wanted = {("changes", None, None): oracle.changes(None, None)}
    wanted |= {("net", since, until): oracle.net(since, until) for since, until in ends}
    for (mode, since, until), rows in wanted.items():
        answer = read_changes(table.lake, table.ref, since, until, mode).toArrow()
        told = list(differences(read_rows(answer.to_pylist()), rows))
        assert not told, (mode, since, until, *told)


def test_deletes_of_every_kind_in_one_table(embedded_lake, tmp_path):
    """By partition, by file, by equality; then deletion vectors over them, and compaction."""
    table = Versioned(
        embedded_lake,
        "id BIGINT, part STRING",
        f"'format-version' = '2', 'write.delete.granularity' = 'partition', {MERGE_ON_READ}",
        "PARTITIONED BY (part)",
    )
    rows = "SELECT id, if(id % 2 = 0, 'a', 'b') AS part FROM range(0, 20, 1, 1)"
    first = table.sql(f"INSERT INTO {{t}} {rows}")
    table.sql(f"INSERT INTO {{t}} {rows}")
    by_partition = table.sql("DELETE FROM {t} WHERE id IN (1, 2, 3)")
    table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.granularity' = 'file')")
    table.sql("DELETE FROM {t} WHERE id IN (3, 4, 5)")
    by_equality = delete_by_equality(table, tmp_path / "part.parquet", 6, 7, partition="part=a")
    table.sql("INSERT INTO {t} VALUES (6, 'a'), (7, 'b')")
    table.sql("ALTER TABLE {t} DROP PARTITION FIELD part")
    # It deletes nothing of the files that came after it.
    everywhere = delete_by_equality(table, tmp_path / "all.parquet", 6, 8, 9)
    table.sql("INSERT INTO {t} VALUES (8, 'c')")
    table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '3')")
    vectors = table.sql("DELETE FROM {t} WHERE id IN (5, 8, 10, 11)")
    table.sql("UPDATE {t} SET part = 'new' WHERE id IN (12, 13)")
    table.lake.sql(
        f"CALL system.rewrite_data_files(table => '{table.name}', "
        "options => map('rewrite-all', 'true'))"
    )
    table.sql("DELETE FROM {t} WHERE id = 14")
    check(table, (first, None), (by_partition, everywhere), (by_equality, vectors))


def test_a_vector_that_takes_over_position_deletes(embedded_lake):
    """It repeats what another kind of deletes has deleted before: that is no change."""
    table = Versioned(
        embedded_lake,
        properties="'format-version' = '2', 'write.delete.granularity' = 'partition', "
        + MERGE_ON_READ,
    )
    table.sql("INSERT INTO {t} SELECT id, 'a' FROM range(0, 6, 1, 1)")
    first = table.sql("INSERT INTO {t} SELECT id, 'a' FROM range(10, 16, 1, 1)")
    # The deletes of both files are in one, which stays beside the vector of the first.
    second = table.sql("DELETE FROM {t} WHERE id IN (1, 11)")
    table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '3')")
    table.sql("DELETE FROM {t} WHERE id = 2")
    deleted = Counter(("delete", key, "a") for key in (1, 2, 11))
    assert table.changes(first) == table.changes(first, mode="net") == deleted
    assert table.changes(second) == Counter([("delete", 2, "a")])


def test_equality_deletes_after_a_partition_field_was_dropped_in_format_1(embedded_lake, tmp_path):
    """A dropped field stays as one that is always NULL. The spec counts as unpartitioned."""
    table = Versioned(
        embedded_lake, "id BIGINT, part STRING", "'format-version' = '1'", "PARTITIONED BY (part)"
    )
    table.sql("INSERT INTO {t} VALUES (1, 'a'), (2, 'a'), (2, 'b'), (3, NULL)")
    table.sql("ALTER TABLE {t} DROP PARTITION FIELD part")
    table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '2')")
    before = table.sql("INSERT INTO {t} VALUES (2, 'c')")
    delete_by_equality(table, tmp_path / "all.parquet", 2)
    left = table.lake.query(f"SELECT id FROM {table.name}")["id"].to_pylist()
    assert sorted(left) == [1, 3]
    deleted = Counter(("delete", 2, part) for part in "abc")
    assert table.changes(before) == table.changes(before, mode="net") == deleted


def test_a_dropped_partition_column_and_deletes_in_compressed_avro(embedded_lake):
    """Nothing but the old partition spec still knows the column."""
    table = Versioned(
        embedded_lake,
        "id BIGINT, part STRING",
        "'format-version' = '2', 'write.delete.format.default' = 'avro', "
        f"'write.delete.avro.compression-codec' = 'zstd', {MERGE_ON_READ}",
        "PARTITIONED BY (part)",
    )
    first = table.sql("INSERT INTO {t} SELECT /*+ COALESCE(1) */ id, 'a' FROM range(4)")
    table.sql("DELETE FROM {t} WHERE id = 1")
    codec = "'write.delete.avro.compression-codec' = 'snappy'"
    table.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ({codec})")
    table.sql("DELETE FROM {t} WHERE id = 2")
    table.sql("ALTER TABLE {t} DROP PARTITION FIELD part")
    table.sql("ALTER TABLE {t} DROP COLUMN part")
    assert table.changes(first) == Counter([("delete", 1), ("delete", 2)])
    assert table.changes(mode="net") == Counter([("insert", 0), ("insert", 3)])


def test_columns_that_have_the_names_of_metadata_columns(embedded_lake):
    """Spark deletes no single rows of such a table, but a column can be renamed afterwards."""
    names = "_pos", "_file", "_spec_id", "step", "type", "c0"
    columns = ", ".join(f"x{name} STRING" for name in names)
    table = Versioned(
        embedded_lake, f"id BIGINT, {columns}", f"'format-version' = '3', {MERGE_ON_READ}"
    )
    first = table.sql("INSERT INTO {t} SELECT id, 'p', 'f', 's', 't', 'u', 'c' FROM range(4)")
    table.sql("UPDATE {t} SET x_pos = 'q' WHERE id = 1")
    table.sql("DELETE FROM {t} WHERE id = 2")
    for name in names:
        table.sql(f"ALTER TABLE {{t}} RENAME COLUMN x{name} TO {name}")
    values = "f", "s", "t", "u", "c"
    updated = Counter(
        [
            ("update_preimage", 1, "p", *values),
            ("update_postimage", 1, "q", *values),
            ("delete", 2, "p", *values),
        ]
    )
    assert table.changes(first, keys=["id"]) == updated
    assert table.changes(first, mode="net", keys=["id"]) == updated


def test_a_column_that_is_called_as_one_of_the_answer(embedded_lake):
    table = Versioned(embedded_lake, "id BIGINT, _Change_Type STRING")
    table.sql("INSERT INTO {t} VALUES (1, 'mine')")
    with pytest.raises(NeveError, match="_Change_Type"):
        read_changes(table.lake, table.ref)


def test_keys_of_any_type(embedded_lake):
    """Binary, decimal, nested, NULL; by a name in other letters."""
    table = Versioned(
        embedded_lake,
        "raw BINARY, price DECIMAL(9,2), pair STRUCT<x: INT>, note STRING",
        f"'format-version' = '2', {MERGE_ON_READ}",
    )
    first = table.sql(
        "INSERT INTO {t} VALUES (X'00', 1.10, named_struct('x', 1), 'a'), "
        "(X'00FF', 1.10, named_struct('x', 2), 'a'), (NULL, 2.00, NULL, 'a'), "
        "(NULL, NULL, NULL, 'a')"
    )
    table.sql("UPDATE {t} SET note = 'b' WHERE price > 1 OR price IS NULL")
    table.sql("ALTER TABLE {t} ALTER COLUMN price TYPE DECIMAL(18,2)")
    for keys, paired in (
        (["raw"], {b"\x00", b"\x00\xff"}),
        (["Price"], {Decimal("2.00"), None}),
        (["pair.x"], {1, 2}),
        (["raw", "price"], {b"\x00", b"\x00\xff", None}),
    ):
        rows = read_changes(table.lake, table.ref, first, keys=keys).toArrow().to_pylist()
        assert len(rows) == 8
        name, *inner = keys[0].lower().split(".")
        updated = [row[name] for row in rows if row["_change_type"].startswith("update")]
        assert {value[inner[0]] if inner else value for value in updated} == paired


def test_identifier_fields_that_were_renamed_later(embedded_lake):
    table = Versioned(embedded_lake, "id BIGINT NOT NULL, name STRING")
    table.sql("ALTER TABLE {t} SET IDENTIFIER FIELDS id")
    first = table.sql("INSERT INTO {t} VALUES (1, 'a')")
    second = table.sql("UPDATE {t} SET name = 'b'")
    table.sql("ALTER TABLE {t} RENAME COLUMN id TO number")
    updated = Counter([("update_preimage", 1, "a"), ("update_postimage", 1, "b")])
    assert table.changes(first) == table.changes(first, second) == updated


def test_a_file_that_a_table_has_twice(embedded_lake):
    """Iceberg lets a file be added again, and reads its rows twice."""
    table = Versioned(embedded_lake)
    first = table.sql("INSERT INTO {t} VALUES (1, 'a')")
    spark = table.lake.spark
    iceberg = spark._jvm.org.apache.iceberg
    java = iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, table.ref.quoted)
    files = java.currentSnapshot().addedDataFiles(java.io()).iterator()
    java.newFastAppend().appendFile(files.next()).commit()
    assert table.lake.query(f"SELECT * FROM {table.name}").num_rows == 2
    assert table.changes(first) == table.changes(first, mode="net") == Counter([("insert", 1, "a")])


def test_two_sessions_at_once(embedded_lake):
    """Each reads another range of the same table, while a third one writes."""
    table = Versioned(embedded_lake, properties=f"'format-version' = '3', {MERGE_ON_READ}")
    table.sql("INSERT INTO {t} SELECT id, 'a' FROM range(20)")
    versions = [table.sql(f"DELETE FROM {{t}} WHERE id = {number}") for number in range(3)]
    together = Barrier(3)

    def read(number):
        with neve.open(embedded_lake.settings) as lake:
            together.wait(60)
            rows = read_changes(lake, table.ref, versions[number], versions[number + 1]).collect()
            return [(row["id"], row["_change_type"]) for row in rows]

    def write():
        together.wait(60)
        table.sql("DELETE FROM {t} WHERE id > 10")

    with ThreadPoolExecutor(3) as pool:
        reads = [pool.submit(read, number) for number in (0, 1)]
        pool.submit(write).result(120)
        assert [each.result(120) for each in reads] == [[(1, "delete")], [(2, "delete")]]


def test_snapshots_that_expire_meanwhile(embedded_lake):
    """Before the plan or after it: an error that says what is missing, and no rows."""
    table = Versioned(embedded_lake)
    oldest = table.sql("INSERT INTO {t} VALUES (0, 'a')")
    first = table.sql("INSERT INTO {t} VALUES (1, 'a'), (2, 'a')")
    table.sql("UPDATE {t} SET name = 'b' WHERE id = 1")
    second = table.sql("UPDATE {t} SET name = 'c' WHERE id = 1")
    with read_by_spark():
        planned = read_changes(table.lake, table.ref, first)
    here = read_changes(table.lake, table.ref, first)
    reader = TableReader(table.lake, table.ref)
    versions = resolve_range(table.name, reader.metadata, None, oldest)
    later = resolve_range(table.name, reader.metadata, first, None)
    plan = plan_changes(reader, later, "changes")
    table.lake.sql(
        f"CALL system.expire_snapshots(table => '{table.name}', "
        "older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1)"
    )
    for read in (
        planned.collect,
        lambda: plan_changes(reader, versions, "changes"),
        lambda: read_on_driver(reader, later, plan, []),
    ):
        with pytest.raises(NeveError, match="expired"), table.lake.explaining():
            read()
    # What was read on the driver is in memory.
    assert sorted(row["name"] for row in here.collect()) == ["a", "b", "b", "c"]
    with pytest.raises(NeveError, match=f"no snapshot {first}") as told:
        read_changes(table.lake, table.ref, first)
    assert str(second) in told.value.hint


def test_versions_of_one_millisecond(embedded_lake):
    """A time means the last version that was current then; ids still tell them apart."""
    table = Versioned(embedded_lake)
    ids = [table.sql(f"INSERT INTO {{t}} VALUES ({number}, 'a')") for number in range(3)]
    document = table.metadata()
    moment = 1_800_000_000_123
    for entry in (*document["snapshot-log"], *document["snapshots"]):
        entry["timestamp-ms"] = moment
    table.replace_metadata({**document, "last-updated-ms": moment})
    text = "2027-01-15T08:00:00.123Z"
    assert table.changes(text) == Counter()
    assert table.changes(None, text) == Counter(("insert", number, "a") for number in range(3))
    assert table.changes("2027-01-15T08:00:00.122Z") == table.changes()
    assert table.changes(ids[0], ids[1]) == Counter([("insert", 1, "a")])


def test_many_snapshots_and_files(embedded_lake):
    """Of 5000 files in 50 manifests only what the commits wrote is read."""
    table = aged(embedded_lake, snapshots=1000)
    before = table.version()
    table.sql("INSERT INTO {t} SELECT id, 'new' FROM range(0, 3, 1, 1)")
    table.sql("DELETE FROM {t} WHERE name = 'new' AND id = 1")
    reader = TableReader(table.lake, table.ref)
    paths = []
    reader.manifests = ManifestReader(lambda path: paths.append(path) or reader.read(path))
    plan_changes(reader, resolve_range(table.name, reader.metadata, before, None), "changes")
    # Three manifest lists, one manifest of data and one of deletes.
    assert len(paths) == 5
    inserted = Counter(("insert", key, "new") for key in range(3))
    assert table.changes(before) == inserted + Counter([("delete", 1, "new")])


@pytest.mark.soak
def test_many_snapshots_and_files_cost_less_than_a_second(embedded_lake):
    """Resolving and planning, in a session that has planned before, of files read before or not."""
    table = aged(embedded_lake)
    seconds = []
    for number in range(5):
        before = table.sql(f"INSERT INTO {{t}} SELECT {number}, 'new' FROM range(0, 3, 1, 1)")
        table.sql(f"DELETE FROM {{t}} WHERE name = 'new' AND id = {number}")
        started = time.monotonic()
        reader = TableReader(table.lake, table.ref)
        plan_changes(reader, resolve_range(table.name, reader.metadata, before, None), "changes")
        seconds.append(time.monotonic() - started)
    assert statistics.median(seconds) < 1, seconds


def aged(lake, snapshots=10_000, manifests=50, files=100):
    """Return a table that has grown old in its metadata: its data files do not exist."""
    table = Versioned(lake, properties=f"'format-version' = '2', {MERGE_ON_READ}")
    table.sql("INSERT INTO {t} VALUES (-1, 'old')")
    reader = TableReader(lake, table.ref)
    document = table.metadata()
    (snapshot,) = document["snapshots"]
    (manifest,) = reader.manifests.manifests(snapshot["manifest-list"])
    avro = reader.manifests.avro(manifest)
    (record,) = avro.records()
    inherit(record, manifest)
    directory = local_path(manifest.path).parent
    lines = []
    for number in range(manifests):
        path = directory / f"old-{number}.avro"
        names = [f"{record['data_file']['file_path']}-{number}-{each}" for each in range(files)]
        records = [
            {**record, "status": 0, "data_file": {**record["data_file"], "file_path": name}}
            for name in names
        ]
        with path.open("wb") as stream:
            fastavro.writer(stream, avro.schema, records, metadata=avro.metadata)
        lines.append(_line(manifest, path.as_uri(), path.stat().st_size))
    _write_list(directory / "old-list.avro", lines)
    history = [
        {
            **snapshot,
            "snapshot-id": number,
            "parent-snapshot-id": number - 1,
            "sequence-number": number,
            "manifest-list": (directory / "old-list.avro").as_uri(),
        }
        for number in range(1, snapshots + 1)
    ]
    del history[0]["parent-snapshot-id"]
    document |= {
        "snapshots": history,
        "current-snapshot-id": snapshots,
        "last-sequence-number": snapshots,
        "refs": {"main": {"snapshot-id": snapshots, "type": "branch"}},
        "snapshot-log": [
            {"snapshot-id": each["snapshot-id"], "timestamp-ms": each["timestamp-ms"]}
            for each in history
        ],
    }
    table.replace_metadata(document)
    return table


def test_temporary_manifests_go_when_nobody_can_read_them(embedded_lake, tmp_path, monkeypatch):
    """Java says when. A view keeps its own; and a directory may have any name."""
    directory = tmp_path / "a b %41 ü"
    directory.mkdir()
    monkeypatch.setattr(temporary_manifests, "of_this_process", lambda: directory)
    table = Versioned(embedded_lake)
    table.sql("INSERT INTO {t} SELECT id, 'a' FROM range(4)")
    assert table.changes().total() == 4
    unused = set(directory.iterdir())
    read_changes(table.lake, table.ref).createOrReplaceTempView("kept_changes")
    deadline = time.monotonic() + 60
    while unused & set(directory.iterdir()):
        assert time.monotonic() < deadline
        gc.collect()
        table.lake.spark._jvm.System.gc()
        table.changes()
    assert table.lake.sql("SELECT * FROM kept_changes").count() == 4
    table.lake.spark.catalog.dropTempView("kept_changes")


def test_a_file_that_is_in_a_table_twice_has_its_rows_twice(embedded_lake):
    table = Versioned(embedded_lake, "id BIGINT", "'format-version' = '2'")
    first = table.sql("INSERT INTO {t} VALUES (1), (2)")
    stored = embedded_lake.load(table.ref)
    path, *_ = stored.inspect.files()["file_path"].to_pylist()
    stored.add_files([path], check_duplicate_files=False)
    check(table, (None, None), (first, None))
