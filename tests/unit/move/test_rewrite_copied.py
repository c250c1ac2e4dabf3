"""`neve rewrite`: a table that was copied by other means, or a backup whose catalog is lost."""

import gzip
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable

from neve.cli import app
from tests.support.moving import local_path


@pytest.fixture
def copied(tmp_path):
    """Make a table, copy its two directories, and delete them and the catalog."""
    old, data, new = tmp_path / "old", tmp_path / "old_data", tmp_path / "new home"
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=str(old))
    catalog.create_namespace("ns")
    rows = pa.table({"id": [1, 2, 3]})
    table = catalog.create_table(
        "ns.t", rows.schema, location=str(old), properties={"write.data.path": str(data)}
    )
    table.append(rows)
    table.delete("id = 2")
    catalog.engine.dispose()
    shutil.move(old, new / "table")
    shutil.move(data, new / "data")
    metadata = new / "table" / Path(table.metadata_location).relative_to(old)
    return (
        metadata,
        ["--from", str(old), "--to", str(new / "table")],
        ["--from", str(data), "--to", str(new / "data")],
    )


def run(capfd, *arguments):
    with pytest.raises(SystemExit) as exit_:
        app.main(["rewrite", *map(str, arguments), "--json"])
    output = capfd.readouterr()
    return exit_.value.code, json.loads(output.out) if output.out else None, output.err


def files_below(directory):
    return sorted(path for path in directory.rglob("*") if path.is_file())


@pytest.mark.parametrize("compressed", [False, True])
def test_the_new_metadata_reads_what_was_copied(copied, capfd, compressed, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    metadata, *pairs = copied
    if compressed:
        packed = metadata.with_name(metadata.name.replace(".metadata", ".gz.metadata"))
        packed.write_bytes(gzip.compress(metadata.read_bytes()))
        metadata = packed
    before = {path: path.read_bytes() for path in files_below(tmp_path / "new home")}
    status, report, _ = run(capfd, metadata, *pairs[0], *pairs[1])

    assert status == 0
    assert report["rewrite_count"] == sum(report["rewritten"].values()) > 0
    assert report["metadata_location"].endswith(".gz.metadata.json") is compressed
    table = StaticTable.from_metadata(report["metadata_location"])
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 3]
    assert len(table.metadata.snapshots) == report["snapshots"]
    assert table.metadata.properties["write.data.path"] == str(tmp_path / "new home" / "data")
    # Nothing is overwritten, and again is the same.
    assert all(path.read_bytes() == content for path, content in before.items())
    count = len(files_below(tmp_path / "new home"))
    assert run(capfd, metadata, *pairs[0], *pairs[1])[1] == report
    assert len(files_below(tmp_path / "new home")) == count


def test_a_place_that_not_every_engine_reads_is_refused(copied, capfd, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    metadata, (*first, here), second = copied
    there = Path(here).rename(Path(here).with_name("a#b"))
    before = files_below(there)
    status, _, error = run(capfd, there / metadata.relative_to(here), *first, there, *second)
    assert (status, "'#' in it" in error) == (1, True)
    assert files_below(there) == before


def test_nothing_is_written_for_a_copy_that_is_not_whole(copied, capfd, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    metadata, table, data = copied
    before = files_below(tmp_path / "new home")
    for arguments, status, message in (
        (table, 1, "lies below none of the prefixes"),
        (data, 2, "lies below no --from"),
        ([*table, "--from", "x"], 2, "2 --from and 1 --to"),
        ([*table, *data, "--engine", "flink"], 2, "flink"),
        ([*table, *data, "--catalog", "nowhere"], 2, "nowhere"),
    ):
        code, _, errors = run(capfd, metadata, *arguments)
        assert (code, message in errors) == (status, True), errors
    [file] = [each for each in files_below(local_path(data[3])) if "00000-0" in each.name][:1]
    content = file.read_bytes()
    for change, message in (
        (lambda: file.write_bytes(content + b"x"), "bytes"),
        (file.unlink, "does not exist"),
    ):
        change()
        code, _, errors = run(capfd, metadata, *table, *data)
        assert code == 1
        assert file.name in errors
        assert message in errors
    metadata.write_bytes(b"{}")
    assert "no metadata file" in run(capfd, metadata, *table, *data)[2]
    assert [each for each in before if each != file] == files_below(tmp_path / "new home")
