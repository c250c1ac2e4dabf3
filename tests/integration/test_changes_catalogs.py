"""Changes on every catalog: planning reads the table's own storage, and files of this machine."""

from __future__ import annotations

from neve.versions.changes import read_changes


def test_changes_are_read_from_every_catalog(lake, namespace):
    name = f"{namespace}.t"
    lake.sql(
        f"CREATE TABLE {name} (id BIGINT, name STRING) USING iceberg TBLPROPERTIES "
        "('format-version' = '3', 'write.update.mode' = 'merge-on-read')"
    )
    lake.sql(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b')")
    lake.sql(f"UPDATE {name} SET name = 'c' WHERE id = 2")
    rows = read_changes(lake, lake.ref(name), keys=["id"]).collect()
    assert sorted(tuple(row)[:3] for row in rows) == [
        (1, "a", "insert"),
        (2, "b", "insert"),
        (2, "b", "update_preimage"),
        (2, "c", "update_postimage"),
    ]
