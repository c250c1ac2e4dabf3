"""The ledger costs the same however old it is: few writes, few manifests, no entry lost."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.types import StringType

import neve
from neve.errors import CatalogError
from neve.lake.staging import StagingTable
from neve.publish import ledger
from neve.publish.ledger import LedgerWriter
from tests.support.lakes import sqlite_settings
from tests.support.ledgers import FILES_IN_MANIFEST, entry, make_older

# Of a month, with a write every two seconds.
MONTH_MANIFESTS = 30 * 86_400 // 2 // FILES_IN_MANIFEST


@pytest.fixture
def lake(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        yield lake


def table(lake):
    return lake.catalog().load_table(ledger.IDENTIFIER)


def manifests(lake):
    loaded = table(lake)
    return loaded.current_snapshot().manifests(loaded.io)


def batch_ids(lake):
    return sorted(table(lake).scan().to_arrow()["batch_id"].to_pylist())


def test_a_worker_with_a_batch_every_two_seconds_writes_every_ten_and_at_its_end(lake):
    now, writes = 100.0, []
    writer = LedgerWriter(lake, clock=lambda: now)
    writer._append = lambda rows: writes.append((now, rows["batch_id"].to_pylist()))
    for number in range(30):
        writer.add([entry(number)])
        writer.write_when_due()
        now += 2.0
    assert [moment for moment, _ in writes] == [100.0, 110.0, 120.0, 130.0, 140.0, 150.0]
    writer.write()
    assert [name for _, names in writes for name in names] == [f"b{n}" for n in range(30)]
    writer.write()
    assert len(writes) == 7


def test_entries_of_a_write_that_failed_come_with_the_next(lake, monkeypatch):
    def refuse(*_):
        raise CatalogError("it is down")

    writer = LedgerWriter(lake)
    writer.add([entry(1)])
    with monkeypatch.context() as patch:
        patch.setattr(StagingTable, "append", refuse)
        writer.write()
    monkeypatch.setattr(ledger, "MAX_GATHERED", 2)
    writer.add([entry(2)])
    writer.write()
    assert batch_ids(lake) == ["b1", "b2"]


def test_a_ledger_that_somebody_altered_fails_no_batch(lake):
    writer = LedgerWriter(lake)
    writer.add([entry(1)])
    writer.write()
    with table(lake).update_schema(allow_incompatible_changes=True) as update:
        update.add_column("team", StringType(), required=True)
    writer = LedgerWriter(lake)
    writer.add([entry(2)])
    writer.write()
    with table(lake).update_schema() as update:
        update.delete_column("team")
    assert batch_ids(lake) == ["b1"]
    writer.write()
    assert batch_ids(lake) == ["b1", "b2"]


def test_two_writers_lose_nothing_to_each_other(lake):
    writers = [LedgerWriter(lake, interval_seconds=0) for _ in range(2)]
    for number in range(6):
        writers[number % 2].add([entry(number)])
        writers[number % 2].write()
    assert batch_ids(lake) == [f"b{n}" for n in range(6)]


@contextmanager
def counting_files(monkeypatch):
    """Count the metadata files that are read and written in a block."""
    io = PyArrowFileIO
    counted = {"read": 0, "written": 0}
    new_input, new_output = io.new_input, io.new_output
    with monkeypatch.context() as patch:

        def reading(self, location):
            counted["read"] += location.endswith(".avro")
            return new_input(self, location)

        def writing(self, location):
            counted["written"] += location.endswith(".avro")
            return new_output(self, location)

        patch.setattr(io, "new_input", reading)
        patch.setattr(io, "new_output", writing)
        yield counted


def test_manifests_are_merged_and_no_write_touches_many_of_them(lake, monkeypatch):
    writer, most = LedgerWriter(lake, interval_seconds=0), 0
    for number in range(45):
        writer.add([entry(number)])
        with counting_files(monkeypatch) as counted:
            writer.write()
        most = max(most, counted["read"] + counted["written"])
    assert len(manifests(lake)) <= 20
    # The lists of the parent and of the commit, the new manifest, and at most twenty merged ones.
    assert most <= 24
    assert len(batch_ids(lake)) == 45


def test_a_write_to_a_ledger_of_a_month_reads_no_manifest_of_the_past(lake, monkeypatch):
    writer = LedgerWriter(lake, interval_seconds=0)
    writer.add([entry(0)])
    writer.write()
    make_older(table(lake), MONTH_MANIFESTS)
    for number in range(1, 4):
        writer.add([entry(number)])
        with counting_files(monkeypatch) as counted:
            writer.write()
        assert counted["read"] <= 2
        assert counted["written"] <= 2
    assert len(manifests(lake)) >= MONTH_MANIFESTS
