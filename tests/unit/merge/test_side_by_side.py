"""Several mirrors at a time: order, limits and failures."""

from __future__ import annotations

import threading

import pytest

from neve.merge.side_by_side import side_by_side


def test_results_come_in_the_order_of_the_items():
    assert side_by_side(range(50), 4, lambda number: number * 2) == [2 * n for n in range(50)]


def test_no_more_are_worked_on_at_a_time_than_allowed():
    at_work, most, lock, both = set(), [], threading.Lock(), threading.Barrier(2, timeout=30)

    def work(number):
        with lock:
            at_work.add(number)
            most.append(len(at_work))
        both.wait()
        with lock:
            at_work.remove(number)

    side_by_side(range(10), 2, work)
    assert max(most) == 2


@pytest.mark.parametrize(("items", "at_once"), [(range(3), 1), (range(1), 8)])
def test_one_at_a_time_needs_no_further_thread(items, at_once):
    here = threading.current_thread()
    threads = side_by_side(items, at_once, lambda _: threading.current_thread())
    assert set(threads) == {here}


def test_after_a_failure_nothing_further_is_begun():
    begun = []

    def work(number):
        begun.append(number)
        raise KeyError(number)

    with pytest.raises(KeyError):
        side_by_side(range(100), 2, work)
    assert len(begun) <= 2
