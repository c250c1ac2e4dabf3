"""Looking at a table again and again: the same as reading it, and nothing is parsed twice."""

from dataclasses import replace

import pytest
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.snapshots import Snapshot

import neve
from neve.errors import NotFoundError, UnsupportedError
from neve.lake import json_table
from neve.lake.ancestry import main_ancestors
from neve.lake.document_table import find_document_table
from neve.lake.watched_table import WatchedTable
from tests.support.appending import Appender
from tests.support.lakes import sqlite_settings

NAME = ("ns", "t")


@pytest.fixture
def lake(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        yield lake


@pytest.fixture
def appender(lake):
    return Appender(lake)


@pytest.fixture
def watched(lake):
    return WatchedTable(lake.profile, lake.catalog(), NAME)


@pytest.fixture
def parsed(monkeypatch):
    """What was parsed, in the order of it."""
    parsed = []

    def counting(owner, name):
        work = getattr(owner, name)

        def counted(*arguments):
            parsed.append(name)
            return work(*arguments)

        monkeypatch.setattr(owner, name, counted)

    counting(json_table, "decode_document")
    counting(TableMetadataUtil, "parse_obj")
    counting(Snapshot, "model_validate")
    return parsed


def history(appender):
    """Return the snapshots of the table as PyIceberg reads it, the oldest first."""
    return list(main_ancestors(appender.load().metadata))[::-1]


def without_history(metadata):
    left_out = {"snapshots", "snapshot-log", "metadata-log", "refs"}
    return {key: value for key, value in metadata.model_dump().items() if key not in left_out}


def test_it_has_the_snapshots_from_one_on(appender, watched):
    for number in range(5):
        appender.append(number)
    snapshots = history(appender)
    for place in (0, 2, 4):
        watched.refresh()
        metadata = watched.since(snapshots[place].snapshot_id)
        assert list(main_ancestors(metadata))[::-1] == snapshots[place:]
        assert without_history(metadata) == without_history(appender.load().metadata)
    assert watched.io.new_input(metadata.snapshots[-1].manifest_list).exists()


def test_all_is_read_again_where_less_was_kept(appender, watched):
    for number in range(4):
        appender.append(number)
    first, *_, last = (snapshot.snapshot_id for snapshot in history(appender))
    watched.refresh()
    for wanted, expected in ((last, 1), (first, 4), (last, 1), (None, 4), (last, 1), (17, 4)):
        assert len(watched.since(wanted).snapshots) == expected
    assert watched.since(None) == appender.load().metadata


def test_an_unchanged_table_is_not_parsed_again(appender, watched, parsed):
    for number in range(5):
        appender.append(number)
    snapshots = history(appender)
    watched.refresh()
    before = watched.since(snapshots[2].snapshot_id)
    parsed.clear()
    watched.refresh()
    assert watched.since(snapshots[2].snapshot_id) is before
    assert parsed == []
    # The part that is still needed is known.
    assert [each.snapshot_id for each in watched.since(snapshots[4].snapshot_id).snapshots] == [
        snapshots[4].snapshot_id
    ]
    assert parsed == ["model_validate"]


def test_of_a_changed_table_the_new_snapshots_are_parsed(appender, watched, parsed):
    for number in range(20):
        appender.append(number)
    watched.refresh()
    last = appender.table.main_id
    watched.since(last)
    appender.append(20)
    parsed.clear()
    watched.refresh()
    assert [each.snapshot_id for each in watched.since(last).snapshots] == [
        last,
        appender.table.main_id,
    ]
    assert parsed == ["decode_document", "model_validate", "model_validate"]


def test_a_table_may_be_created_later(lake):
    watched = WatchedTable(lake.profile, lake.catalog(), NAME)
    with pytest.raises(NotFoundError):
        watched.refresh()
    appender = Appender(lake)
    appender.append(1)
    watched.refresh()
    assert watched.since(None) == appender.load().metadata


def test_a_table_that_was_created_again_is_another_one(lake, appender, watched):
    appender.append(1)
    last = appender.table.main_id
    watched.refresh()
    before = watched.since(last)
    lake.catalog().drop_table(NAME)
    with pytest.raises(NotFoundError):
        watched.refresh()
    Appender(lake).append(2)
    watched.refresh()
    assert watched.uuid != str(before.table_uuid)
    assert watched.since(last) == appender.load().metadata


def test_a_table_that_is_loaded_again_is_parsed_if_it_has_changed(lake, appender, parsed):
    def find(known):
        return find_document_table(lake.profile, lake.catalog(), NAME, known)

    appender.append(1)
    first = find(None)
    parsed.clear()
    same = find(first)
    assert parsed == []
    assert (same.metadata, same.source is first.source) == (first.metadata, False)
    appender.append(2)
    parsed.clear()
    changed = find(same)
    assert parsed[:2] == ["decode_document", "parse_obj"]
    assert changed.metadata == appender.load().metadata
    # Who decided on what was read before still compares with that.
    assert same.source.metadata.current_snapshot_id == first.metadata.current_snapshot_id
    lake.catalog().drop_table(NAME)
    assert find(changed) is None


def test_a_table_without_a_uuid_is_refused_by_name(lake, appender, watched, monkeypatch):
    """PyIceberg would give it another one each time."""
    appender.append(1)
    watched.refresh()
    assert watched.uuid
    document = dict(watched._read.metadata.document)
    del document["table-uuid"]
    watched._read.metadata = replace(watched._read.metadata, document=document)
    with pytest.raises(UnsupportedError, match=r"^ns\.t has no table-uuid"):
        _ = watched.uuid
