"""Tables whose metadata another writer compresses are read and committed to as others are."""

import gzip
from pathlib import Path

import pytest
from pyiceberg.table import StaticTable

import neve
from neve.lake.expiry import SnapshotRemoval, remove_expired
from neve.lake.staging import load_staging_table
from neve.lake.table_ref import TableRef
from tests.support.appending import Appender
from tests.support.lakes import sqlite_settings

NAME = ("ns", "t")


@pytest.fixture
def lake(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        yield lake


@pytest.fixture
def appender(lake):
    appender = Appender(lake)
    appender.append(1)
    return appender


def compress(lake):
    """Write the metadata again as Iceberg does with `write.metadata.compression-codec`."""
    catalog = lake.catalog()
    base = catalog.load_table(NAME)
    compresses = base.metadata.model_copy(
        update={
            "properties": {**base.metadata.properties, "write.metadata.compression-codec": "gzip"}
        }
    )
    location = base.metadata_location.replace(".metadata.json", "-x.gz.metadata.json")
    path = Path(location.removeprefix("file://"))
    path.write_bytes(gzip.compress(compresses.model_dump_json().encode()))
    catalog.swap_metadata(NAME, base.metadata_location, location)


def check_committed(lake, *ids):
    """What was committed is readable also by those who go by a file's name alone."""
    table = lake.catalog().load_table(NAME)
    assert table.properties["write.metadata.compression-codec"] == "gzip"
    assert any(
        each.metadata_file.endswith("gz.metadata.json") for each in table.metadata.metadata_log
    )
    rows = StaticTable.from_metadata(table.metadata_location).scan().to_arrow()
    assert sorted(rows["id"].to_pylist()) == list(ids)


def test_direct_appends(lake, appender):
    compress(lake)
    Appender(lake).append(2)
    appender.append(3)
    check_committed(lake, 1, 2, 3)


def test_commits_of_consolidation(lake, appender):
    compress(lake)
    table = load_staging_table(lake.profile, lake.catalog(), NAME)
    table.refresh()
    table.append(appender.write(2), {})
    check_committed(lake, 1, 2)


def test_expiry(lake, appender):
    old = appender.table.main_id
    appender.append(2)
    compress(lake)
    table = lake.catalog().load_table(NAME)
    removal = SnapshotRemoval((old,))
    ref, uuid = TableRef.of(table), str(table.metadata.table_uuid)
    assert remove_expired(lake, ref, uuid, lambda _: removal, lambda *_: "").snapshots == 1
    check_committed(lake, 1, 2)
