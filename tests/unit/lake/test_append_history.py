"""What the absence of an append proves."""

import pytest

import neve
from neve.lake.append_history import SeenVersion, applied_appends, has_all_snapshots_since
from tests.support.appending import Appender
from tests.support.lakes import sqlite_settings


@pytest.fixture
def appender(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        yield Appender(lake)


def test_the_history_is_whole_from_the_beginning_and_from_each_snapshot(appender):
    seen = [SeenVersion.of(appender.table.document)]
    ids = []
    for number in range(3):
        ids.append(appender.append(number, append_id=str(number)).snapshot_id)
        seen.append(SeenVersion.of(appender.table.document))
    document = appender.table.document
    assert all(has_all_snapshots_since(document, version) for version in seen)
    # Of a table whose old metadata was restored.
    assert not has_all_snapshots_since(document, SeenVersion(17, 4))
    assert applied_appends(document) == {str(number): ids[number] for number in range(3)}


def test_a_missing_parent_is_no_proof(appender):
    """PyIceberg's expiry makes the oldest retained snapshot look like the first one."""
    start = SeenVersion.of(appender.table.document)
    first = appender.append(0).snapshot_id
    second = appender.append(1).snapshot_id
    after_second = SeenVersion.of(appender.table.document)
    third = appender.append(2).snapshot_id
    appender.load().maintenance.expire_snapshots().by_id(first).commit()
    appender.table.refresh()
    document = appender.table.document
    assert set(document.snapshots) == {second, third}
    assert document.snapshots[second].get("parent-snapshot-id") is None
    assert not has_all_snapshots_since(document, start)
    assert has_all_snapshots_since(document, after_second)
