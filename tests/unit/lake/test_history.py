"""The history of a table, by its metadata alone."""

import time
from datetime import datetime, timezone

import pytest

from neve.lake.history import history, not_current_since
from neve.lake.metadata_json import MetadataJson

START = 1_793_491_200_000  # 2026-11-01T00:00:00Z


def metadata(snapshots, log, refs=None):
    """Make metadata: snapshots as (id, parent, summary); the log as (id, milliseconds)."""
    return MetadataJson(
        "x",
        {
            "current-snapshot-id": log[-1][0] if log else None,
            "snapshots": [
                {"snapshot-id": number, "parent-snapshot-id": parent, "timestamp-ms": START,
                 "summary": summary}
                for number, parent, summary in snapshots
            ],
            "snapshot-log": [
                {"snapshot-id": number, "timestamp-ms": START + after} for number, after in log
            ],
            "refs": {name: {"snapshot-id": number, "type": "tag"}
                     for name, number in (refs or {}).items()},
        },
    )  # fmt: skip


def test_the_newest_comes_first_with_the_times_of_the_log():
    table = metadata(
        [(5, None, {}), (3, 5, {}), (9, 5, {}), (4, 9, {}), (8, 4, {})],
        # 3 was rolled back; 9 was staged and became visible with 4; 8 is staged still.
        [(5, 1), (3, 20), (5, 25), (4, 30)],
        {"first": 5, "v1": 5, "waiting": 8},
    )
    shown = history(table)
    assert [(each.snapshot_id, each.parent_id, each.is_on_main) for each in shown] == [
        (8, 4, False),
        (4, 9, True),
        (9, 5, True),
        (3, 5, False),
        (5, None, True),
    ]
    after = [round(each.committed_at.timestamp() * 1000) - START for each in shown]
    assert after == [0, 30, 30, 20, 1]
    assert [each.refs for each in shown] == [("waiting",), ("main",), (), (), ("first", "v1")]
    assert shown[-1].committed_at == datetime(2026, 11, 1, 0, 0, 0, 1000, timezone.utc)


@pytest.mark.parametrize(
    ("summary", "rows"),
    [
        ({"operation": "append", "added-records": "3"}, (3, 0)),
        ({"operation": "delete", "deleted-records": "2"}, (0, 2)),
        ({"operation": "overwrite", "added-records": "5", "deleted-records": "6"}, (5, 6)),
        ({"operation": "overwrite", "added-records": "1", "added-position-deletes": "1"}, (1, 1)),
        # A deletion vector of three rows in the place of one of two.
        ({"operation": "delete", "added-position-deletes": "3", "removed-position-deletes": "2"},
         (0, 1)),
        ({"operation": "delete", "added-equality-deletes": "1"}, (0, None)),
        ({"operation": "replace", "added-records": "9", "deleted-records": "9"}, (0, 0)),
    ],
)  # fmt: skip
def test_rows_that_a_commit_added_and_removed(summary, rows):
    table = metadata([(1, None, {**summary, "total-records": "9"})], [(1, 0)])
    (snapshot,) = history(table)
    assert (snapshot.operation, snapshot.added_rows, snapshot.removed_rows) == (
        summary["operation"],
        *rows,
    )


def test_a_writer_that_counts_nothing():
    (snapshot,) = history(metadata([(1, None, {"operation": "append"})], [(1, 0)]))
    assert (snapshot.added_rows, snapshot.removed_rows) == (None, None)


def test_a_table_without_snapshots():
    assert history(metadata([], [])) == ()


def test_ten_thousand_snapshots_take_a_moment():
    numbers = range(1, 10_001)
    table = metadata(
        [(number, number - 1 or None, {"total-records": "1"}) for number in numbers],
        [(number, number) for number in numbers],
    )
    started = time.process_time()
    assert len(history(table)) == 10_000
    assert time.process_time() - started < 1


def test_a_version_of_a_branch_is_current_there_until_the_next_one():
    """Nobody has read 2 as `main`; somebody may have read it by its branch, just before 3."""
    table = metadata([(1, None, {}), (2, 1, {}), (3, 2, {})], [(1, 0)], {"dev": 3})
    table.snapshots[3]["timestamp-ms"] = START + 500
    assert not_current_since(table) == {2: START + 500, 3: START + 500}
