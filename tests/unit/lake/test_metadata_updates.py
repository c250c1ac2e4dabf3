"""Updates change a metadata document as PyIceberg changes its model of it."""

import json

import pyarrow as pa
from pyiceberg.table import CommitTableRequest
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.update import update_table_metadata

import neve
from neve.lake import metadata_updates as updates
from neve.lake.metadata_json import MetadataJson
from tests.support.lakes import sqlite_settings


def test_a_commit_gives_the_document_that_pyiceberg_gives(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        lake.catalog().create_namespace("ns")
        rows = pa.table({"id": [1]})
        table = lake.catalog().create_table("ns.t", rows.schema, properties={"a": "1", "b": "2"})
        for _ in range(3):
            table.append(rows)
        base = lake.reader().read(("ns", "t"))
    first, second, current = base.snapshots
    added = {
        **base.snapshots[current],
        "snapshot-id": 7,
        "parent-snapshot-id": current,
        "sequence-number": 4,
        "timestamp-ms": base.last_updated_ms + 5,
    }
    changes = [
        updates.add_snapshot(added),
        updates.set_branch(base, "main", 7),
        updates.set_tag("kept", second, 1000),
        updates.set_properties({"a": "3", "c": "4"}),
        updates.remove_properties(["b"]),
    ]
    document = updates.apply_updates(base, changes)
    parsed = CommitTableRequest.model_validate(
        {
            "identifier": {"namespace": ["ns"], "name": "t"},
            "requirements": [],
            "updates": changes,
        }
    )
    expected = update_table_metadata(
        TableMetadataUtil.parse_obj(json.loads(json.dumps(base.document))), parsed.updates
    )
    theirs = TableMetadataUtil.parse_obj(json.loads(json.dumps(document)))
    # PyIceberg takes the time of the commit for both.
    same = {"last_updated_ms": 0, "snapshot_log": []}
    assert theirs.model_copy(update=same) == expected.model_copy(update=same)
    assert [each.snapshot_id for each in theirs.snapshot_log] == [first, second, current, 7]

    fewer = updates.apply_updates(
        MetadataJson("", document), [updates.remove_snapshots([first]), updates.remove_ref("kept")]
    )
    assert set(MetadataJson("", fewer).snapshots) == {second, current, 7}
    assert [each["snapshot-id"] for each in fewer["snapshot-log"]] == [second, current, 7]
    assert MetadataJson("", fewer).refs == {"main": 7}
    # A gap in the log would answer for a time with another version: what is before it goes, too.
    gap = updates.apply_updates(MetadataJson("", document), [updates.remove_snapshots([current])])
    assert [each["snapshot-id"] for each in gap["snapshot-log"]] == [7]


def test_row_ids_are_given_out_once_and_statistics_replaced():
    snapshots = [
        {"snapshot-id": number, "sequence-number": number, "timestamp-ms": number, **ids}
        for number, ids in (
            (1, {"first-row-id": 0, "added-rows": 5}),
            (2, {"first-row-id": 5, "added-rows": 0}),
            (3, {"first-row-id": 5, "added-rows": 2}),
        )
    ]
    base = MetadataJson(
        "s3://b/00001-a.metadata.json",
        {"format-version": 3, "last-updated-ms": 0, "next-row-id": 0, "table-uuid": "u"},
    )
    changes = [
        *map(updates.add_snapshot, snapshots),
        updates.set_statistics_file(2, "s3://b/old.puffin", 4, 2),
        updates.set_statistics_file(2, "s3://b/new.puffin", 4, 2),
    ]
    document = updates.apply_updates(base, changes)
    assert document["next-row-id"] == 7
    assert [file["statistics-path"] for file in document["statistics"]] == ["s3://b/new.puffin"]
