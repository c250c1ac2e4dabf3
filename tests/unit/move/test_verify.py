"""A copy that is not whole is noticed, and the file that is wrong is named."""

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import fastavro
import pyarrow as pa
import pytest

import neve
from neve.errors import CorruptionError, NotFoundError
from neve.lake.metadata_json import MetadataJson, decode_document
from neve.lake.metadata_reader import as_json
from neve.lake.profile import profile_named
from neve.move.files import Tally
from neve.move.inventory import list_files
from neve.move.verify import Version, verify
from neve.move.verify_reading import ReadingCheck, StoredVersion, check_pyiceberg
from tests.support.lakes import sqlite_settings


class Directory:
    """A store: two of them have equal paths, as two S3 servers with equal buckets."""

    def __init__(self, source_root, root):
        self.source_root = source_root
        self.root = root

    def local(self, path):
        return Path(urlsplit(path).path.replace(str(self.source_root), str(self.root)))

    def read(self, path):
        try:
            return self.local(path).read_bytes()
        except FileNotFoundError as error:
            raise NotFoundError(f"{path} does not exist") from error

    def sizes(self, paths):
        files = {path: self.local(path) for path in paths}
        return {
            path: file.stat().st_size if file.exists() else None for path, file in files.items()
        }

    def checksum(self, path):
        return hashlib.md5(self.read(path)).hexdigest()


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A table of three snapshots, with statistics that are a file somewhere."""
    root = tmp_path_factory.mktemp("source")
    with neve.open(sqlite_settings(root)) as lake:
        catalog = lake.catalog()
        catalog.create_namespace("shop")
        rows = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})
        table = catalog.create_table("shop.orders", rows.schema)
        for _ in range(3):
            table.append(rows)
        return root, as_json(catalog.load_table("shop.orders"))


def test_a_copy_that_pyiceberg_does_not_read_is_told(source, tmp_path):
    root, metadata = source
    profile = profile_named(sqlite_settings(root), "lake")
    document = json.loads(json.dumps(dict(metadata.document)))
    for snapshot in document["snapshots"]:
        snapshot["manifest-list"] += ".missing"
    (tmp_path / "bad.metadata.json").write_text(json.dumps(document))
    bad = MetadataJson((tmp_path / "bad.metadata.json").as_uri(), document)
    before = StoredVersion(metadata, profile)
    assert check_pyiceberg(before, before) == ReadingCheck()
    check = check_pyiceberg(before, StoredVersion(bad, profile))
    with pytest.raises(CorruptionError, match=r"bad\.metadata\.json: PyIceberg"):
        check.require_readable("shop.orders")


@pytest.fixture
def copy(source, tmp_path):
    """Copy the table's files, and return what compares them now."""
    root, metadata = source
    shutil.copytree(root, tmp_path / "copy")
    return Copy(Directory(root, root), Directory(root, tmp_path / "copy"), metadata)


class Copy:
    def __init__(self, source_store, store, metadata):
        self.source_store = source_store
        self.store = store
        self.metadata = metadata
        self.target = metadata

    def verify(self, **options):
        return verify(
            Version(self.metadata, self.source_store),
            Version(self.target, self.store),
            lambda path: path,
            **options,
        )

    def only_defect(self, **options):
        (defect,) = self.verify(**options).defects
        return defect

    def file(self, kind):
        """Return the path of one of the files: data, a manifest, or a manifest list."""
        newest = self.metadata.snapshots[self.metadata.current_snapshot_id]["manifest-list"]
        if kind == "manifest list":
            return newest
        manifest = _records(self.store.read(newest))[0]["manifest_path"]
        if kind == "manifest":
            return manifest
        return _records(self.store.read(manifest))[0]["data_file"]["file_path"]

    def edit(self, path, change):
        """Write an Avro file with other records, and its old length in the list, if it fits."""
        file = self.store.local(path)
        with file.open("rb") as stream:
            reader = fastavro.reader(stream)
            schema, metadata, records = reader.writer_schema, reader.metadata, list(reader)
        change(records)
        own = {key: value for key, value in metadata.items() if not key.startswith("avro.")}
        with file.open("wb") as stream:
            fastavro.writer(stream, schema, records, metadata["avro.codec"], metadata=own)


def _records(content):
    return list(fastavro.reader(pa.BufferReader(content)))


