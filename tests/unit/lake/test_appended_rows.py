"""The rows that a few snapshots appended, read without Spark."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest
from pyiceberg.table.snapshots import Operation, Summary

import neve
from neve.lake.appended_rows import read_appended
from neve.lake.plain_rows import Allowance
from neve.lake.plain_types import NeedsSparkError
from tests.support.lakes import sqlite_settings

ENOUGH = Allowance(10, 10**6, 10**6, 1_000, 10**6)
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("tags", pa.list_(pa.string()))])


@pytest.fixture
def table(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        lake.catalog().create_namespace("shop")
        # Manifests of older snapshots are merged into the new one's, with all their entries.
        merging = {
            "commit.manifest-merge.enabled": "true",
            "commit.manifest.min-count-to-merge": "2",
        }
        yield lake.catalog().create_table("shop.changes", SCHEMA, properties=merging)


def append(table, *ids):
    rows = [{"id": number, "name": f"name {number}"} for number in ids]
    table.append(pa.Table.from_pylist(rows, SCHEMA))


def read(table, start, end=None, limit=ENOUGH, columns=("id", "name")):
    snapshots = table.metadata.snapshots[start:end]
    return read_appended(table.metadata, table.io, snapshots, columns, limit)


def test_only_rows_of_the_snapshots_are_read(table):
    for number in range(4):
        append(table, number, 10 + number)
    assert read(table, 2).to_pylist() == [
        {"id": number, "name": f"name {number}"} for number in (2, 12, 3, 13)
    ]
    assert read(table, 1, 2)["id"].to_pylist() == [1, 11]
    assert len(read(table, 4)) == 0


def test_columns_are_found_by_their_ids(table):
    append(table, 1)
    with table.update_schema() as update:
        update.rename_column("name", "title")
        update.add_column("note", table.schema().find_type("name"))
    append_schema = table.schema().as_arrow()
    table.append(pa.Table.from_pylist([{"id": 2, "title": "b", "note": "n"}], append_schema))
    assert read(table, 0, columns=("id", "title", "note")).to_pylist() == [
        {"id": 1, "title": "name 1", "note": None},
        {"id": 2, "title": "b", "note": "n"},
    ]


@pytest.mark.parametrize("limit", ["files", "rows", "stored_bytes", "decoded_bytes", "kept_bytes"])
def test_what_is_larger_than_a_limit_needs_spark(table, limit):
    for number in range(3):
        append(table, number)
    small = ENOUGH.fresh()
    setattr(small, limit, 2)
    with pytest.raises(NeedsSparkError, match="limit"):
        read(table, 0, limit=small)


@pytest.mark.parametrize("limit", ["files", "rows", "stored_bytes"])
def test_that_it_is_too_much_is_known_before_anything_is_read(table, monkeypatch, limit):
    for number in range(3):
        append(table, number)
    monkeypatch.setattr(type(table.io), "new_input", None)
    small = ENOUGH.fresh()
    setattr(small, limit, 2)
    with pytest.raises(NeedsSparkError, match="limit"):
        read(table, 0, limit=small)


def test_a_snapshot_that_does_not_count_its_files_needs_spark(table):
    append(table, 1)
    (snapshot,) = table.metadata.snapshots
    silent = snapshot.model_copy(update={"summary": Summary(Operation.APPEND)})
    with pytest.raises(NeedsSparkError, match="how many files"):
        read_appended(table.metadata, table.io, [silent], ["id"], ENOUGH)


def test_many_snapshots_are_read_at_the_same_time(table, monkeypatch):
    for number in range(4):
        append(table, number)
    together = threading.Barrier(4, timeout=20)
    open_file, opened = type(table.io).new_input, []

    def waiting(io, path):
        if path.endswith(".avro"):
            opened.append(path)
            together.wait()
        return open_file(io, path)

    monkeypatch.setattr(type(table.io), "new_input", waiting)
    assert read(table, 0)["id"].to_pylist() == [0, 1, 2, 3]
    assert len(opened) == 8


def test_a_file_that_is_gone_needs_spark(table):
    append(table, 1)
    path = next(iter(table.scan().plan_files())).file.file_path
    table.io.delete(path)
    with pytest.raises(NeedsSparkError, match="cannot be read"):
        read(table, 0)
