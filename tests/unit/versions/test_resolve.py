"""Which snapshots a version or a range means, by a table's metadata alone."""

import pytest

from neve.errors import NotFoundError, UsageError
from neve.lake.metadata_json import MetadataJson
from neve.versions.resolve import resolve_range, resolve_version

MINUTE = 60_000
TOTALS = ("records", "data-files")
START = 1_793_491_200_000  # 2026-11-01T00:00:00Z


def table(parents, log, refs=None, current=None):
    """Make metadata: snapshots with their parents; the log as (snapshot, minute)."""
    return MetadataJson(
        "x",
        {
            "format-version": 2,
            "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
            "location": "file:///t",
            "last-sequence-number": len(parents),
            "last-updated-ms": START,
            "last-column-id": 1,
            "schemas": [{"type": "struct", "schema-id": 0, "fields": [
                {"id": 1, "name": "id", "required": False, "type": "long"}]}],
            "current-schema-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": []}],
            "default-spec-id": 0,
            "last-partition-id": 999,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "default-sort-order-id": 0,
            "current-snapshot-id": (current or log[-1][0]) if log else None,
            "snapshots": [
                {"snapshot-id": number, "parent-snapshot-id": parent, "sequence-number": number,
                 "timestamp-ms": START, "manifest-list": "x", "summary": summary_of(parent)}
                for number, parent in parents.items()
            ],
            "snapshot-log": [
                {"snapshot-id": number, "timestamp-ms": START + minute * MINUTE}
                for number, minute in log
            ],
            "refs": {name: {"snapshot-id": number, "type": "tag"}
                     for name, number in (refs or {}).items()},
        }
    )  # fmt: skip


def summary_of(parent):
    """Return what a writer counts that adds one file to what was there."""
    totals = {f"total-{each}": str(1 + (parent is not None)) for each in TOTALS}
    return {"operation": "append", **{f"added-{each}": "1" for each in TOTALS}, **totals}


LINE = table({1: None, 2: 1, 3: 2}, [(1, 0), (2, 10), (3, 20)], {"v2": 2, "2026-11-01": 3})


def ids(found):
    return found.start_id, [snapshot.snapshot_id for snapshot in found.commits]


@pytest.mark.parametrize(
    ("since", "until", "expected"),
    [
        (1, 3, (1, [2, 3])),
        ("v2", None, (2, [3])),
        (3, None, (3, [])),
        (None, 2, (None, [1, 2])),
        (None, None, (None, [1, 2, 3])),
        # A time between two commits is the earlier one; before the first, the beginning.
        ("2026-11-01T00:15:00Z", None, (2, [3])),
        ("2026-11-01T00:10:00", None, (2, [3])),
        ("2026-11-01T01:10:00+01:00", None, (2, [3])),
        ("2026-11-01T00:09:59.999999", None, (1, [2, 3])),
        ("2026-10-31", None, (None, [1, 2, 3])),
        ("2026-10-31", "2026-10-31T12:00:00Z", (None, [])),
        # A ref that looks like a time is a ref.
        ("2026-11-01", None, (3, [])),
    ],
)
def test_ranges(since, until, expected):
    assert ids(resolve_range("a.t", LINE, since, until)) == expected


def test_a_text_of_digits_is_a_ref_then_an_id_then_a_day():
    days = {"20261101": 2, "3": 1}
    line = table({1: None, 2: 1, 3: 2}, [(1, -3000), (2, 0), (3, 20)], days)
    named = {text: resolve_version("a.t", line, text) for text in ("20261101", "3", "2")}
    assert named == {"20261101": 2, "3": 1, "2": 2}
    assert resolve_version("a.t", line, 3) == 3
    assert resolve_version("a.t", line, "20261031") == 1
    assert resolve_version("a.t", line, "20261102") == 3
    with_id = table({20261102: None}, [(20261102, 0)])
    assert resolve_version("a.t", with_id, "20261102") == 20261102
    for text in ("20261301", "7", "30517296755745970"):
        with pytest.raises(NotFoundError, match=f"has no snapshot {text}"):
            resolve_version("a.t", line, text)
    with pytest.raises(UsageError, match="no tag or branch"):
        resolve_version("a.t", line, "7" * 5000)


def test_a_version():
    assert resolve_version("a.t", LINE, 2) == 2
    assert resolve_version("a.t", LINE, "v2") == 2
    assert resolve_version("a.t", LINE, "2026-11-01T00:19:59Z") == 2
    with pytest.raises(NotFoundError, match=r"had no snapshot at 2026-10-31 yet"):
        resolve_version("a.t", LINE, "2026-10-31")


def test_a_time_in_a_log_of_clocks_that_differ():
    """As Spark and PyIceberg have it: the last entry that is not later than the time."""
    skewed = table({1: None, 2: 1, 3: 2}, [(1, 10), (2, 9), (3, 20)])
    assert resolve_version("ns.t", skewed, "2026-11-01T00:09:30") == 2
    assert resolve_version("ns.t", skewed, "2026-11-01T00:10:00") == 2


def test_a_time_before_the_log_whose_snapshots_have_expired():
    # Iceberg removes from the log what has expired, and all before it.
    expired = table({1: None, 3: 2, 4: 3}, [(3, 20), (4, 30)], {"kept": 1})
    with pytest.raises(
        NotFoundError,
        match=r"a.t: its history log begins after 2026-11-01; older snapshots have expired",
    ) as told:
        resolve_version("a.t", expired, "2026-11-01")
    assert told.value.hint.startswith("refs: kept, main; newest: 4 (")


