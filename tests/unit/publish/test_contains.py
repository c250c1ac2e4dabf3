"""Sets of segments as ranges."""

import json
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from neve.publish.contains import (
    CONTAINS,
    READ_FROM,
    contained_in,
    decode_contained,
    encode_contained,
    encode_read_from,
    has_segment,
    merge,
    overlaps,
    ranges_read,
    with_ranges,
    without,
)
from neve.publish.ranges import MARK_PREFIX, RANGES, Range, encode_ranges

RANGE = st.tuples(st.integers(1, 12), st.integers(0, 4)).map(lambda r: Range(r[0], r[0] + r[1]))
SEVERAL = st.lists(RANGE, max_size=4)


def numbers(ranges):
    return {n for r in ranges for n in range(r.first, r.last + 1)}


@given(SEVERAL, SEVERAL)
def test_ranges_behave_as_sets_of_numbers(first, second):
    assert numbers(merge(first)) == numbers(first)
    assert numbers(without(first, second)) == numbers(first) - numbers(second)
    contained = {"s": merge(first)}
    assert all(
        after.first > before.last + 1
        for before, after in zip(merge(first), merge(first)[1:], strict=False)
    )
    assert decode_contained(encode_contained(contained)) == contained
    for added in second:
        assert overlaps(contained, {"s": added}) == bool(numbers(first) & numbers([added]))
        assert not overlaps(contained, {"other": added})
        assert numbers(with_ranges(contained, {"s": added})["s"]) == numbers([*first, added])
    for number in range(1, 18):
        assert has_segment(contained, "s", number) == (number in numbers(first))


def history(*summaries, marks=None, others=None):
    return SimpleNamespace(
        summary_of=(others or {}).get,
        main_summaries=lambda: iter(summaries),
        main_id=1 if summaries else None,
        properties={f"{MARK_PREFIX}{stream}": str(mark) for stream, mark in (marks or {}).items()},
    )


def test_the_nearest_statement_counts_and_without_one_the_marks_do():
    ours = {CONTAINS: encode_contained({"s": (Range(1, 3),)})}
    older = {CONTAINS: encode_contained({"s": (Range(1, 1),)})}
    marks = {"s": 9}
    assert contained_in(history({}, ours, older, marks=marks)) == {"s": (Range(1, 3),)}
    # Of an earlier version, or its history was expired: nothing is to be written twice.
    assert contained_in(history({}, {}, marks=marks)) == {"s": (Range(1, 9),)}
    assert contained_in(history()) == {}


def test_rows_that_somebody_cherry_picked_are_contained():
    ours = {CONTAINS: encode_contained({"s": (Range(1, 3),)})}
    source = {RANGES: encode_ranges({"s": Range(7, 8)})}
    picked = {"source-snapshot-id": "5"}
    known = history(picked, ours, marks={"s": 9}, others={5: source})
    assert contained_in(known) == {"s": (Range(1, 3), Range(7, 8))}
    # Expired: what it had is unknown, so nothing is to be written twice.
    assert contained_in(history(picked, ours, marks={"s": 9})) == {"s": (Range(1, 9),)}


def test_batches_that_a_worker_of_an_earlier_version_added_are_contained():
    ours = {CONTAINS: encode_contained({"s": (Range(1, 3),)})}
    theirs = {RANGES: encode_ranges({"s": Range(4, 5), "t": Range(1, 2)})}
    expected = {"s": (Range(1, 5),), "t": (Range(1, 2),)}
    assert contained_in(history({}, theirs, ours, marks={"s": 9})) == expected


def test_a_batch_contains_what_it_read_and_not_what_was_retired_before():
    ranges = {"new": Range(1, 9), "known": Range(4, 9), "whole": Range(1, 2)}
    entry = encode_read_from({"new": 8, "known": 7, "whole": 1}, ranges)
    assert json.loads(entry[READ_FROM]) == {"new": 8}
    summary = {RANGES: encode_ranges(ranges), **entry}
    assert ranges_read(summary) == {**ranges, "new": Range(8, 9)}
    assert encode_read_from({"whole": 1}, {"whole": Range(1, 2)}) == {}
