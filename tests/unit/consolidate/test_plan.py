"""Which segments a batch takes, and what each table has yet to consume."""

import random
from itertools import pairwise

import numpy as np
import pytest

from neve.buffer.frame import EMPTY_SEGMENT_BYTES, Entry, heads_only, parse_entries
from neve.buffer.part_index import PartIndex
from neve.buffer.reader import KnownRequests, Segment
from neve.consolidate.duplicates import Identity, find_duplicates, possible_duplicates
from neve.consolidate.plan import (
    BYTES_OF_FILE,
    SMALLEST_PART,
    Progress,
    plan_batches,
    plan_tasks,
    position_of,
)
from neve.publish.ranges import Range


def segments(stream, *numbers, size=10):
    return [Segment(stream, number, size, f"{stream}/{number}") for number in numbers]


def numbers(batch):
    return [(segment.stream, segment.number) for segment in batch.segments]


def at(marks, **seen):
    """A table with these marks that is at least at position `seen`."""
    return Progress(marks, position_of(marks, seen))


def plan_one(waiting, progress, most_bytes):
    (batch,) = plan_batches(waiting, {"t": progress}, most_bytes)
    return numbers(batch)


def test_tables_at_the_same_position_share_a_batch():
    waiting = {"a": segments("a", 1, 2, 3)}
    progress = {"sum": at({"a": 2}), "gauge": at({}, a=2), "summary": at({}, a=2)}
    (batch,) = plan_batches(waiting, progress, 1000)
    assert numbers(batch) == [("a", 3)]
    # From right behind each mark: what lies in between was seen to hold no rows.
    assert batch.ranges == {
        "sum": {"a": Range(3, 3)},
        "gauge": {"a": Range(1, 3)},
        "summary": {"a": Range(1, 3)},
    }


def test_a_table_that_is_far_behind_has_a_batch_of_its_own_and_the_others_come_first():
    waiting = {"a": segments("a", *range(1, 8))}
    batches = plan_batches(waiting, {"sum": at({"a": 1}), "gauge": at({"a": 6})}, 20)
    assert [(list(batch.ranges), numbers(batch)) for batch in batches] == [
        (["gauge"], [("a", 7)]),
        (["sum"], [("a", 2), ("a", 3)]),
    ]


def test_a_stream_whose_next_segment_does_not_fit_waits_also_if_a_later_one_would_fit():
    waiting = {"a": segments("a", 1, size=15), "b": segments("b", 1, 2) + segments("b", 3, size=1)}
    assert plan_one(waiting, at({}), 20) == [("a", 1)]
    waiting["b"] = segments("b", 1, size=1) + segments("b", 2) + segments("b", 3, size=1)
    assert plan_one(waiting, at({}), 20) == [("a", 1), ("b", 1)]


def test_a_table_past_everything_has_no_batch():
    (batch,) = plan_batches({"a": segments("a", 1)}, {"sum": at({"a": 1}), "gauge": at({})}, 1000)
    assert batch.ranges == {"gauge": {"a": Range(1, 1)}}


def test_ranges_begin_behind_the_mark_also_where_segments_were_retired_without_rows():
    (batch,) = plan_batches({"a": segments("a", 7, 8)}, {"gauge": at({"a": 4}, a=6)}, 1000)
    assert batch.ranges == {"gauge": {"a": Range(5, 8)}}


def test_a_batch_is_bounded_takes_turns_and_never_leaves_a_gap():
    waiting = {"a": segments("a", 1, 2, 3), "b": segments("b", 5, 6)}
    assert plan_one(waiting, at({}), 30) == [("a", 1), ("a", 2), ("b", 5)]
    uneven = {"a": [*segments("a", 1), *segments("a", 2, size=99), *segments("a", 3)]}
    assert plan_one(uneven, at({}), 50) == [("a", 1)]