def test_ids_are_not_ordered():
    shuffled = table({30: None, 10: 30, 20: 10}, [(30, 0), (10, 1), (20, 2)])
    assert ids(resolve_range("a.t", shuffled, 30, None)) == (30, [10, 20])


def test_a_snapshot_that_was_rolled_back_is_no_start():
    rolled_back = table({1: None, 2: 1, 3: 1}, [(1, 0), (2, 10), (1, 20), (3, 30)])
    with pytest.raises(NotFoundError, match=r"2 is no ancestor of 3; it was rolled back") as told:
        resolve_range("a.t", rolled_back, 2, None)
    assert "ancestors: 3 (2026-11-01T00:30:00.000+00:00), 1" in told.value.hint
    # The same by a time at which it was current: what a reader saw then is not part of this line.
    with pytest.raises(NotFoundError, match=r"2 is no ancestor"):
        resolve_range("a.t", rolled_back, "2026-11-01T00:15:00Z", None)
    assert ids(resolve_range("a.t", rolled_back, "2026-11-01T00:25:00Z", None)) == (1, [3])


def test_expired_snapshots_are_told_with_the_oldest_that_is_there():
    expired = table({3: 2, 4: 3}, [(3, 20), (4, 30)])
    for since in (None, "2026-10-31"):
        with pytest.raises(
            NotFoundError, match=r"between the beginning and 4 have expired"
        ) as told:
            resolve_range("a.t", expired, since, None)
        assert "the oldest version still there is 3" in told.value.hint
    with pytest.raises(NotFoundError, match="has no snapshot 2"):
        resolve_range("a.t", expired, 2, None)
    assert ids(resolve_range("a.t", expired, 3, None)) == (3, [4])


def test_a_start_after_the_end():
    with pytest.raises(UsageError, match=r"begins at snapshot 3, after its end 1"):
        resolve_range("a.t", LINE, 3, 1)
    with pytest.raises(UsageError, match=r"begins at snapshot 1, after its end \(empty\)"):
        resolve_range("a.t", LINE, 1, "2026-10-31")


@pytest.mark.parametrize("text", ["v3", "2026-13-01", "", "yesterday"])
def test_neither_a_ref_nor_a_time(text):
    with pytest.raises(UsageError, match=f"no tag or branch '{text}', and it is no") as told:
        resolve_range("a.t", LINE, text, None)
    assert told.value.hint.startswith("refs: 2026-11-01, main, v2; newest: 3 (2026-11-01T00")


def test_a_table_without_snapshots():
    empty = table({}, [])
    assert ids(resolve_range("a.t", empty, None, None)) == (None, [])
    assert ids(resolve_range("a.t", empty, "2026-10-31", None)) == (None, [])
    with pytest.raises(NotFoundError, match="has no snapshot 7"):
        resolve_version("a.t", empty, 7)


def test_net_needs_only_the_two_ends():
    gap = table({1: None, 3: 2, 4: 3}, [(1, 0), (3, 20), (4, 30)], {"first": 1})
    with pytest.raises(NotFoundError, match="can no longer be told apart") as told:
        resolve_range("a.t", gap, "first", None)
    assert "mode net compares the two ends" in told.value.hint
    net = resolve_range("a.t", gap, "first", None, only_ends=True)
    assert (net.start_id, net.end_id, net.is_complete) == (1, 4, False)
    with pytest.raises(NotFoundError, match="have expired"):
        resolve_range("a.t", gap, None, None, only_ends=True)


def test_a_step_of_several_commits_has_no_name():
    found = resolve_range("a.t", LINE, 1, None)
    assert [commit.snapshot_id for commit in found.steps] == [2, 3]
    assert (ids(found.ends), found.ends.steps) == ((1, [3]), (None,))
    last = resolve_range("a.t", LINE, 2, None)
    assert last.ends.steps == last.steps == last.commits
    assert resolve_range("a.t", LINE, 3, None).ends.steps == ()


def test_commits_have_the_times_of_the_history_log():
    # 2 was staged, then published together with 3.
    published = table({1: None, 2: 1, 3: 2}, [(1, 0), (3, 20)])
    found = resolve_range("a.t", published, 1, None)
    assert [commit.committed_ms - START for commit in found.commits] == [20 * MINUTE] * 2


def first_of(sequence_number, **summary):
    """Make a history whose oldest snapshot has no parent."""
    history = table({1: None, 2: 1}, [(1, 0), (2, 10)])
    oldest = history.document["snapshots"][0]
    oldest["sequence-number"] = sequence_number
    oldest["summary"] |= {k.replace("_", "-"): v for k, v in summary.items()}
    return history


@pytest.mark.parametrize(
    ("history", "is_complete"),
    [
        (first_of(1), True),
        # It has, or removed, what it did not add; or nobody knows of the commits before it.
        (first_of(1, total_data_files="3"), False),
        (first_of(1, deleted_data_files="2"), False),
        (first_of(1, total_delete_files="1"), False),
        (first_of(7), False),
    ],
)
def test_a_first_snapshot_that_lost_its_parent(history, is_complete):
    if is_complete:
        assert ids(resolve_range("a.t", history, None, None)) == (None, [1, 2])
        return
    with pytest.raises(NotFoundError, match="between the beginning and 2 may have expired") as told:
        resolve_range("a.t", history, None, None)
    assert "the oldest version still there is 1" in told.value.hint
    with pytest.raises(NotFoundError, match="its history log begins after 2026-10-01; older"):
        resolve_version("a.t", history, "2026-10-01")
