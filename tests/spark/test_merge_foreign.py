"""What other engines did to the mirror: keys with two rows, deletes that are no vectors."""

from __future__ import annotations

from collections import defaultdict

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from neve.merge.strategy import Strategy
from tests.support.merging import Mirrored, event

FOREIGN = "INSERT INTO lake.{mirror} VALUES (1, 'theirs', 0, 1), (2, 'theirs', 0, 1), "
FOREIGN += "(3, 'theirs', 0, 1), (4, 'theirs', 0, 9), (5, 'theirs', 0, 9), (7, 'theirs', 0, 1)"


def rows_of(mirrored):
    found = defaultdict(list)
    for row in mirrored.table().scan().to_arrow().to_pylist():
        found[row["id"]].append((row["lsn"], row["name"]))
    return {key: sorted(rows) for key, rows in found.items()}


# By the statement: the test after this one.
@pytest.mark.parametrize(
    "strategy",
    [
        Strategy.INDEX,
        pytest.param(Strategy.SCAN, marks=pytest.mark.soak),
        pytest.param(Strategy.MERGE, marks=pytest.mark.soak),
    ],
)
def test_a_key_that_others_doubled_is_one_row_again(embedded_lake, strategy):
    mirrored = Mirrored(embedded_lake, strategy=strategy)
    mirrored.append(*(event("I", 1, key, "ours") for key in range(1, 9)))
    mirrored.merge()
    if strategy is Strategy.INDEX:
        # There is an index before they come, so that it has to notice them.
        mirrored.append(event("U", 2, 8, "indexed"))
        mirrored.merge()
    embedded_lake.sql(FOREIGN.format(mirror=mirrored.mirror))
    mirrored.append(
        event("U", 5, 1, "new"),
        event("D", 5, 2),
        event("U", 5, 4, "late, behind theirs"),
        event("U", 10, 5, "new"),
        event("U", 5, 6, "new"),
        event("I", 1, 7, "ours"),
    )
    mirrored.merge()
    found = rows_of(mirrored)
    # What no event speaks of stays as it is, and so does what an event repeats.
    assert found.pop(3) == [(1, "ours"), (1, "theirs")]
    assert found.pop(7) == [(1, "ours"), (1, "theirs")]
    assert found.pop(4) in ([(9, "theirs")], [(1, "ours"), (9, "theirs")])
    assert found.pop(8)[0][0] in (1, 2)
    assert found == {1: [(5, "new")], 5: [(10, "new")], 6: [(5, "new")]}
    # All of them are single after their next event.
    mirrored.append(*(event("U", 20, key, "last") for key in range(3, 9)), event("D", 20, 1))
    mirrored.merge()
    assert rows_of(mirrored) == {key: [(20, "last")] for key in range(3, 9)}


def test_a_doubled_key_and_a_truncate_in_one_batch(embedded_lake):
    """A TRUNCATE is left to the statement, which would write a new row for each old one."""
    mirrored = Mirrored(embedded_lake, strategy=Strategy.SCAN, unchanged_marker="?")
    mirrored.append(*(event("I", 4, key, "ours") for key in range(1, 5)), event("I", 1, 5, "old"))
    mirrored.merge()
    embedded_lake.sql(f"INSERT INTO {mirrored.mirror} SELECT * FROM {mirrored.mirror} WHERE id < 4")
    mirrored.append(
        event("T", 3, None), event("U", 5, 1, "new"), event("U", 5, 2, "?"), event("D", 5, 3)
    )
    mirrored.merge()
    assert rows_of(mirrored) == {1: [(5, "new")], 2: [(5, "ours")], 4: [(4, "ours")]}


def delete_by_equality(mirrored, path, *keys):
    """Delete keys as Flink's upserts do: by a file with their values."""
    table = mirrored.table()
    field_id = table.schema().find_field("id").field_id
    field = pa.field("id", pa.int64(), metadata={"PARQUET:field_id": str(field_id)})
    pq.write_table(pa.table([pa.array(keys, pa.int64())], schema=pa.schema([field])), path)
    spark = mirrored.lake.spark
    gateway, iceberg = spark.sparkContext._gateway, spark._jvm.org.apache.iceberg
    loaded = iceberg.spark.Spark3Util.loadIcebergTable(
        spark._jsparkSession, f"lake.{mirrored.mirror}"
    )
    ids = gateway.new_array(gateway.jvm.int, 1)
    ids[0] = field_id
    file = (
        iceberg.FileMetadata.deleteFileBuilder(loaded.spec())
        .ofEqualityDeletes(ids)
        .withPath(path.as_uri())
        .withFormat("parquet")
        .withFileSizeInBytes(path.stat().st_size)
        .withRecordCount(len(keys))
        .build()
    )
    loaded.newRowDelta().addDeletes(file).commit()


@pytest.mark.parametrize(
    "strategy", [Strategy.INDEX, pytest.param(Strategy.SCAN, marks=pytest.mark.soak)]
)
def test_deletes_that_are_no_vectors_are_left_to_the_statement(embedded_lake, strategy, tmp_path):
    mirrored = Mirrored(embedded_lake, strategy=strategy)
    mirrored.append(*(event("I", 1, key, "ours") for key in range(1, 6)))
    mirrored.merge()
    delete_by_equality(mirrored, tmp_path / "deletes.parquet", 2, 3)
    mirrored.append(event("U", 5, 1, "new"), event("D", 5, 4), event("U", 5, 3, "back"))
    report = mirrored.merge()
    assert (report.strategy, report.outcome) == ("merge", "merged")
    assert "no deletion vector" in report.why
    # Not by PyIceberg, which reads no such deletes.
    rows = mirrored.lake.query(f"SELECT id, name FROM {mirrored.mirror}").to_pylist()
    assert {row["id"]: row["name"] for row in rows} == {1: "new", 3: "back", 5: "ours"}
