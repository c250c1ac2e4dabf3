"""The rows that a few snapshots appended, read without Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest

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


def test_a_file_that_is_gone_needs_spark(table):
    append(table, 1)
    path = next(iter(table.scan().plan_files())).file.file_path
    table.io.delete(path)
    with pytest.raises(NeedsSparkError, match="cannot be read"):
        read(table, 0)
