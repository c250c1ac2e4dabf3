"""All rows of each snapshot are compared by Spark, before a copy is registered."""

import json
import uuid

from neve.lake.metadata_json import MetadataJson
from neve.lake.paths import local_path
from neve.move.verify import Version, verify
from neve.move.verify_reading import StoredVersion, check_pyiceberg, check_rows


class Files:
    """Files of this machine; a bit of those with a given ending is wrong."""

    def __init__(self, damaged=None):
        self.damaged = damaged

    def read(self, path):
        content = bytearray(local_path(path).read_bytes())
        if self.damaged and path.endswith(self.damaged):
            content[10] ^= 1
        return bytes(content)

    def sizes(self, paths):
        return {path: len(self.read(path)) for path in paths}

    def checksum(self, path):
        return self.read(path)


def test_rows_of_every_snapshot_are_compared(embedded_lake, tmp_path):
    lake, name = embedded_lake, f"t_{uuid.uuid4().hex[:8]}"
    lake.sql(f"CREATE NAMESPACE {name}")
    lake.sql(
        f"CREATE TABLE {name}.t (id INT, tags MAP<STRING, INT>, at TIMESTAMP, v VARIANT) "
        "TBLPROPERTIES ('format-version' = '3', 'write.delete.mode' = 'merge-on-read')"
    )
    lake.sql(
        f"INSERT INTO {name}.t SELECT id, map('a', id), timestamp_micros(id), "
        "parse_json('{\"a\": 1}') FROM range(10)"
    )
    lake.sql(f"DELETE FROM {name}.t WHERE id = 3")
    location = lake.catalog().metadata_location((name, "t"))
    path = location.removeprefix("file:")
    with open(path) as file:  # noqa: PTH123 - the path has one slash or three
        source = MetadataJson(location, json.load(file))

    # Of the same length, so that nothing but its content is wrong.
    whole, damaged = Files(), Files(damaged=".puffin")
    assert not verify(Version(source, whole), Version(source, whole), lambda path: path).defects
    (defect,) = verify(Version(source, whole), Version(source, damaged), lambda path: path).defects
    assert "its deletion vectors are not those of" in defect.reason

    # With the first snapshot's rows in the second: the deletion vector is left out.
    first, second = sorted(source.snapshots.values(), key=lambda each: each["sequence-number"])
    document = json.loads(json.dumps(dict(source.document)))
    for snapshot in document["snapshots"]:
        if snapshot["snapshot-id"] == second["snapshot-id"]:
            snapshot["manifest-list"] = first["manifest-list"]
    (tmp_path / "bad.metadata.json").write_text(json.dumps(document))
    bad = MetadataJson((tmp_path / "bad.metadata.json").as_uri(), document)

    before = StoredVersion(source, lake.profile)
    # The first snapshot is equal.
    (defect,) = check_rows(lake, before, StoredVersion(bad, lake.profile)).defects
    assert f"snapshot {second['snapshot-id']}" in defect.reason
    assert "10 rows, at the source 9" in defect.reason
    # PyIceberg reads no variants, and none of the source either.
    assert "variant" in check_pyiceberg(before, before).notes[0]
