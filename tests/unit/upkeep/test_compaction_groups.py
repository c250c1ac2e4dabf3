"""Which files are rewritten together: closed hours once, days once more, and never again."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

from neve.limits import MIB
from neve.upkeep.compaction import plan_groups
from neve.upkeep.layout import SmallFile
from neve.upkeep.policy import CompactionPolicy

POLICY = CompactionPolicy(min_files=3)
DAY = 24
# 2026-11-18 00:00 UTC, in hours since 1970.
TODAY = 498_600
NOW = (TODAY + 12) * 3600.0 + 1200
_names = count()


def small(hour=None, *, first=None, rewritten=False, size=1000, deleted=0, partition=0):
    name = f"file-{next(_names)}"
    first = hour if first is None else first
    return SmallFile(name, (0, (partition,)), size, 100, deleted, rewritten, first, hour)


def planned(files, policy=POLICY, now=NOW):
    return [(group.why, len(group.paths)) for group in plan_groups(files, policy, now)]


def test_a_closed_hour_is_rewritten_and_the_open_one_is_not():
    files = [small(TODAY + hour) for hour in (10, 11, 12) for _ in range(4)]
    assert planned(files) == [
        ("closed hour 2026-11-18 10:00", 4),
        ("closed hour 2026-11-18 11:00", 4),
    ]


def test_an_hour_settles_before_it_is_closed():
    files = [small(TODAY + 11) for _ in range(4)]
    at_the_end = (TODAY + 12) * 3600.0
    assert planned(files, now=at_the_end + POLICY.settle_seconds - 1) == []
    assert planned(files, now=at_the_end + POLICY.settle_seconds) != []


def test_late_files_do_not_drag_a_rewritten_hour_along():
    files = [small(TODAY + 10, rewritten=True), *(small(TODAY + 10) for _ in range(3))]
    ((_, rewritten),) = planned(files)
    assert rewritten == 3


def test_how_often_rows_were_written_is_told_by_their_file():
    new, hour = small(TODAY), small(TODAY, rewritten=True)
    day = small(TODAY - 1, first=TODAY - 24, rewritten=True)
    late = small(TODAY - 1, first=TODAY - 24)
    other = small(rewritten=True)
    assert [file.writes for file in (new, hour, day, late, other)] == [1, 2, 3, 1, 2]


def test_a_file_at_the_end_of_an_hour_belongs_to_the_next():
    files = [small(TODAY + 10, first=TODAY + 9) for _ in range(3)]
    assert planned(files) == [("closed hour 2026-11-18 10:00", 3)]


def test_a_day_that_is_over_joins_its_hours_once():
    hours = [small(TODAY - 24 + hour, rewritten=True) for hour in range(24)]
    assert planned(hours) == [("closed day 2026-11-17", 24)]
    day = small(TODAY - 1, first=TODAY - 24, rewritten=True)
    late = [small(TODAY - 3, rewritten=True) for _ in range(3)]
    assert planned([day, *late]) == []


def test_every_row_is_rewritten_at_most_twice():
    """Play two weeks, a file every ten minutes and late ones now and then."""
    files: dict[str, SmallFile] = {}
    times: dict[str, int] = {}
    for step in range(14 * 24 * 6):
        now = (TODAY + step / 6) * 3600.0 + 60
        hour = int(now // 3600)
        for new in (small(hour), *([small(hour - 30)] if step % 7 == 0 else [])):
            files[new.path], times[new.path] = new, 0
        for group in plan_groups(files.values(), POLICY, now):
            inputs = [files.pop(path) for path in group.paths]
            output = small(
                max(each.hour for each in inputs),
                first=min(each.first_hour for each in inputs),
                rewritten=True,
                size=sum(each.bytes for each in inputs),
            )
            files[output.path] = output
            times[output.path] = 1 + max(times.pop(each.path) for each in inputs)
    assert max(times.values()) == 2
    # Of 2,304: three late files a time are joined, which is the least that the policy allows.
    assert len(files) < 14 * 12


def test_files_of_other_tables_are_joined_by_size():
    tiny, larger = [small(size=1000) for _ in range(3)], [small(size=5 * MIB) for _ in range(2)]
    assert planned([*tiny, *larger]) == [("3 files below 256 KiB", 3)]


def test_files_of_many_days_are_joined_apart_and_name_how_many_days_they_make():
    shared = [replace(small(), partition=(1, ()), is_shared=True) for _ in range(3)]
    (group,) = plan_groups([*shared, small(), small()], POLICY, NOW)
    assert (group.why, group.most_days) == ("3 files of many days below 256 KiB", 24)
    assert [half.most_days for half in group.halves()] == [8, 16]
    (large,) = plan_groups([replace(each, bytes=20 * MIB) for each in shared], POLICY, NOW)
    assert large.most_days == 60


def test_files_with_deleted_rows_are_rewritten_however_few_they_are():
    files = [small(size=900 * MIB, deleted=20), small(size=900 * MIB, deleted=19)]
    assert planned(files) == [("20 of 100 rows are deleted", 1)]


def test_groups_are_bounded_and_stay_in_a_partition():
    policy = CompactionPolicy(min_files=2, max_group_bytes=25_000)
    files = [small(size=10_000, partition=number % 2) for number in range(8)]
    groups = plan_groups(files, policy, NOW)
    assert [len(group.paths) for group in groups] == [2, 2, 2, 2]
    by_path = {file.path: file.partition for file in files}
    for group in groups:
        assert {by_path[path] for path in group.paths} == {group.partition}
        first, second = group.halves()
        assert first.paths + second.paths == group.paths


def test_a_bound_below_two_files_makes_no_file_a_group_of_its_own():
    policy = CompactionPolicy(min_files=2, max_group_bytes=1)
    assert [n for _, n in planned([small() for _ in range(5)], policy)] == [2, 2]
    assert [n for _, n in planned([small(deleted=50) for _ in range(2)], policy)] == [1, 1]
