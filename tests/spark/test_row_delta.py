"""Rows and deletion vectors in one commit: what every engine reads, and who may be first."""

from collections import Counter
from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal

import pyarrow as pa
import pytest
from py4j.java_gateway import GatewayClient  # noqa: TID251 - to count calls
from py4j.protocol import (  # noqa: TID251 - to count calls, and to raise what Java raises
    CALL_COMMAND_NAME,
    Py4JJavaError,
)
from pyroaring import BitMap64

from neve.errors import (
    CatalogError,
    ConflictError,
    NotFoundError,
    UnknownOutcomeError,
    UnsupportedError,
    UsageError,
)
from neve.lake.data_files import write_data_files, write_rows
from neve.lake.java_commits import committing_in_java
from neve.lake.jvm.content_file_loop import ContentFileLoop
from neve.lake.live_files import live_files
from neve.lake.row_delta import (
    RowChanges,
    StatisticsFile,
    prepare_row_delta,
    read_statistics,
    set_statistics,
    source_of,
)
from neve.lake.vectors import encode_vector, read_vector, write_vectors
from tests.support.mirrors import Mirror
from tests.support.readers import by_all


@pytest.fixture
def mirror(embedded_lake):
    return Mirror(embedded_lake)


def rows(**values):
    return pa.table({"id": [int(key[1:]) for key in values], "v": list(values.values())})


def expected(*old, **new):
    found = [{"id": one, "v": "old"} for one in old]
    found += [{"id": int(key[1:]), "v": value} for key, value in new.items()]
    return by_all(sorted(found, key=lambda row: row["id"]))


def test_rows_are_replaced_in_one_snapshot(mirror):
    mirror.fill(0, 5)
    mirror.fill(5, 10)
    base = mirror.main
    changes = mirror.changes(rows(_3="new", _12="new"), mirror.where(3, 7), batch="b1")
    snapshot_id = mirror.commit(changes, properties={"mark": "1"})

    assert mirror.read() == expected(0, 1, 2, 4, 5, 6, 8, 9, _3="new", _12="new")
    snapshot = mirror.table.metadata.snapshot_by_id(snapshot_id)
    assert (mirror.main, snapshot.parent_snapshot_id) == (snapshot_id, base)
    assert snapshot.summary.additional_properties["batch"] == "b1"
    assert mirror.table.properties["mark"] == "1"


def test_a_second_vector_holds_the_first(mirror):
    mirror.fill(0, 10)
    for number in range(4):
        mirror.commit(mirror.changes(None, mirror.where(number)))
        assert mirror.read() == expected(*range(number + 1, 10))
    (file,) = live_files(mirror.table, mirror.main).values()
    assert (file.record_count, file.vector.cardinality) == (10, 4)
    assert read_vector(mirror.table.io, file.vector) == BitMap64([0, 1, 2, 3])


@pytest.fixture
def calls(monkeypatch):
    """The calls of Java that were made."""
    calls = []
    send = GatewayClient.send_command

    def counted(client, command, *args, **options):
        # Other commands release objects, whenever Python's garbage collector finds them.
        if command.startswith(CALL_COMMAND_NAME):
            calls.append(command)
        return send(client, command, *args, **options)

    monkeypatch.setattr(GatewayClient, "send_command", counted)
    return calls


