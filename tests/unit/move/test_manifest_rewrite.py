"""Manifests name the target's files; of deletes they say what was measured."""

import pytest

from neve.errors import CorruptionError, UnsupportedError
from neve.lake.avro_files import read_header
from neve.move.files import WrittenFile
from neve.move.inventory import list_files
from neve.move.manifest_rewrite import TargetDeletes, rewrite_manifest
from neve.move.paths import PathMap, Prefix
from neve.move.position_deletes import PATH_FIELD, RewrittenDeletes
from neve.move.rewriter import Rewriter
from tests.support.manifest_files import entry, manifest, manifest_list, records

PATHS = PathMap([Prefix("s3://old/orders", "s3://new/a/b")])


def bounds(path, other=b"2"):
    return [{"key": PATH_FIELD, "value": path.encode()}, {"key": 1, "value": other}]


def test_all_fields_and_the_header_are_kept():
    source = manifest(entry("s3a://old/orders/d%2F1"), entry("s3://gone/x", status=2))
    edited = rewrite_manifest(source, "m", PATHS, {})
    expected = records(source)
    expected[0]["data_file"]["file_path"] = "s3://new/a/b/d%2F1"
    assert records(edited) == expected
    assert read_header(edited, "m").metadata == read_header(source, "m").metadata


def test_a_live_file_elsewhere_is_refused():
    # `orders` is the beginning of `orders_2`, and no directory of it.
    with pytest.raises(UnsupportedError, match="orders_2"):
        rewrite_manifest(manifest(entry("s3://old/orders_2/d")), "m", PATHS, {})


def test_deletes():
    source = manifest(
        entry(
            "s3://old/orders/p",
            content=1,
            column_sizes=[{"key": 1, "value": 2}],
            split_offsets=[4],
            lower_bounds=bounds("s3://old/orders/1"),
            upper_bounds=bounds("s3://old/orders/2"),
        ),
        entry(
            "s3://old/orders/v",
            content=1,
            file_format="PUFFIN",
            content_offset=4,
            referenced_data_file="s3://old/orders/1",
        ),
        entry("s3://old/orders/e", content=2),
        # It may not exist any more, so it was not rewritten.
        entry(
            "s3://old/orders/expired",
            status=2,
            content=1,
            lower_bounds=bounds("s3://old/orders/1"),
            upper_bounds=bounds("s3://old/orders/1"),
        ),
        content="deletes",
    )
    rewritten = RewrittenDeletes(b"", "s3://new/x", "s3://new/y", {PATH_FIELD: 3}, [9])
    deletes = {
        "s3://old/orders/p": TargetDeletes(WrittenFile("s3://new/a/b/p2", 77), rewritten),
        "s3://old/orders/v": TargetDeletes(WrittenFile("s3://new/a/b/v2", 88)),
    }
    edited = [each["data_file"] for each in records(rewrite_manifest(source, "m", PATHS, deletes))]
    expected = [each["data_file"] for each in records(source)]
    expected[0] |= {
        "file_path": "s3://new/a/b/p2",
        "file_size_in_bytes": 77,
        "column_sizes": [{"key": PATH_FIELD, "value": 3}],
        "split_offsets": [9],
        "lower_bounds": bounds("s3://new/x"),
        "upper_bounds": bounds("s3://new/y"),
    }
    expected[1] |= {
        "file_path": "s3://new/a/b/v2",
        "file_size_in_bytes": 88,
        "referenced_data_file": "s3://new/a/b/1",
    }
    expected[2] |= {"file_path": "s3://new/a/b/e"}
    expected[3] |= {
        "file_path": "s3://new/a/b/expired",
        "lower_bounds": bounds("s3://new/a/b/1"),
        "upper_bounds": bounds("s3://new/a/b/1"),
    }
    assert edited == expected
    with pytest.raises(CorruptionError, match="orders/p, which was not rewritten"):
        rewrite_manifest(source, "m", PATHS, {})


class Files(dict):
    """Files in memory; what is there is never overwritten."""

    def write(self, path, content):
        assert self.setdefault(path, content) == content


def rewritten(files, document, **options):
    inventory = list_files(document, files.__getitem__)
    rewriter = Rewriter(files.__getitem__, files.write, PATHS, "s3://new/a/b/", **options)
    return rewriter.rewrite(document, inventory)


def test_a_snapshot_of_version_1_names_its_manifests():
    files = Files(
        {f"s3://old/orders/m{n}": manifest(entry(f"s3://old/orders/{n}")) for n in (1, 2)}
    )
    document = {
        "format-version": 1,
        "location": "s3://old/orders",
        "snapshots": [
            {"snapshot-id": 1, "manifests": ["s3://old/orders/m1"]},
            {"snapshot-id": 2, "manifests": ["s3://old/orders/m1", "s3://old/orders/m2"]},
        ],
    }
    table = rewritten(files, document)
    first, second = (each["manifests"] for each in table.document["snapshots"])
    assert first == second[:1]
    assert [records(files[path])[0]["data_file"]["file_path"] for path in second] == [
        "s3://new/a/b/1",
        "s3://new/a/b/2",
    ]
    assert "metadata-log" not in table.document


def test_an_interrupted_rewrite_goes_on_and_writes_the_same():
    files = Files(
        {
            "s3://old/orders/l": manifest_list(
                {"manifest_path": "s3://old/orders/m1"}, {"manifest_path": "s3://old/orders/m2"}
            ),
            "s3://old/orders/m1": manifest(entry("s3://old/orders/1")),
            "s3://old/orders/m2": manifest(entry("s3://old/orders/2")),
        }
    )
    document = {
        "format-version": 3,
        "location": "s3://old/orders",
        "properties": {
            "write.data.path": "s3://old/orders",
            "write.metadata.path": "s3://elsewhere",
        },
        "metadata-log": [{"metadata-file": "s3://old/orders/metadata/gone.json"}],
        "statistics": [{"statistics-path": "s3://old/orders/s", "snapshot-id": 1}],
        "next-row-id": 9,
        "snapshots": [{"snapshot-id": 1, "manifest-list": "s3://old/orders/l", "first-row-id": 0}],
    }
    files["s3://old/orders/s"] = b""
    done = {}
    table = rewritten(files, document, done=lambda kind, path, file: done.update({path: file}))
    assert table.document == {
        **document,
        "location": "s3://new/a/b",
        "properties": {"write.data.path": "s3://new/a/b"},
        "metadata-log": [],
        "statistics": [{"statistics-path": "s3://new/a/b/s", "snapshot-id": 1}],
        "snapshots": [
            {"snapshot-id": 1, "manifest-list": done["s3://old/orders/l"].path, "first-row-id": 0}
        ],
    }
    assert table.notes == (
        "the property write.metadata.path is left out: s3://elsewhere is not moved",
    )
    lines = records(files[done["s3://old/orders/l"].path])
    assert [(line["manifest_length"], line["first_row_id"]) for line in lines] == [
        (len(files[line["manifest_path"]]), 7) for line in lines
    ]
    known = {path: done[path] for path in ("s3://old/orders/m1",)}
    count = len(files)
    again = rewritten(files, document, known=known)
    assert (again.metadata, again.rewrite_count, len(files)) == (table.metadata, 2, count)
