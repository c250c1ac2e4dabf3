"""Tables that Spark made are whole at their new home: Spark reads them with the old one deleted."""

import uuid

import pytest
from pyiceberg.table import StaticTable

from neve.move.files import FileKind
from tests.support.moving import check_lengths, load, local_path, move_directory
from tests.support.versioned import delete_by_equality

MERGE_ON_READ = "'write.delete.mode' = 'merge-on-read', 'write.delete.granularity' = 'partition'"


class Source:
    """A table of its own directory, in a namespace of its own."""

    def __init__(self, lake, directory, properties):
        self.lake = lake
        self.name = f"move_{uuid.uuid4().hex[:8]}.orders"
        self.target = f"{self.name}_moved"
        self.location = f"file:{directory}/orders"
        lake.sql(f"CREATE NAMESPACE {self.name.split('.')[0]}")
        lake.sql(
            f"CREATE TABLE {self.name} (id BIGINT, day STRING) USING iceberg "
            f"PARTITIONED BY (day) LOCATION '{self.location}' "
            f"TBLPROPERTIES ({MERGE_ON_READ}, {properties})"
        )

    def run(self, *statements):
        for statement in statements:
            self.lake.sql(statement.format(t=self.name, target=self.target))

    def insert(self, first):
        days = "IF(id % 2 = 0, 'a b', 'c%2Fd')"
        self.run(
            f"INSERT INTO {{t}} SELECT /*+ COALESCE(1) */ id, {days} "
            f"FROM RANGE({first}, {first + 10})"
        )

    @property
    def ref(self):
        return self.lake.ref(self.name)

    def version(self):
        return self.lake.load(self.ref).metadata.current_snapshot_id

    @property
    def metadata(self):
        return self.lake.load(self.ref).metadata_location

    def read(self, name, document):
        """Return the ids of each snapshot."""
        queries = [
            f"SELECT {each['snapshot-id']} AS s, id FROM {name} VERSION AS OF {each['snapshot-id']}"
            for each in document["snapshots"]
        ]
        rows = self.lake.spark.sql(" UNION ALL ".join(queries)).collect()
        return sorted((row["s"], row["id"]) for row in rows)

    def move(self, directory):
        moved = move_directory(self.metadata, self.location, f"file:{directory}/new home/o")
        self.run(f"CALL system.register_table('{self.target}', '{moved.table.metadata.path}')")
        return moved


@pytest.fixture
def make(embedded_lake, tmp_path):
    return lambda properties: Source(embedded_lake, tmp_path, properties)


def test_deletes_statistics_refs_and_evolution_after_expiry(make, tmp_path):
    source = make("'format-version' = '1'")
    source.insert(0)
    source.run("ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '2')")
    source.insert(10)
    source.run(
        "DELETE FROM {t} WHERE id IN (3, 5, 13)",
        "ALTER TABLE {t} CREATE TAG first",
        "ALTER TABLE {t} ADD COLUMN more STRING",
    )
    keys = local_path(source.location) / "data" / "keys.parquet"
    delete_by_equality(source, keys, 8, partition="day=a b")
    source.run(
        "ALTER TABLE {t} REPLACE PARTITION FIELD day WITH bucket(2, id)",
        "INSERT INTO {t} VALUES (90, 'x', 'y')",
        "CALL system.rewrite_manifests('{t}')",
        "CALL system.compute_table_stats('{t}')",
        "CALL system.compute_partition_stats('{t}')",
        "CALL system.expire_snapshots(table => '{t}', older_than => now(), retain_last => 2)",
    )
    before = source.read(source.name, load(source.metadata))
    moved = source.move(tmp_path)

    check_lengths(moved)
    counts = {kind: moved.target.count(kind) for kind in FileKind}
    assert counts == {kind: moved.source.count(kind) for kind in FileKind}
    assert counts[FileKind.POSITION_DELETES]
    assert counts[FileKind.EQUALITY_DELETES] == 1
    assert counts[FileKind.STATISTICS] == counts[FileKind.PARTITION_STATISTICS] == 1
    assert source.read(source.target, moved.table.document) == before
    pyiceberg = StaticTable.from_metadata(moved.table.metadata.path)
    # Before there were equality deletes, which PyIceberg cannot read.
    first = pyiceberg.metadata.refs["first"].snapshot_id
    assert sorted(pyiceberg.scan(snapshot_id=first).to_arrow()["id"].to_pylist()) == [
        number for snapshot, number in before if snapshot == first
    ]
    source.run("INSERT INTO {target} VALUES (91, 'x', 'y')", "DELETE FROM {target} WHERE id = 4")
    assert source.lake.sql(f"SELECT id FROM {source.target} WHERE id IN (3, 4, 91)").count() == 1


@pytest.mark.parametrize(
    ("properties", "kind"),
    [
        (
            "'format-version' = '2', 'write.delete.format.default' = 'orc'",
            FileKind.POSITION_DELETES,
        ),
        (
            "'format-version' = '2', 'write.delete.format.default' = 'avro'",
            FileKind.POSITION_DELETES,
        ),
        ("'format-version' = '3'", FileKind.DELETION_VECTORS),
    ],
)
def test_each_version_and_format_of_deletes(make, tmp_path, properties, kind):
    source = make(properties)
    source.insert(0)
    source.insert(10)
    source.run("DELETE FROM {t} WHERE id IN (3, 5, 13, 14)")
    before = source.read(source.name, load(source.metadata))
    moved = source.move(tmp_path)
    check_lengths(moved)
    assert moved.target.count(kind)
    assert source.read(source.target, moved.table.document) == before
