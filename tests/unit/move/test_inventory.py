"""What a table has: live files of reachable manifests, each once; and what cannot be moved."""

import pytest

from neve.errors import NotFoundError, StorageError
from neve.move.files import FileKind
from neve.move.inventory import list_files
from tests.support.manifest_files import entry, manifest, manifest_list


def document(*lists, **more):
    snapshots = [
        {"snapshot-id": number, "manifest-list": path} for number, path in enumerate(lists)
    ]
    return {"format-version": 2, "snapshots": snapshots, **more}


def reader(files):
    def read(path):
        if path not in files:
            raise NotFoundError(f"{path} does not exist")
        return files[path]

    return read


def test_live_files_are_listed_once_whoever_added_them():
    files = {
        # Added by snapshot 1, which no list is of; the same file in two spellings.
        "l1": manifest_list({"manifest_path": "s3://b/m1"}, {"manifest_path": "s3://b/m2"}),
        "l2": manifest_list({"manifest_path": "s3a://b/m1"}, {"manifest_path": "s3://b/m3"}),
        "s3://b/m1": manifest(entry("s3://b/d1", status=0), entry("s3://b/gone", status=2)),
        "s3://b/m2": manifest(entry("s3a://b/d1"), entry("s3://b/d2", file_size_in_bytes=7)),
        "s3://b/m3": manifest(
            entry("s3://b/p", content=1),
            entry("s3://b/v", content=1, file_format="puffin", content_offset=4),
            entry("s3://b/v", content=1, file_format="puffin", content_offset=50),
            entry("s3://b/e", content=2),
            content="deletes",
        ),
    }
    statistics = {"statistics-path": "s3://b/s", "file-size-in-bytes": 3}
    inventory = list_files(
        document(
            "l1",
            "l2",
            statistics=[statistics],
            **{"partition-statistics": [statistics | {"statistics-path": "s3://b/ps"}]},
        ),
        reader(files),
    )
    assert inventory.problems == ()
    assert inventory.snapshots == 2
    by_kind = {
        kind: sorted(each.path for each in inventory.files if each.kind == kind)
        for kind in FileKind
    }
    assert by_kind == {
        FileKind.DATA: ["s3://b/d1", "s3://b/d2"],
        FileKind.POSITION_DELETES: ["s3://b/p"],
        FileKind.DELETION_VECTORS: ["s3://b/v"],
        FileKind.EQUALITY_DELETES: ["s3://b/e"],
        FileKind.STATISTICS: ["s3://b/s"],
        FileKind.PARTITION_STATISTICS: ["s3://b/ps"],
        FileKind.MANIFEST: ["s3://b/m1", "s3://b/m2", "s3://b/m3"],
        FileKind.MANIFEST_LIST: ["l1", "l2"],
    }
    assert {each.size for each in inventory.files if each.path == "s3://b/d2"} == {7}
    # Every live entry: d1 twice.
    assert (inventory.tally.data_files, inventory.tally.delete_files) == (3, 4)
    assert inventory.deletes == {"s3://b/m3": ("s3://b/p", "s3://b/v", "s3://b/v")}


@pytest.mark.parametrize(
    ("files", "more", "problem"),
    [
        ({}, {"format-version": 4}, "format version 4"),
        ({}, {"properties": {"encryption.key-id": "k"}}, "encrypted"),
        ({}, {"encryption-keys": [{}]}, "encrypted"),
        ({}, {}, "l1: it cannot be read"),
        ({"l1": b"no Avro"}, {}, "l1: it cannot be read"),
        ({"l1": manifest_list({"manifest_path": "m"})}, {}, "m: it cannot be read"),
        (
            {"l1": manifest_list({"manifest_path": "m", "key_metadata": b"k"}), "m": manifest()},
            {},
            "m: it is encrypted",
        ),
        (
            {
                "l1": manifest_list({"manifest_path": "m"}),
                "m": manifest(entry("d", key_metadata=b"k")),
            },
            {},
            "d: it is encrypted",
        ),
        (
            {
                "l1": manifest_list({"manifest_path": "m"}),
                "m": manifest(entry("d", content=1, file_format="VORTEX")),
            },
            {},
            "d: position deletes in VORTEX",
        ),
    ],
)
def test_what_cannot_be_moved_is_a_problem(files, more, problem):
    inventory = list_files(document("l1", **more), reader(files))
    assert [str(each) for each in inventory.problems if problem in str(each)]


def test_a_store_that_does_not_answer_is_no_problem_of_the_table():
    def read(path):
        raise StorageError("no answer", retryable=True)

    with pytest.raises(StorageError):
        list_files(document("l1"), read)
