"""Where a follower is, who may move it, and what it is told of rollbacks and expired snapshots."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from neve.errors import ConflictError, NotFoundError, UnsupportedError, UsageError
from neve.lake.follower_tags import TAG_PREFIX
from neve.lake.tag_commit import TagMove, move_tag
from neve.versions.followed_table import FollowSpec, SourceTable
from tests.support.followed import ROWS, TABLE, append, expire, followed_lake, replace_metadata
from tests.support.wait import until


@pytest.fixture
def lake(tmp_path):
    with followed_lake(tmp_path) as lake:
        yield lake


def tag(lake, name="a"):
    return lake.table(TABLE).refs.get(f"{TAG_PREFIX}{name}")


def rollback(lake, snapshot_id):
    lake.catalog().load_table(TABLE).manage_snapshots().rollback_to_snapshot(snapshot_id).commit()


def test_of_two_consumers_of_one_name_only_one_commits(lake):
    append(lake)
    (mine,), (other,) = lake.follow(TABLE, "a"), lake.follow(TABLE, "a")
    mine.commit()
    with pytest.raises(ConflictError, match=f"moved to snapshot {mine.until} by somebody else"):
        other.commit()
    append(lake)
    (batch,) = lake.follow(TABLE, "a")
    batches = iter(lake.follow(TABLE, "a", wait=0.01))
    next(batches)
    batch.commit()
    with pytest.raises(ConflictError, match="expected it at snapshot"):
        next(batches)
    lake.drop_follower(TABLE, "a")
    append(lake)
    with pytest.raises(ConflictError, match="was dropped"):
        batch.commit()
    assert tag(lake) is None


def test_a_tag_that_somebody_else_removed_does_not_begin_again(lake):
    append(lake)
    (batch,) = lake.follow(TABLE, "a")
    batch.commit()
    lake.catalog().load_table(TABLE).manage_snapshots().remove_tag(f"{TAG_PREFIX}a").commit()
    with pytest.raises(NotFoundError, match=f"its tag {TAG_PREFIX}a is gone") as told:
        list(lake.follow(TABLE, "a"))
    assert "UNSET TBLPROPERTIES ('neve.follow.a')" in told.value.hint
    with lake.catalog().load_table(TABLE).transaction() as change:
        change.remove_properties("neve.follow.a")
    assert len(list(lake.follow(TABLE, "a"))) == 1


def test_a_table_of_an_old_writer_keeps_its_main(lake):
    """Without refs `main` is the current snapshot; with a tag alone, Iceberg knows no `main`."""
    current = append(lake)
    metadata = lake.reader().read(("shop", "orders"))
    document = {key: value for key, value in metadata.document.items() if key != "refs"}
    replace_metadata(metadata, document)
    (batch,) = lake.follow(TABLE, "a")
    batch.commit()
    refs = lake.reader().read(("shop", "orders")).document["refs"]
    assert refs["main"] == {"snapshot-id": current, "type": "branch"}
    assert tag(lake) == current


def test_a_branch_to_begin_at_is_where_it_was_at_the_first_look(lake):
    append(lake)
    follower = lake.follow(TABLE, "a", since="main")
    assert not list(follower)
    append(lake)
    (batch,) = follower
    assert len(batch.commits) == 1


def test_a_table_without_a_uuid_is_not_followed(lake):
    append(lake)
    metadata = lake.reader().read(("shop", "orders"))
    replace_metadata(
        metadata, {key: each for key, each in metadata.document.items() if key != "table-uuid"}
    )
    with pytest.raises(UnsupportedError, match="has no table-uuid"):
        next(iter(lake.follow(TABLE, "a")))


def test_of_many_that_commit_at_once_one_wins(lake):
    append(lake)
    batches = [next(iter(lake.follow(TABLE, "a"))) for _ in range(4)]
    start = threading.Barrier(len(batches))

    def commit(batch):
        start.wait()
        try:
            batch.commit()
        except ConflictError:
            return False
        return True

    with ThreadPoolExecutor(len(batches)) as pool:
        assert sum(pool.map(commit, batches)) == 1


def test_a_lost_answer_is_looked_up(lake, monkeypatch):
    """Of two equal moves the table tells which one was applied."""
    append(lake)
    (mine,), (other,) = lake.follow(TABLE, "a"), lake.follow(TABLE, "a")
    swap = type(lake.catalog()).swap_metadata

    def lose_answer(*arguments):
        swap(*arguments)
        raise OSError("connection reset")

    with monkeypatch.context() as patched:
        patched.setattr(type(lake.catalog()), "swap_metadata", lose_answer)
        patched.setattr("neve.lake.commit_errors.outcome_of", _unknown)
        mine.commit()
        with pytest.raises(ConflictError):
            other.commit()
    mine.commit()
    assert tag(lake) == mine.until


def _unknown(*_):
    from neve.lake.commit_errors import CommitOutcome

    return CommitOutcome.UNKNOWN


def test_other_writers_are_no_conflict(lake):
    append(lake)
    (batch,) = lake.follow(TABLE, "a")
    append(lake)
    batch.commit()
    (other,) = lake.follow(TABLE, "b", max_commits=5)
    other.commit()
    assert (tag(lake, "a"), tag(lake, "b")) == (batch.until, other.until)
    (rest,) = lake.follow(TABLE, "a")
    assert (rest.since, rest.until, len(rest.commits)) == (batch.until, other.until, 1)


def test_nothing_but_the_tag_changes(lake):
    """What PyIceberg knows nothing of stays in the metadata, and old files go as properties say."""
    append(lake)
    before = lake.reader().read(("shop", "orders"))
    document = {
        **before.document,
        "format-version": 3,
        "next-row-id": 7,
        "from-the-future": {"a": 1},
    }
    document["properties"] = {
        "write.metadata.previous-versions-max": "2",
        "write.metadata.delete-after-commit.enabled": "true",
        "history.expire.max-ref-age-ms": "1",
    }
    path = replace_metadata(before, document)
    for name in ("a", "b", "c"):
        (batch,) = lake.follow(TABLE, name)
        batch.commit()
    after = lake.reader().read(("shop", "orders"))
    assert {
        **after.document,
        "refs": 0,
        "properties": 0,
        "metadata-log": 0,
        "last-updated-ms": 0,
    } == {
        **document,
        "refs": 0,
        "properties": 0,
        "metadata-log": 0,
        "last-updated-ms": 0,
    }
    assert after.document["refs"]["neve_follow_a"]["max-ref-age-ms"] == 2**63 - 1
    assert after.document["last-updated-ms"] >= document["last-updated-ms"]
    assert len(after.document["metadata-log"]) == 2
    assert not path.exists()
    lake.drop_follower(TABLE, "a")
    assert [state.name for state in lake.followers()] == ["b", "c"]
    assert "neve.follow.a" not in lake.table(TABLE).properties


@pytest.mark.parametrize("has_root", [True, False])
def test_a_rollback_behind_the_position_is_told(lake, has_root):
    root = append(lake)
    first = append(lake)
    append(lake, 2)
    (batch,) = lake.follow(TABLE, "a")
    batch.commit()
    if not has_root:
        expire(lake, root)
    rollback(lake, first)
    with pytest.raises(NotFoundError, match=f"is at snapshot {batch.until}, which is no") as told:
        list(lake.follow(TABLE, "a"))
    assert f"neve follow drop {TABLE} a, and follow with since={first}" in told.value.hint
    assert [state.lag_commits for state in lake.followers()] == [None]
    append(lake)
    with pytest.raises(NotFoundError, match="the table was rolled back"):
        list(lake.follow(TABLE, "a"))
    # A rollback to where the follower is, or after it, is none of its business.
    (other,) = lake.follow(TABLE, "b", until=first, mode="net")
    other.commit()
    (rest,) = lake.follow(TABLE, "b")
    assert len(rest.commits) == 1


def test_snapshots_that_expired_in_between(lake):
    first = append(lake)
    middle = append(lake)
    (batch,) = lake.follow(TABLE, "a", until=first)
    batch.commit()
    last = append(lake)
    expire(lake, middle)
    with pytest.raises(NotFoundError, match=f"between {first} and {last} have expired.*told apart"):
        list(lake.follow(TABLE, "a"))
    (net,) = lake.follow(TABLE, "a", mode="net")
    assert (net.since, net.until) == (first, last)
    with pytest.raises(NotFoundError, match="between the beginning and"):
        list(lake.follow(TABLE, "new"))
    (whole,) = lake.follow(TABLE, "new", mode="net")
    assert (whole.since, whole.until) == (None, last)


def test_a_position_that_expired_is_told_with_the_table_that_is_kept(lake):
    first = append(lake)
    append(lake)
    expire(lake, first)
    spec = FollowSpec(lake.ref(TABLE), "a", "changes", None, None, None, 100, None)
    source = SourceTable(lake, spec, None, kept="shop.copy")
    with pytest.raises(
        NotFoundError, match=f"follower a is at snapshot {first}, which has"
    ) as told:
        source.ranges(source.read(), first)
    assert "to fill shop.copy from the beginning" in told.value.hint


def test_until_is_a_version_or_a_branch(lake):
    first = append(lake)
    lake.catalog().load_table(TABLE).manage_snapshots().create_branch(first, "audit").commit()
    on_main, on_branch = append(lake), append(lake, branch="audit")
    (batch,) = lake.follow(TABLE, "a", until=first)
    batch.commit()
    assert list(lake.follow(TABLE, "a", until=first, wait=60)) == []
    (batch,) = lake.follow(TABLE, "b", until="audit")
    batch.commit()
    assert batch.until == on_branch
    assert [(each.name, each.branch, each.lag_commits) for each in lake.followers(TABLE)] == [
        ("a", "main", 1),
        ("b", "audit", 0),
    ]
    with pytest.raises(NotFoundError, match="or the follower read another branch"):
        list(lake.follow(TABLE, "b"))
    (batch,) = lake.follow(TABLE, "a")
    batch.commit()
    assert batch.until == on_main
    assert list(lake.follow(TABLE, "a", until=first)) == []


@pytest.mark.parametrize("name", ["", "a b", "-a", "a/b", "ä", "a" * 65, "a'; DROP", "a\n", "."])
def test_names_that_cannot_be_a_ref(lake, name):
    with pytest.raises(UsageError, match="cannot name a follower"):
        lake.follow(TABLE, name)


def test_arguments_that_make_no_sense(lake):
    with pytest.raises(UsageError, match="max_commits"):
        lake.follow(TABLE, "a", max_commits=0)
    with pytest.raises(UsageError, match="mode"):
        lake.follow(TABLE, "a", mode="all")
    with pytest.raises(UsageError, match="wait"):
        lake.follow(TABLE, "a", wait=0)
    with pytest.raises(NotFoundError, match="has no snapshot 7"):
        list(lake.follow(TABLE, "a", since=7))
    with pytest.raises(NotFoundError, match="no follower x"):
        lake.drop_follower(TABLE, "x")


def test_a_table_that_was_created_again(lake):
    append(lake)
    follower = iter(lake.follow(TABLE, "a", wait=0.01))
    batch = next(follower)
    lake.catalog().drop_table(TABLE)
    with pytest.raises(NotFoundError):
        batch.commit()
    lake.catalog().create_table(TABLE, ROWS.schema)
    append(lake)
    with pytest.raises(NotFoundError, match="dropped and created again"):
        batch.commit()
    with pytest.raises(NotFoundError, match="dropped and created again"):
        next(follower)


def test_waiting_for_commits(lake):
    stop = threading.Event()
    seen = []

    def consume():
        for batch in lake.follow(TABLE, "a", wait=0.01, stop=stop):
            batch.commit()
            seen.append(batch.until)

    thread = threading.Thread(target=consume)
    thread.start()
    for _ in range(2):
        snapshot_id = append(lake)
        until(lambda expected=snapshot_id: seen and seen[-1] == expected)
    stop.set()
    thread.join(10)
    assert not thread.is_alive()
    assert tag(lake) == seen[-1]


def test_a_tag_is_never_moved_to_an_expired_snapshot(lake):
    first = append(lake)
    append(lake)
    expire(lake, first)
    metadata = lake.reader().read(("shop", "orders"))
    move = TagMove("neve_follow_a", None, first, ("neve.follow.a", "{}"))
    with pytest.raises(NotFoundError, match="has expired"):
        move_tag(lake, lake.ref(TABLE), metadata.uuid, move)