def test_a_segment_larger_than_a_batch_is_taken_alone():
    assert plan_one({"a": segments("a", 1, size=99)}, at({}), 10) == [("a", 1)]


def test_nothing_waiting_is_no_batch():
    assert plan_batches({"a": segments("a", 1)}, {"t": at({"a": 1})}, 10) == []


def sizes(tasks):
    """Return how many bytes each task reads."""
    return [
        sum((one.bytes if one.end is None else one.end) - one.start for one in task)
        for task in tasks
    ]


def test_a_burst_is_cut_into_one_task_for_each_core():
    burst = [*segments("a", 1, size=64), *segments("a", 2, size=2)]
    tasks = plan_tasks(burst, 32, parallelism=2)
    assert [[(one.number, one.start, one.end) for one in task] for task in tasks] == [
        [(1, 0, 33)],
        [(1, 33, 64), (2, 0, None)],
    ]
    assert plan_tasks([], 25) == []


@pytest.mark.parametrize(
    ("size", "parallelism", "tasks"),
    [
        (31, 2, 1),
        (63, 2, 1),
        (64, 2, 2),
        (100, 2, 2),
        (100, 4, 3),
        (127, 4, 3),
        (160, 4, 4),
        (131, 2, 2),
        (200, 2, 4),
        (1000, 2, 22),
        (1024, 2, 22),
        (160, 3, 3),
    ],
)
def test_as_many_tasks_as_pieces_and_a_multiple_of_the_cores(size, parallelism, tasks):
    found = sizes(plan_tasks(segments("a", 1, size=size), 32, parallelism))
    assert (len(found), sum(found)) == (tasks, size)
    assert max(found) - min(found) <= 1