def test_a_whole_copy_has_no_defect(copy):
    verified = copy.verify(every_field=True)
    assert verified.defects == ()
    # Three snapshots: metadata and its log, three lists, three manifests, three data files.
    assert (verified.snapshots, verified.manifests, verified.sampled) == (3, 3, 3)
    assert verified.files == 1 + 3 + 3 + 3 + 3
    assert verified.tally == Tally(data_files=3, rows=9)
    verified.require_whole("shop.orders", verified.tally)


def test_a_copy_of_other_numbers_than_the_plan_is_not_whole(copy):
    verified = copy.verify()
    numbers = "the plan has 8 rows in 3 data files .*, and the copy 9 rows in 3 data files"
    with pytest.raises(CorruptionError, match=numbers):
        verified.require_whole("shop.orders", replace(verified.tally, rows=8))


def test_a_manifest_whose_path_is_spelled_in_two_ways_counts_once(copy):
    lists = {each["manifest-list"] for each in copy.metadata.snapshots.values()}
    other = copy.file("manifest list")
    manifests = _records(copy.store.read(other))
    document = json.loads(json.dumps(dict(copy.metadata.document)))
    assert len(lists) == len(manifests)
    document["snapshots"][0].pop("manifest-list")
    document["snapshots"][0]["manifests"] = [
        manifests[0]["manifest_path"].replace("file://", "file:")
    ]
    spelled = Version(MetadataJson(copy.metadata.metadata_location, document), copy.store)
    tally = list_files(document, copy.store.read).tally
    assert verify(spelled, spelled, lambda path: path).tally == tally == copy.verify().tally


@pytest.mark.parametrize("kind", ["data", "manifest", "manifest list"])
def test_a_missing_file_is_named(copy, kind):
    path = copy.file(kind)
    copy.store.local(path).unlink()
    verified = copy.verify()
    assert {defect.path for defect in verified.defects} >= {path}
    assert "does not exist" in str(verified.defects[0])
    with pytest.raises(CorruptionError, match="nothing was registered"):
        verified.require_whole("shop.orders", verified.tally)


def test_a_length_that_is_not_the_recorded_one_is_named(copy):
    path = copy.file("data")
    with copy.store.local(path).open("ab") as file:
        file.write(b"!")
    defect = copy.only_defect()
    assert defect.path == path
    assert "and the metadata says" in defect.reason


def test_other_bytes_of_the_same_length_are_named(copy):
    path = copy.file("data")
    file = copy.store.local(path)
    file.write_bytes(file.read_bytes()[:-1] + b"!")
    assert copy.only_defect().path == path
    assert "bytes" in copy.only_defect().reason


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda entries: entries.clear(), "fewer entries"),
        (lambda entries: entries[0].update(status=2), "status"),
        (lambda entries: entries[0]["data_file"].update(record_count=1), "record_count"),
        (lambda entries: entries[0]["data_file"].update(file_path="file:///x"), "is not where"),
    ],
)
def test_a_manifest_with_other_entries_is_named(copy, change, reason):
    path = copy.file("manifest")
    copy.edit(path, change)
    defects = [defect for defect in copy.verify().defects if defect.path == path]
    assert any(reason in defect.reason for defect in defects)


def test_statistics_are_compared_if_every_field_is(copy):
    path = copy.file("manifest")
    copy.edit(path, lambda entries: entries[0]["data_file"].update(split_offsets=[5]))
    # The length in the manifest list is another thing.
    reasons = [defect.reason for defect in copy.verify(every_field=True).defects]
    assert any("split_offsets" in reason for reason in reasons)


def test_a_manifest_list_that_lacks_a_manifest_is_named(copy):
    path = copy.file("manifest list")
    copy.edit(path, lambda lines: lines.pop())
    assert copy.only_defect().path == path


def test_metadata_that_is_not_the_sources_is_told(copy):
    document = decode_document(json.dumps(dict(copy.metadata.document)).encode())
    document["snapshots"].pop(0)
    document["refs"]["main"]["snapshot-id"] = document["snapshots"][0]["snapshot-id"]
    copy.target = MetadataJson(copy.metadata.metadata_location, document)
    reasons = " ".join(defect.reason for defect in copy.verify().defects)
    assert "the target has no snapshot" in reasons
    assert "refs is not the source's" in reasons


def test_paths_that_still_name_the_source_are_told(copy):
    moved = {**copy.metadata.document, "location": copy.metadata.location + "_2"}
    copy.target = MetadataJson(copy.metadata.metadata_location, moved)
    verified = copy.verify()
    assert len(verified.defects) == verified.files
    assert "is not below" in verified.defects[0].reason
