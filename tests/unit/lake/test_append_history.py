"""Which appends are applied, and what the absence of one proves."""

import pytest

import neve
from neve.lake import append_history
from neve.lake.append_history import AppliedAppends, SeenVersion, has_all_snapshots_since
from neve.lake.metadata_json import MetadataJson
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
    assert AppliedAppends().of(document) == {str(number): ids[number] for number in range(3)}


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


def version(*snapshots):
    return MetadataJson("file", {"format-version": 2, "snapshots": list(snapshots)})


def snapshot(number, *append_ids):
    summary = {"neve.append-id": ",".join(append_ids)} if append_ids else {"operation": "append"}
    return {"snapshot-id": number, "summary": summary}


def test_applied_appends_are_those_of_the_version_that_is_asked_for():
    first, second, picked = snapshot(1, "a"), snapshot(2, "b", "c"), snapshot(3, "a")
    versions = [
        version(),
        version(first),
        version(first, second),
        # Another writer's, without an id; then one that has the id of an append again.
        version(first, second, snapshot(4)),
        version(first, second, picked),
        # Removed from the beginning, from the middle, and by a rollback with an expiry.
        version(second, picked),
        version(first, picked),
        version(first),
        version(snapshot(5, "d")),
        # The same snapshots, read anew.
        version(snapshot(1, "a"), snapshot(2, "b")),
        version(),
    ]
    known = AppliedAppends()
    for each in (*versions, *reversed(versions), *versions[::2]):
        assert known.of(each) == AppliedAppends().of(each)
    assert known.of(versions[4]) == {"a": 3, "b": 2, "c": 2}


def test_snapshots_that_were_known_are_not_read_again(monkeypatch):
    read = []
    append_ids = append_history._append_ids

    def counting(each):
        read.append(each["snapshot-id"])
        return append_ids(each)

    monkeypatch.setattr(append_history, "_append_ids", counting)
    known = AppliedAppends()
    snapshots = [snapshot(number, str(number)) for number in range(100)]
    known.of(version(*snapshots))
    read.clear()
    assert len(known.of(version(*snapshots[2:], snapshot(100, "100")))) == 99
    assert read == [0, 1, 100]