@pytest.mark.parametrize("parallelism", [1, 2, 3, 8])
def test_files_are_large_enough_where_all_cores_have_enough(parallelism):
    """Records take 0.77 to 0.88 times as many bytes in a file as in a segment."""
    for size in (*range(1, 1024, 7), 5000):
        tasks = sizes(plan_tasks(segments("a", 1, size=size * 1000), 32_000, parallelism))
        if 0.77 * size >= 32.5 * parallelism:
            assert 0.77 * min(tasks) >= 32_000
            assert len(tasks) % parallelism == 0
        else:
            assert len(tasks) == max(1, min(size // 32, parallelism))
        assert max(tasks) < 2 * BYTES_OF_FILE * 32_000


@pytest.mark.parametrize("count", [1, 2, 5, 6, 7, 100, 119, 120])
@pytest.mark.parametrize("size", [10, 64, 300])
def test_tasks_leave_no_small_remainder_and_cover_every_byte_once(count, size):
    whole = segments("a", *range(1, count + 1), size=size)
    tasks = plan_tasks(whole, 60)
    found = sizes(tasks)
    assert sum(found) == size * count
    assert min(found) >= min(size * count, 60 * (1 - SMALLEST_PART) - 1)
    parts = [one for task in tasks for one in task]
    assert [one.number for one in parts if not one.start] == [one.number for one in whole]
    for one, following in pairwise(parts):
        is_cut = one.end not in (None, one.bytes)
        assert following.start == (one.end if is_cut else 0)


def test_a_segment_that_is_empty_is_read_as_well():
    tasks = plan_tasks([*segments("a", 1, size=0), *segments("a", 2), *segments("a", 3, size=0)], 5)
    assert [one.number for task in tasks for one in task if not one.start] == [1, 2, 3]


def identity(stream, segment, key, at=0, *, is_retired=False):
    return Identity(at, stream, segment, 0, key, is_retired)


def test_of_two_copies_in_a_batch_the_first_received_is_kept():
    copies = [identity("a", 1, b"k", at=5), identity("b", 1, b"k", at=3)]
    ranges = {"a": Range(1, 1), "b": Range(1, 1)}
    assert find_duplicates(copies, {}, ranges, 100) == {("a", 1, 0)}


def test_a_copy_of_what_was_consumed_is_dropped_whichever_came_first():
    copies = [identity("a", 1, b"k", at=5), identity("b", 1, b"k", at=3)]
    assert find_duplicates(copies, {"a": 1}, {"b": Range(1, 1)}, 100) == {("b", 1, 0)}


def test_outside_the_window_or_with_dedup_off_both_are_kept():
    copies = [identity("a", 1, b"k", at=5), identity("b", 1, b"k", at=300)]
    ranges = {"a": Range(1, 1), "b": Range(1, 1)}
    assert find_duplicates(copies, {}, ranges, 100) == frozenset()
    assert find_duplicates(copies, {}, ranges, 0) == frozenset()


def test_a_copy_of_what_was_retired_is_dropped_also_past_the_mark():
    """Segment 2 had no rows for the table; its declaration has the hashes of segment 1 as well."""
    copies = [identity("a", 2, b"k", is_retired=True), identity("b", 1, b"k", at=3)]
    of_batch = {"b": Range(1, 1)}
    assert find_duplicates(copies, {"a": 1}, of_batch, 100) == {("b", 1, 0)}
    # A table that was made since has nothing of the stream.
    assert find_duplicates(copies, {}, of_batch, 100) == frozenset()
    # Nor if the batch has later segments of that stream; and what was retired is no copy of others.
    later = {"a": Range(1, 4), **of_batch}
    assert find_duplicates(copies, {}, later, 100) == frozenset()
    assert find_duplicates(copies, {"b": 1}, {"a": Range(1, 4)}, 100) == frozenset()


def test_what_lies_beyond_the_batch_neither_drops_nor_is_dropped():
    copies = [identity("a", 2, b"k", at=1), identity("b", 1, b"k", at=3)]
    ranges = {"a": Range(1, 1), "b": Range(1, 1)}
    assert find_duplicates(copies, {}, ranges, 100) == frozenset()


def known(stream, number, requests, *, is_retired=False):
    """Return requests, given by their times and contents, as a reader knows them."""
    entries = [Entry(at, b"s" * 16, content.ljust(32), 0, 0, 1, 1, 0) for at, content in requests]
    packed = heads_only(entries, closing=False)[EMPTY_SEGMENT_BYTES:]
    return KnownRequests(stream, number, is_retired, PartIndex(packed, is_closing=False))


def test_requests_are_found_by_their_hashes_in_the_order_of_a_part():
    contents = [b"c", b"a", b"b", b"a", b"d"]
    index = known("s", 1, [(0, content) for content in contents]).index
    a, d, other = (known("s", 1, [(0, content)]).index.hashes[0] for content in (b"a", b"d", b"e"))
    assert index.positions_of(np.unique([a, d, other])) == [1, 3, 4]
    assert index.positions_of(np.empty(0, np.uint64)) == []
    assert known("s", 1, []).index.positions_of(np.array([a])) == []


def test_copies_are_found_among_possible_ones_as_among_all():
    draw = random.Random(1)
    for _ in range(200):
        parts = [
            known(
                stream,
                number,
                [(draw.randrange(300), b"k%d" % draw.randrange(12)) for _ in range(4)],
                is_retired=number == 1 and stream != "c",
            )
            for stream in "abc"
            for number in (1, 2, 3)
        ]
        everything = [
            Identity.of(part, position, entry)
            for part in parts
            for position, entry in enumerate(parse_entries(part.index.packed))
        ]
        marks = {stream: draw.randrange(3) for stream in "abc"}
        last = {stream: 3 - draw.randrange(2) for stream in "ab"}
        ranges = {stream: Range(marks[stream] + 1, number) for stream, number in last.items()}
        read = {(part.stream, part.number) for part in parts if not part.is_retired}
        found, expected = (
            {place for place in find_duplicates(requests, marks, ranges, 100) if place[:2] in read}
            for requests in (possible_duplicates(parts, last), everything)
        )
        assert found == expected
