"""Several reads at once, and bounded bytes."""

import threading

import pytest

from neve.buffer.read_ahead import READS_AT_ONCE, at_once, read_ahead


def test_items_come_in_order_and_no_more_is_read_ahead_than_allowed():
    held, most, lock = 0, 0, threading.Lock()
    sizes = [3, 9, 1, 1, 1, 40, 2, 2, 2, 5, 5, 5, 5]

    def read(item):
        nonlocal held, most
        with lock:
            held += sizes[item]
            most = max(most, held - max(sizes))
        return item

    found = []
    for item, reading in read_ahead(range(len(sizes)), read, sizes.__getitem__, most_bytes=10):
        found.append(reading.result())
        with lock:
            held -= sizes[item]
    assert found == list(range(len(sizes)))
    assert most <= 10


def test_small_items_are_read_at_the_same_time_and_a_failure_is_one_items():
    together = threading.Barrier(READS_AT_ONCE - 1)

    def read(item):
        together.wait(10)
        if item == 3:
            raise KeyError(item)
        return item

    failed = []
    items = range(READS_AT_ONCE - 1)
    # The first is asked for while all others are read.
    for item, reading in read_ahead(items, read, lambda _: 1):
        if reading.exception():
            failed.append(item)
    assert failed == [3]


def test_what_is_done_at_once_has_ended_when_one_fails():
    done = []
    started = threading.Barrier(3)

    def act(item):
        started.wait(10)
        if item == 1:
            raise KeyError(item)
        done.append(item)

    with pytest.raises(KeyError):
        at_once(act, range(3))
    assert sorted(done) == [0, 2]
    at_once(act, [])
