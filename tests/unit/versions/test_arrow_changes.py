"""Rows that come and go, cancelled and paired in Arrow: as multisets of rows say."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neve.versions.arrow_changes import KINDS, find_changes, find_net_changes

VALUES = [None, 0.0, -0.0, math.nan, 1.5]
ROWS = st.lists(
    st.tuples(
        st.sampled_from((1, -1)),
        st.integers(0, 2),
        st.sampled_from((None, 1, 2)),
        st.sampled_from(VALUES),
        st.sampled_from([None, [], [("a", -0.0)], [("a", 0.0)], [("a", 1.0), ("b", None)]]),
    ),
    max_size=12,
)


def given_rows(rows):
    table = pa.table(
        {
            "id": pa.array([row[2] for row in rows], pa.int64()),
            "ratio": pa.array([row[3] for row in rows], pa.float64()),
            "dict": pa.array([row[4] for row in rows], pa.map_(pa.string(), pa.float64())),
        }
    )
    signs = np.array([row[0] for row in rows], np.int8)
    steps = np.array([row[1] for row in rows], np.int64)
    return table, signs, steps


def found(rows, both, keys=()):
    kept, kinds = find_changes(*given_rows(rows), both, keys)
    return Counter(
        (KINDS[kind], repr(rows[number][1:])) for number, kind in zip(kept, kinds, strict=True)
    )


@given(ROWS)
def test_rows_that_are_the_same_cancel_inside_a_step(rows):
    expected = Counter()
    surplus = Counter()
    for sign, *values in rows:
        surplus[repr(tuple(values))] += sign
    for (_, step, *_), text in zip(rows, (repr(row[1:]) for row in rows), strict=True):
        if step != 2 and surplus[text]:
            expected[("insert" if surplus[text] > 0 else "delete"), text] = abs(surplus[text])
    for sign, *values in rows:
        if values[0] == 2:
            expected[("insert" if sign > 0 else "delete"), repr(tuple(values))] += 1
    assert found(rows, both={0, 1}) == expected


@given(ROWS)
def test_what_lasts_has_the_step_since_which_it_is_so(rows):
    expected = Counter()
    for text in {repr(row[2:]) for row in rows}:
        counts = [0]
        for step in range(3):
            signs = [row[0] for row in rows if row[1] == step and repr(row[2:]) == text]
            counts.append(counts[-1] + sum(signs))
        last, kind = counts[-1], "insert" if counts[-1] > 0 else "delete"
        for level in range(1, abs(last) + 1):
            reached = [count * (1 if last > 0 else -1) >= level for count in counts]
            step = max(at for at in range(3) if not reached[at] and reached[at + 1])
            expected[kind, step, text] += 1
    kept, kinds, steps = find_net_changes(*given_rows(rows), keys=())
    assert expected == Counter(
        (KINDS[kind], step, repr(rows[number][2:]))
        for number, kind, step in zip(kept, kinds, steps, strict=True)
    )


def test_both_rows_of_a_net_update_have_its_last_step():
    rows = [(-1, 0, 1, 0.5, None), (1, 1, 1, 1.5, None), (1, 1, 2, 1.5, None)]
    _, kinds, steps = find_net_changes(*given_rows(rows), keys=[0])
    assert [KINDS[kind] for kind in kinds] == ["update_preimage", "update_postimage", "insert"]
    assert list(steps) == [1, 1, 1]


@pytest.mark.parametrize(
    ("rows", "kinds"),
    [
        ([(-1, 0, 1, 0.5, None), (1, 0, 1, 1.5, None)], ["update_postimage", "update_preimage"]),
        # A key that another step has, or that is there twice, is no pair.
        ([(-1, 0, 1, 0.5, None), (1, 1, 1, 1.5, None)], ["delete", "insert"]),
        (
            [(-1, 0, 1, 0.5, None), (1, 0, 1, 1.5, None), (1, 0, 1, 2.5, None)],
            ["delete", "insert", "insert"],
        ),
        # Nothing is a key like others, as it is to Spark's windows.
        (
            [(-1, 0, None, 0.5, None), (1, 0, None, 1.5, None)],
            ["update_postimage", "update_preimage"],
        ),
    ],
)
def test_rows_of_one_key_are_paired(rows, kinds):
    told = found(rows, both={0, 1}, keys=[0])
    assert sorted(kind for kind, _ in told.elements()) == kinds


def test_zeros_are_one_key_and_two_values():
    rows = [(-1, 0, 1, 0.0, None), (1, 0, 1, -0.0, None)]
    assert [kind for kind, _ in found(rows, {0}, keys=[1])] == [
        "update_preimage",
        "update_postimage",
    ]
    assert not found([(-1, 0, 1, math.nan, None), (1, 0, 1, -math.nan, None)], {0}, keys=[1])
