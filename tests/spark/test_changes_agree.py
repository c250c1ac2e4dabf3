"""Changes as others see them: Iceberg's own changelog view, and a consumer that applies them."""

from __future__ import annotations

from neve.versions.changes import read_changes
from tests.support.merging import Mirrored, event
from tests.support.version_oracle import VersionOracle, differences, read_rows
from tests.support.versioned import Versioned

DELETED = ("delete", "update_preimage")


def test_icebergs_changelog_view_agrees(embedded_lake):
    """Where it can: no delete files in the range."""
    table = Versioned(
        embedded_lake, "id INT, part STRING, d DOUBLE", clauses="PARTITIONED BY (part)"
    )
    table.sql("INSERT INTO {t} VALUES (1, 'a', 0.5), (2, 'a', double('NaN')), (3, 'b', NULL)")
    start = table.sql("INSERT INTO {t} VALUES (4, 'b', -0.0D), (5, NULL, 1.5), (6, NULL, 1.5)")
    table.sql("UPDATE {t} SET d = 2.5 WHERE id IN (1, 4, 5)")
    table.sql("DELETE FROM {t} WHERE part = 'b' AND id = 3")
    table.sql("ALTER TABLE {t} ADD COLUMN word STRING")
    table.sql(
        "MERGE INTO {t} AS o USING (SELECT * FROM VALUES (1, 'x'), (2, 'y'), (7, 'z') "
        "AS v (id, w)) AS n ON o.id = n.id WHEN MATCHED AND n.id = 1 THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET word = n.w "
        "WHEN NOT MATCHED THEN INSERT (id, word) VALUES (n.id, n.w)"
    )
    table.sql("ALTER TABLE {t} DROP PARTITION FIELD part")
    table.lake.sql(f"CALL system.rewrite_data_files('{table.name}')")
    table.sql("INSERT OVERWRITE {t} SELECT id, part, d, upper(word) FROM {t} WHERE id > 2")
    for arguments, ours in (
        ("", {}),
        (", compute_updates => true, identifier_columns => array('id')", {"keys": ["id"]}),
        (", net_changes => true", {"mode": "net"}),
    ):
        view = f"view_of_{table.ref.identifier[0]}"
        table.lake.sql(
            f"CALL system.create_changelog_view(table => '{table.name}', "
            f"changelog_view => '{view}', options => map('start-snapshot-id', '{start}')"
            f"{arguments})"
        )
        theirs = table.lake.query(
            "SELECT * EXCEPT (_change_type), replace(replace(lower(_change_type), 'before', "
            f"'preimage'), 'after', 'postimage') AS _change_type FROM {view}"
        )
        answer = read_changes(table.lake, table.ref, start, **ours).toArrow()
        answer = answer.drop_columns("_commit_timestamp")
        if ours.get("mode") == "net":
            # Theirs has the last commit that wrote a row, also as it was.
            answer, theirs = (one.drop_columns("_commit_snapshot_id") for one in (answer, theirs))
        theirs = theirs.select(answer.column_names)
        assert not list(differences(*(read_rows(one.to_pylist()) for one in (answer, theirs))))
        assert answer.num_rows > 5


def test_a_consumer_rebuilds_a_mirror_from_its_changes(embedded_lake):
    """Every version of it, by key, from nothing: inserts, updates, deletes, late events."""
    mirrored = Mirrored(embedded_lake)
    waves = (
        [event("I", 1, key, "first", key) for key in range(8)],
        [event("U", 2, 1, "second"), event("D", 2, 2), event("I", 2, 9, "new"), event("U", 1, 3)],
        [event("T", 3, None), event("I", 4, 2, "back"), event("U", 4, 1), event("D", 4, 9)],
    )
    for number, wave in enumerate(waves):
        mirrored.append(*wave)
        mirrored.merge()
        if number == 1:
            mirrored.compact(mirrored.mirror)
    ref = embedded_lake.ref(mirrored.mirror)
    oracle = VersionOracle(embedded_lake.load(ref))
    answer = read_changes(embedded_lake, ref).toArrow().to_pylist()
    assert {"insert", "delete", "update_preimage", "update_postimage"} == {
        row["_change_type"] for row in answer
    }
    rows = {}
    for snapshot_id in reversed(oracle.line(oracle.metadata.current_snapshot_id)):
        commit = [row for row in answer if row["_commit_snapshot_id"] == snapshot_id]
        for row in sorted(commit, key=lambda row: row["_change_type"] not in DELETED):
            apply_change(rows, dict(row))
        assert read_rows(list(rows.values())) == oracle.version(snapshot_id)
    assert rows == {key[0]: row for key, row in mirrored.wanted().items()}


def apply_change(rows, row):
    """Follow one change: what it deletes must be there, and what it inserts must not."""
    kind = row.pop("_change_type")
    del row["_commit_snapshot_id"], row["_commit_timestamp"]
    if kind in DELETED:
        assert rows.pop(row["id"]) == row
    else:
        assert row["id"] not in rows
        rows[row["id"]] = row
