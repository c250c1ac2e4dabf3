"""Changelogs as other tools make them: of format version 3, with VARIANT, made again."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from neve.errors import CatalogError, NeveError
from neve.merge.mirror import SOURCE
from neve.merge.strategy import Strategy
from tests.support.merging import Mirrored, event
from tests.support.power_cut import power_cut


def spark_append(mirrored, *rows):
    """Append through Spark: PyIceberg writes no table of format version 3."""
    frame = mirrored.lake.spark.createDataFrame(
        pa.Table.from_pylist(list(rows), mirrored.schema)
    ).coalesce(1)
    frame.writeTo(mirrored.changelog).append()
    mirrored.rows += rows


def test_a_changelog_of_format_version_3_is_merged_in_every_mode(embedded_lake):
    mirrored = Mirrored(embedded_lake, batch_size=3)
    embedded_lake.sql(f"ALTER TABLE {mirrored.changelog} SET TBLPROPERTIES ('format-version'='3')")
    # A first load; a snapshot that fits a commit, and one that does not; all files of a snapshot,
    # cut into slices.
    spark_append(mirrored, *(event("I", n, n % 3, f"v{n}") for n in range(4)))
    assert mirrored.merge().batches == 1
    mirrored.check()
    spark_append(mirrored, event("U", 10, 1, "u"), event("D", 11, 2))
    spark_append(mirrored, *(event("U", 20 + n, n, f"w{n}") for n in range(5)))
    assert mirrored.merge().batches == 3
    mirrored.check()
    mirrored.merger().rebuild()
    spark_append(mirrored, event("U", 30, 1, "x"))
    mirrored.expire(mirrored.changelog)
    assert mirrored.merge().batches == 4
    mirrored.check()


def tables_of(mirrored):
    return {name for _, name in mirrored.lake.catalog().list_tables(mirrored.namespace)}


def test_a_first_batch_that_cannot_be_read_leaves_no_table(embedded_lake):
    mirrored = Mirrored(embedded_lake)
    mirrored.append(event("I", 1, 1, "a"))
    mirrored.append(event("I", 2, 2, "b"))
    paths = mirrored.table("changes").inspect.files()["file_path"].to_pylist()
    file = Path(paths[-1].removeprefix("file://"))
    kept = file.rename(file.with_suffix(".kept"))
    with pytest.raises(NeveError):
        mirrored.merge()
    assert tables_of(mirrored) == {"changes"}
    kept.rename(file)
    mirrored.merge()
    mirrored.check()


def test_an_empty_changelog_makes_an_empty_mirror(embedded_lake):
    mirrored = Mirrored(embedded_lake)
    assert mirrored.merge().outcome == "idle"
    assert mirrored.found() == {}
    # Without rows they have no snapshot: PyIceberg cannot list the files of an empty one.
    for name in ("rows_rejected", "rows_tombstones"):
        assert mirrored.table(name).current_snapshot() is None
        assert mirrored.table(name).inspect.files().num_rows == 0
    mirrored.append(event("I", 1, 1, "a"), event("D", 2, 2), event("X", 3, 3))
    for point in ("merge.tombstones_written", "merge.rejected"):
        with power_cut(point):
            mirrored.merge(strategy=Strategy.SCAN)
    # What the dead merges wrote is undone, though the mirror names no snapshot to go back to.
    assert mirrored.merge(strategy=Strategy.SCAN).set_aside == 1
    mirrored.check()
    for name in ("rows_rejected", "rows_tombstones"):
        assert mirrored.table(name).scan().to_arrow().num_rows == 1
        assert mirrored.table(name).inspect.files().num_rows == 1


def recreate(mirrored, *columns):
    """Drop the changelog and create it again, with its columns in another order."""
    mirrored.lake.catalog().drop_table(mirrored.changelog)
    mirrored.schema = pa.schema([mirrored.schema.field(name) for name in columns])
    mirrored.lake.catalog().create_table(mirrored.changelog, mirrored.schema)
    mirrored.rows.clear()


def source_uuid(mirrored):
    return json.loads(mirrored.table().properties[SOURCE])["uuid"]


# What a cut leaves behind at the last of them is all that it leaves at those before.
@pytest.mark.parametrize(
    "points",
    [
        ("merge.prepared", "merge.applied"),
        pytest.param(("merge.tombstones_written", "merge.rejected"), marks=pytest.mark.soak),
    ],
)
def test_a_changelog_that_is_created_again_is_a_truncate_by_policy(embedded_lake, points):
    mirrored = Mirrored(embedded_lake, batch_size=3, strategy=Strategy.SCAN)
    mirrored.append(event("I", 90, 1, "old"), event("D", 95, 9), event("T", 50, None))
    mirrored.append(event("I", 91, 2, "old"), event("?", 92, 3, "set aside"))
    mirrored.merge()
    old = mirrored.found()
    # Its sequences begin anew, below the barrier and the tombstone; its field ids are others.
    recreate(mirrored, "lsn", "op", "amount", "name", "id")
    mirrored.append(*(event("I", n, key, "new") for n, key in enumerate((1, 9, 3, 4, 5))))
    with pytest.raises(CatalogError, match="is another table than the one") as refused:
        mirrored.merge()
    assert "on_recreated: truncate" in refused.value.hint
    mirrored.settings = mirrored.settings.model_copy(update={"on_recreated": "truncate"})
    for point in points:
        with power_cut(point):
            mirrored.merge()
        assert mirrored.found() == old
    old_uuid = source_uuid(mirrored)
    with power_cut("merge.published"):
        mirrored.merge()
    # The very commit that has the new rows says where they come from.
    assert old_uuid != source_uuid(mirrored) == str(mirrored.table("changes").metadata.table_uuid)
    assert mirrored.found().keys() == {(1,), (9,), (3,), (4,), (5,)}
    assert mirrored.merge().outcome == "idle"
    mirrored.check()
    # The columns' origins are the new changelog's: a rename is recognised.
    embedded_lake.sql(f"ALTER TABLE {mirrored.changelog} RENAME COLUMN name TO label")
    mirrored.lake.sql(f"INSERT INTO {mirrored.changelog} VALUES (9, 'I', 0, 'x', 7)")
    assert mirrored.merge().set_aside == 1
    (reason,) = mirrored.table("rows_rejected").scan().to_arrow()["reason"].to_pylist()
    assert "was renamed to label" in reason
    # One without a snapshot truncates, too.
    recreate(mirrored, "id", "name", "amount", "op", "lsn")
    assert mirrored.merge().batches == 1
    assert mirrored.found() == {}
    assert mirrored.merge().outcome == "idle"
    mirrored.append(event("I", 1, 1, "again"))
    mirrored.merge()
    mirrored.check()
    # After a rollback to rows of another changelog, they are replaced once more.
    mirrored.roll_back(mirrored.past()[-2])
    mirrored.merge()
    mirrored.check()


def test_a_changelog_that_pyiceberg_expired_costs_no_key(embedded_lake):
    """Its oldest snapshot has no parent any more, and is not the first for that."""
    mirrored = Mirrored(embedded_lake, strategy=Strategy.SCAN)
    mirrored.append(event("I", 1, 1, "a"), event("I", 2, 2, "b"))
    mirrored.merge()
    mirrored.table("changes").delete("id = 1")
    for refused in (mirrored.merger().merge, mirrored.merger().rebuild):
        with pytest.raises(CatalogError, match="is of the operation"):
            refused()
    mirrored.append(event("I", 3, 3, "c"))
    changelog = mirrored.table("changes")
    *past, main = (each.snapshot_id for each in changelog.snapshots())
    changelog.maintenance.expire_snapshots().by_ids(past).commit()
    (note,) = mirrored.merge().notes
    assert "is expired" in note
    assert mirrored.found().keys() == {(1,), (2,), (3,)}
    with pytest.raises(CatalogError, match="cannot be proven that") as told:
        mirrored.merger().rebuild()
    assert str(main) in told.value.message
    assert f"neve merge {mirrored.mirror} --rebuild --accept-loss" in told.value.hint
    assert mirrored.found().keys() == {(1,), (2,), (3,)}
    (note,) = mirrored.merger().rebuild(accept_loss=True).notes
    assert f"cannot be proven that {mirrored.changelog} holds all its events" in note
    assert mirrored.found().keys() == {(2,), (3,)}


def test_a_changelog_that_was_replaced_is_no_whole_one(embedded_lake):
    """It is the same table, and its first snapshot has no parent."""
    mirrored = Mirrored(embedded_lake, strategy=Strategy.SCAN)
    mirrored.append(event("I", 1, 1, "a"), event("I", 2, 2, "b"))
    mirrored.merge()
    kept = f"SELECT * FROM {mirrored.changelog} WHERE id = 2"
    for left in ((2,), ()):
        embedded_lake.sql(f"CREATE OR REPLACE TABLE {mirrored.changelog} USING iceberg AS {kept}")
        with pytest.raises(CatalogError, match="was rolled back behind"):
            mirrored.merge()
        with pytest.raises(CatalogError, match="it cannot be proven that"):
            mirrored.merger().rebuild()
        mirrored.merger().rebuild(accept_loss=True)
        assert mirrored.found().keys() == {(key,) for key in left}
        assert mirrored.merge().outcome == "idle"
        kept = kept.replace("id = 2", "false")
