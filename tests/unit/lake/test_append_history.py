"""What the absence of an append proves."""

import pytest

import neve
from neve.lake.append_history import applied_appends, has_history_since
from tests.support.appending import Appender
from tests.support.lakes import sqlite_settings


@pytest.fixture
def appender(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        yield Appender(lake)


def test_the_history_is_whole_from_the_beginning_and_from_each_snapshot(appender):
    assert has_history_since(appender.table.document, None)
    ids = [appender.append(number, append_id=str(number)).snapshot_id for number in range(3)]
    document = appender.table.document
    assert has_history_since(document, None)
    assert all(has_history_since(document, snapshot_id) for snapshot_id in ids)
    assert not has_history_since(document, 17)
    assert applied_appends(document) == {str(number): ids[number] for number in range(3)}


def test_a_missing_parent_is_no_proof(appender):
    """PyIceberg's expiry makes the oldest retained snapshot look like the first one."""
    first, second, third = (appender.append(number).snapshot_id for number in range(3))
    appender.load().maintenance.expire_snapshots().by_id(first).commit()
    appender.table.refresh()
    document = appender.table.document
    assert set(document.snapshots) == {second, third}
    assert document.snapshots[second].get("parent-snapshot-id") is None
    assert not has_history_since(document, None)
    assert has_history_since(document, second)
