"""Groups that are written side by side, and committed by one thread."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from neve.errors import StorageError
from neve.lake.compaction import WrittenGroup
from neve.upkeep.compaction import FileGroup
from neve.upkeep.maintenance_report import MaintenanceReport
from neve.upkeep.table_rewriting import TableRewriting


class Rewriter:
    """Writes each group in `seconds`, by its own clock."""

    def __init__(self, seconds=1.0, loses="", fails="") -> None:
        self.seconds, self.loses, self.fails = seconds, loses, fails
        self.now = 0.0
        self.commits: list[str] = []

    def write(self, paths, _order, _output):
        self.now += self.seconds
        if paths[0] == self.fails:
            raise StorageError("unreadable")
        return WrittenGroup(paths[0], 1, 10, len(paths), None, self)

    def commit(self, groups):
        self.commits.append("".join(group.id for group in groups))
        return [group for group in groups if group.id == self.loses]


def group(name, *, is_closed=True):
    return FileGroup((0, ()), name, (name, "other"), 100, 10, 0, 1, is_closed)


def rewrite(rewriter, groups, at_once=1):
    report = MaintenanceReport("otel.traces")
    lake = SimpleNamespace(progress=lambda _: None)
    plan = SimpleNamespace(table="otel.traces", target_file_bytes=1, order=())
    rewriting = TableRewriting(lake, plan, rewriter, report, clock=lambda: rewriter.now)
    return rewriting.rewrite(groups, at_once, lambda each: each.why != "forbidden"), report


def test_closed_hours_that_are_written_within_ten_seconds_share_a_commit():
    rewriter = Rewriter(seconds=4)
    lost, report = rewrite(rewriter, [group(name) for name in "abcdefg"])
    assert rewriter.commits == ["abc", "def", "g"]
    assert (lost, report.actions, report.rewritten_files, report.new_files) == ([], 7, 14, 7)
    assert (report.rewritten_bytes, report.new_bytes) == (700, 70)


def test_files_that_a_merge_may_change_are_committed_at_once():
    rewriter = Rewriter()
    rewrite(rewriter, [group(name, is_closed=False) for name in "abc"])
    assert rewriter.commits == ["a", "b", "c"]


def test_groups_that_lost_are_returned():
    lost, report = rewrite(Rewriter(loses="b"), [group(name) for name in "abc"])
    assert [each.why for each in lost] == ["b"]
    assert (report.actions, report.conflicts) == (2, 1)


@pytest.mark.parametrize("at_once", [1, 3])
def test_a_group_that_cannot_be_written_stops_no_other(at_once):
    rewriter = Rewriter(fails="b")
    with pytest.raises(StorageError, match="unreadable"):
        rewrite(rewriter, [group(name) for name in "abcd"], at_once)
    assert sorted("".join(rewriter.commits)) == ["a", "c", "d"]


def test_what_may_not_begin_is_left():
    rewriter = Rewriter()
    rewrite(rewriter, [group("a"), group("forbidden")])
    assert rewriter.commits == ["a"]