def test_many_files_cross_to_java_in_as_many_calls_as_few(mirror, calls):
    mirror.fill(0, 1)

    def commit(changes):
        calls.clear()
        mirror.commit(changes)
        return len(calls)

    def calls_with(files):
        """Add files, give each a vector, replace half of the vectors, remove the other files."""
        metadata, io = mirror.table.metadata, mirror.table.io
        data = [
            write_data_files(metadata, io, rows(_1="x", _2="x", _3="x"))[0] for _ in range(files)
        ]
        added = commit(RowChanges(mirror.main, data))
        paths = [file.file_path for file in data]
        half = paths[: files // 2]
        given = commit(mirror.changes(deleted={path: BitMap64([0]) for path in paths}))
        changes = mirror.changes(deleted={path: BitMap64([2]) for path in half})
        changed = commit(replace(changes, emptied=paths[files // 2 :]))
        assert mirror.read() == by_all([{"id": 0, "v": "old"}, *[{"id": 2, "v": "x"}] * len(half)])
        mirror.lake.sql(f"DELETE FROM {mirror.name} WHERE id > 0").collect()
        return added, given, changed

    assert calls_with(20) == calls_with(2)


def test_many_manifests_cross_to_java_in_as_many_calls_as_few(mirror, calls):
    mirror.fill(0, 1)

    def calls_with(manifests):
        """Add files in a commit each, and remove one of them, which may be in any manifest."""
        for _ in range(manifests):
            data = write_data_files(mirror.table.metadata, mirror.table.io, rows(_1="x"))
            mirror.commit(RowChanges(mirror.main, data))
        calls.clear()
        mirror.commit(RowChanges(mirror.main, emptied=[data[0].file_path]))
        return len(calls)

    assert calls_with(2) == calls_with(20)


def test_manifests_are_merged_when_there_are_many(mirror):
    """Java is given the manifests that a commit changes, and all of them where it merges some."""
    lake, name = mirror.lake, mirror.name
    merges = "'commit.manifest.min-count-to-merge'='3'"
    lake.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ({merges})").collect()
    mirror.fill(0, 5)
    for number in range(5):
        new = rows(**{f"_{10 + number}": "new"})
        mirror.commit(mirror.changes(new, mirror.where(number)))
    assert mirror.read() == expected(**{f"_{10 + number}": "new" for number in range(5)})
    table = mirror.table
    assert len(table.current_snapshot().manifests(table.io)) < 6
    # The attempts that lacked manifests have left nothing, either.
    assert not [path for path in paths_in_memory(lake) if path.startswith(table.location())]


def test_compressed_metadata_is_read(mirror):
    compresses = "'write.metadata.compression-codec'='gzip'"
    mirror.lake.sql(f"ALTER TABLE {mirror.name} SET TBLPROPERTIES ({compresses})").collect()
    mirror.fill(0, 5)
    assert mirror.table.metadata_location.endswith(".gz.metadata.json")
    mirror.commit(mirror.changes(rows(_1="new"), mirror.where(1, 2)))
    assert mirror.read() == expected(0, 3, 4, _1="new")


def paths_in_memory(lake):
    memory = lake.spark._jvm.org.apache.iceberg.inmemory.InMemoryFileIO().getClass()
    files = memory.getDeclaredField("IN_MEMORY_FILES")
    files.setAccessible(True)
    return list(files.get(None).keySet())


def test_vectors_that_spark_wrote_are_united_too(mirror):
    mirror.fill(0, 10)
    mirror.lake.sql(f"DELETE FROM {mirror.name} WHERE id IN (1, 2)").collect()
    mirror.commit(mirror.changes(None, mirror.where(8)))
    assert mirror.read() == expected(0, 3, 4, 5, 6, 7, 9)
    # And the other way round: Spark goes on from ours.
    mirror.lake.sql(f"DELETE FROM {mirror.name} WHERE id = 9").collect()
    assert mirror.read() == expected(0, 3, 4, 5, 6, 7)


def test_a_file_without_rows_leaves_with_its_vector(mirror):
    mirror.fill(0, 5)
    mirror.fill(5, 10)
    mirror.commit(mirror.changes(None, mirror.where(1)))
    first, second = (next(iter(mirror.where(one))) for one in (0, 5))
    changes = mirror.changes(rows(_20="new"), mirror.where(7))
    mirror.commit(replace(changes, emptied=[first]))
    assert mirror.read() == expected(5, 6, 8, 9, _20="new")
    found = live_files(mirror.table, mirror.main)
    assert first not in found
    assert found[second].vector.cardinality == 1
    # A file that left cannot leave again, nor one get a vector that leaves.
    with pytest.raises(ConflictError, match="not in snapshot"):
        mirror.commit(RowChanges(mirror.main, emptied=[first]))
    with pytest.raises(UsageError, match="one and leaves"):
        mirror.commit(replace(mirror.changes(None, mirror.where(8)), emptied=[second]))


def test_the_first_rows_of_an_empty_table(mirror):
    mirror.commit(mirror.changes(rows(_1="new")))
    assert mirror.read() == expected(_1="new")


def test_row_lineage_stays_valid(mirror):
    mirror.fill(0, 5)
    mirror.commit(mirror.changes(rows(_3="new", _6="new"), mirror.where(3)))
    mirror.commit(mirror.changes(rows(_7="new"), mirror.where(0)))
    mirror.fill(20, 22)
    found = mirror.lake.query(
        f"SELECT id, _row_id, _last_updated_sequence_number n FROM {mirror.name}"
    ).to_pylist()
    assert len({row["_row_id"] for row in found}) == len(found) == 8
    assert all(row["_row_id"] is not None for row in found)
    assert Counter(row["n"] for row in found) == {1: 3, 2: 2, 3: 1, 4: 2}
    assert mirror.table.metadata.next_row_id > max(row["_row_id"] for row in found)


def test_positions_of_written_rows_are_known(mirror):
    table = mirror.table
    (written,) = write_rows(table.metadata, table.io, rows(_5="a", _1="b", _3="c"))
    mirror.commit(RowChanges(None, [written.data_file]))
    position = written.rows.column("id").to_pylist().index(1)
    assert mirror.where(1) == {written.data_file.file_path: BitMap64([position])}


PARTITIONED = (
    "id bigint, v string, ts timestamp, wall timestamp_ntz, amount decimal(10, 2), day date, "
    "raw binary, flag boolean"
)


@pytest.mark.parametrize(
    "spec",
    [
        "days(ts)",
        "bucket(4, id), day, v, amount, flag, wall",
        "hours(wall), months(day), ts, truncate(2, v), truncate(1, raw)",
    ],
)
def test_partitions_of_any_kind(embedded_lake, spec):
    mirror = Mirror(embedded_lake, PARTITIONED, f"PARTITIONED BY ({spec})")
    moment = datetime(1969, 12, 31, 23, 59, 59, 5, tzinfo=timezone.utc)
    data = pa.table(
        {
            "id": range(6),
            "v": ["a/b=c", None, "é", "a", "b", "c"],
            "ts": [moment + timedelta(days=n) for n in range(6)],
            "wall": [(moment + timedelta(hours=n)).replace(tzinfo=None) for n in range(6)],
            "amount": [Decimal(n) / 4 for n in range(6)],
            "day": [date(1969, 12, 30) + timedelta(days=n) for n in range(6)],
            "raw": [bytes([n, 255]) for n in range(6)],
            "flag": [None, True, False, True, False, None],
        }
    )
    mirror.commit(mirror.changes(data))
    mirror.commit(mirror.changes(data.slice(2, 1), mirror.where(2, 4)))
    mirror.commit(mirror.changes(None, mirror.where(3)))
    wanted = data.take([0, 1, 2, 5]).to_pylist()
    found = mirror.read()
    assert found["Spark"] == wanted
    assert found["PyIceberg"] == wanted
    # Each row is in the partition Spark itself looks for it in.
    for row in wanted:
        (one,) = mirror.lake.query(
            f"SELECT id FROM {mirror.name} WHERE id = {row['id']} AND day = DATE'{row['day']}'"
        ).to_pylist()
        assert one["id"] == row["id"]


def foreign_append(mirror):
    mirror.fill(100, 101)


def foreign_delete(mirror):
    mirror.lake.sql(f"DELETE FROM {mirror.name} WHERE id = 9").collect()


def foreign_compaction(mirror):
    mirror.lake.sql(
        f"CALL system.rewrite_data_files(table => '{mirror.name}', "
        "options => map('rewrite-all', 'true'))"
    ).collect()


def foreign_rollback(mirror):
    first = mirror.table.metadata.snapshots[0].snapshot_id
    mirror.lake.sql(
        f"CALL system.rollback_to_snapshot(table => '{mirror.name}', snapshot_id => {first})"
    ).collect()


@pytest.mark.parametrize(
    "foreign", [foreign_append, foreign_delete, foreign_compaction, foreign_rollback]
)
def test_who_comes_second_changes_nothing(mirror, foreign):
    mirror.fill(0, 5)
    mirror.fill(5, 10)
    table, changes = mirror.table, mirror.changes(rows(_3="new"), mirror.where(3))
    prepared = prepare_row_delta(mirror.lake, table, changes)
    foreign(mirror)
    before = mirror.table.metadata.snapshots, mirror.read()
    with pytest.raises(ConflictError, match=str(prepared.snapshot_id)) as conflict:
        prepared.commit()
    assert conflict.value.retryable
    with pytest.raises(ConflictError, match="no longer at"):
        prepare_row_delta(mirror.lake, table, changes)
    assert (mirror.table.metadata.snapshots, mirror.read()) == before


def test_a_file_that_left_is_a_conflict(mirror):
    mirror.fill(0, 5)
    deleted = mirror.where(3)
    foreign_compaction(mirror)
    with pytest.raises(ConflictError, match="not in snapshot"):
        mirror.changes(None, deleted)


def test_a_vector_may_not_bring_rows_back(mirror):
    mirror.fill(0, 5)
    mirror.commit(mirror.changes(None, mirror.where(1, 2)))
    table = mirror.table
    (path,) = mirror.where(3)
    one = write_vectors(table.metadata, table.io, {path: BitMap64([3])})
    with pytest.raises(UsageError, match="bring rows back"):
        mirror.commit(RowChanges(mirror.main, vectors=one))
    with pytest.raises(UsageError, match="two new"):
        mirror.commit(RowChanges(mirror.main, vectors=one * 2))


def test_a_vector_that_is_not_there_cannot_be_replaced(mirror, monkeypatch):
    """Two vectors for a file would be committed, and no scan would work any more."""
    mirror.fill(0, 5)
    mirror.commit(mirror.changes(None, mirror.where(1)))
    changes = mirror.changes(None, mirror.where(2))
    monkeypatch.setattr(ContentFileLoop, "remove_deletes", lambda _, __: None)
    with pytest.raises(ConflictError, match="are not there"):
        mirror.commit(changes)


def test_other_deletes_are_refused_by_name(embedded_lake):
    mirror = Mirror(embedded_lake)
    lake, name = mirror.lake, mirror.name
    lake.sql(f"DROP TABLE {name}").collect()
    lake.sql(
        f"CREATE TABLE {name} (id bigint, v string) USING iceberg TBLPROPERTIES "
        "('format-version'='2', 'write.delete.mode'='merge-on-read')"
    ).collect()
    mirror.fill(0, 5)
    lake.sql(f"DELETE FROM {name} WHERE id = 1").collect()
    lake.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('format-version'='3')").collect()
    with pytest.raises(UnsupportedError, match="no deletion vector"):
        live_files(mirror.table, mirror.main)


def test_a_snapshot_that_is_not_there(mirror):
    with pytest.raises(NotFoundError, match="42"):
        live_files(mirror.table, 42)


OUTCOMES = {
    "CommitFailedException": ConflictError,
    "ValidationException": ConflictError,
    "CommitStateUnknownException": UnknownOutcomeError,
    "ServiceFailureException": UnknownOutcomeError,
    "RESTException": UnknownOutcomeError,
    "ForbiddenException": CatalogError,
    "NoSuchTableException": NotFoundError,
}


def test_what_java_raises_is_sorted(embedded_lake):
    jvm = embedded_lake.spark._jvm
    exceptions = jvm.org.apache.iceberg.exceptions
    no_arguments = jvm.org.apache.spark.api.python.PythonUtils.toArray(jvm.java.util.ArrayList())
    for name, kind in OUTCOMES.items():
        if name == "CommitStateUnknownException":
            raised = exceptions.CommitStateUnknownException(jvm.java.lang.RuntimeException("504"))
        else:
            raised = getattr(exceptions, name)("failed", no_arguments)
        with pytest.raises(kind) as error, committing_in_java("ns.t", "a commit"):
            raise Py4JJavaError("failed", raised)
        assert type(error.value) is kind


def test_the_statistics_file_comes_with_its_snapshot(mirror):
    mirror.fill(0, 5)
    prepared = prepare_row_delta(mirror.lake, mirror.table, mirror.changes(rows(_9="new")))
    # A root can be written now: it names the snapshot that it comes with.
    file = StatisticsFile(prepared.snapshot_id, "file:/somewhere/root.puffin", 400, 200)
    prepared.commit({"neve.index.root": file.path}, file)
    assert read_statistics(mirror.table) == {prepared.snapshot_id: file}
    assert mirror.table.properties["neve.index.root"] == file.path
    assert mirror.read() == expected(*range(5), _9="new")


def test_statistics_are_replaced_and_the_property_stays(mirror):
    mirror.fill(0, 5)
    main = mirror.main
    for number in (1, 2):
        file = StatisticsFile(main, f"file:/somewhere/root-{number}.puffin", 400, 200)
        source = source_of(mirror.lake, mirror.table)
        set_statistics(source, file, {"neve.index.root": file.path})
        assert read_statistics(mirror.table) == {main: file}
    assert mirror.main == main
    mirror.lake.sql(f"CALL system.compute_table_stats(table => '{mirror.name}')").collect()
    assert read_statistics(mirror.table)[main] != file
    assert mirror.table.properties["neve.index.root"] == file.path


def test_positions_beyond_32_bits_are_read_by_java(embedded_lake):
    positions = BitMap64([0, 5, 2**32 - 1, 2**32, 3 * 2**32 + 7])
    blob = encode_vector(positions)
    jvm = embedded_lake.spark._jvm
    iceberg = jvm.org.apache.iceberg
    vector = (
        iceberg.FileMetadata.deleteFileBuilder(iceberg.PartitionSpec.unpartitioned())
        .ofPositionDeletes()
        .withFormat("PUFFIN")
        .withPath("dv.puffin")
        .withFileSizeInBytes(len(blob))
        .withReferencedDataFile("data.parquet")
        .withContentOffset(0)
        .withContentSizeInBytes(len(blob))
        .withRecordCount(len(positions))
        .build()
    )
    index = iceberg.deletes.PositionDeleteIndex.deserialize(bytearray(blob), vector)
    assert index.cardinality() == len(positions)
    for one in positions:
        assert index.isDeleted(one)
        assert not index.isDeleted(one + 2)
