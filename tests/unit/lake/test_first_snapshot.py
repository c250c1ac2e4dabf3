"""Only a snapshot that never had a parent counts as the first, whatever PyIceberg expired."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

import neve
from neve.errors import NotFoundError, UnsupportedError
from neve.lake.first_snapshot import is_first_snapshot
from neve.lake.metadata_json import MetadataJson
from neve.lake.table_reads import file_reader
from tests.support.lakes import sqlite_settings

ROWS = pa.table({"id": pa.array([1], pa.int64())})


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    with neve.open(sqlite_settings(tmp_path_factory.mktemp("lake"))) as lake:
        lake.catalog().create_namespace("shop")
        yield lake


class History:
    """A table with one kind of past, of which PyIceberg expires all but the newest snapshot."""

    def __init__(self, lake, name, format_version):
        properties = {"format-version": str(format_version)}
        self.lake, self.name = lake, name
        self.read = file_reader(lake, lake.ref(f"shop.{name}"))
        self.table = lake.catalog().create_table(f"shop.{name}", ROWS.schema, properties=properties)

    def append(self):
        self.table.append(ROWS)

    def overwrite(self):
        self.table.overwrite(ROWS)

    def empty(self):
        self.table.delete("true")

    def upgrade(self):
        with self.table.transaction() as transaction:
            transaction.upgrade_table_version(2)

    def tag(self):
        self.table.manage_snapshots().create_tag(self.main.snapshot_id, "kept").commit()

    def expire(self):
        kept = {ref.snapshot_id for ref in self.table.refs().values()}
        old = [each.snapshot_id for each in self.table.snapshots() if each.snapshot_id not in kept]
        self.table.maintenance.expire_snapshots().by_ids(old).commit()
        assert self.main.parent_snapshot_id is None or self.main.parent_snapshot_id in kept

    @property
    def main(self):
        return self.table.current_snapshot()

    @property
    def metadata(self):
        return self.lake.reader().read(("shop", self.name))


@pytest.mark.parametrize("format_version", [1, 2])
def test_the_first_snapshot_is_known_as_such(lake, format_version):
    history = History(lake, f"first_{format_version}", format_version)
    for _ in range(3):
        history.append()
    first, *others = history.metadata.snapshots.values()
    for read in (None, history.read):
        assert is_first_snapshot(history.metadata, first, read)
        assert not any(is_first_snapshot(history.metadata, each, read) for each in others)
    if format_version == 1:
        history.upgrade()
        assert is_first_snapshot(history.metadata, first)
    # What the metadata does not say, the manifest list does.
    unknown = {**first, "sequence-number": 7, "summary": {"operation": "append"}}
    assert not is_first_snapshot(history.metadata, unknown)
    assert is_first_snapshot(history.metadata, unknown, history.read)
    contradicted = {**first, "summary": {**first["summary"], "total-records": "9"}}
    assert not is_first_snapshot(history.metadata, contradicted, history.read)


@pytest.mark.parametrize(
    ("format_version", "past"),
    [
        *itertools.product(
            (1, 2),
            [
                ("append", "append"),
                ("append", "overwrite"),
                ("append", "empty", "append"),
                ("append", "tag", "empty", "append"),
            ],
        ),
        (1, ("append", "upgrade", "append")),
        (1, ("append", "upgrade", "overwrite")),
    ],
)
def test_what_is_left_of_a_past_that_expired_is_not_the_first(lake, past, format_version):
    history = History(lake, f"v{format_version}_{'_'.join(past)}", format_version)
    for step in past:
        getattr(history, step)()
    history.expire()
    snapshot = history.metadata.snapshots[history.main.snapshot_id]
    assert not is_first_snapshot(history.metadata, snapshot)
    assert not is_first_snapshot(history.metadata, snapshot, history.read)


def test_a_table_that_was_emptied_then_upgraded_then_filled(lake):
    """Only the manifest list tells that something was there."""
    history = History(lake, "emptied_then_upgraded", 1)
    history.append()
    history.empty()
    history.upgrade()
    history.append()
    history.expire()
    (snapshot,) = history.metadata.snapshots.values()
    assert not is_first_snapshot(history.metadata, snapshot, history.read)


def test_a_manifest_list_of_another_snapshot_proves_nothing(lake):
    history = History(lake, "borrowed", 2)
    history.append()
    history.append()
    first, second = history.metadata.snapshots.values()
    borrowed = {**second, "manifest-list": first["manifest-list"], "parent-snapshot-id": None}
    assert not is_first_snapshot(history.metadata, borrowed, history.read)
    gone = {**first, "manifest-list": first["manifest-list"] + ".gone"}
    with pytest.raises(NotFoundError, match="reading the manifest list"):
        is_first_snapshot(history.metadata, gone, history.read)


def test_a_table_whose_files_cannot_be_read_is_judged_by_its_metadata(lake):
    history = History(lake, "unread", 2)
    history.append()

    def read(_):
        raise UnsupportedError("PyIceberg does not know a column's type")

    (first,) = history.metadata.snapshots.values()
    for attempt in (read, lambda _: b"", lambda path: history.read(path)[:50]):
        assert is_first_snapshot(history.metadata, first, attempt)
        assert not is_first_snapshot(history.metadata, {**first, "sequence-number": 7}, attempt)


def metadata_of(*snapshots, **document):
    return MetadataJson("x", {"format-version": 2, "snapshots": list(snapshots), **document})


def snapshot(number, *, snapshot_id=None, **summary):
    counted = {
        f"{what}-{kind}": 1 for what in ("total", "added") for kind in ("records", "data-files")
    }
    return {
        "snapshot-id": snapshot_id or number,
        "sequence-number": number,
        "timestamp-ms": number,
        "summary": {"operation": "append", **counted, **summary},
    }


def test_a_table_that_was_replaced_begins_anew_as_long_as_that_can_be_seen():
    assert is_first_snapshot(metadata_of(snapshot(1), snapshot(2)), snapshot(2))
    assert not is_first_snapshot(metadata_of(snapshot(2)), snapshot(2))


def test_a_writer_that_says_no_totals_proves_nothing():
    assert is_first_snapshot(metadata_of(snapshot(1)), snapshot(1))
    silent = {**snapshot(1), "summary": {"operation": "append"}}
    assert not is_first_snapshot(metadata_of(silent), silent)
    assert not is_first_snapshot(metadata_of(), {**silent, "summary": None})


def test_a_metadata_log_that_was_cut_proves_nothing():
    """In format version 1 it is all there is."""
    first = snapshot(0)
    first["timestamp-ms"] = 5
    made, cut = ({"metadata-file": f"m/0000{n}-a.metadata.json", "timestamp-ms": 1} for n in (0, 1))
    assert is_first_snapshot(metadata_of(first, **{"metadata-log": [made]}), first)
    assert not is_first_snapshot(metadata_of(first, **{"metadata-log": [cut]}), first)
    assert not is_first_snapshot(metadata_of(first, **{"metadata-log": [made, cut]}), first)
    assert not is_first_snapshot(metadata_of(first), first)
