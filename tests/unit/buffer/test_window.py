from __future__ import annotations

from neve.buffer.window import NANOS, DedupWindow
from tests.support.peak_memory import grown_megabytes


def test_a_key_is_known_for_the_window_and_no_longer():
    window = DedupWindow(300)
    window.add(b"key", 1000 * NANOS)
    assert window.has(b"key", 1300 * NANOS)
    assert not window.has(b"key", 1301 * NANOS)
    assert not window.has(b"other", 1000 * NANOS)


def test_what_is_out_of_the_window_takes_no_memory():
    window = DedupWindow(10)
    for second in range(1000):
        window.add(b"%d" % second, second * NANOS)
    # Whole quarters of the window are forgotten.
    assert len(window) <= 14


def test_a_key_stored_again_lives_on():
    window = DedupWindow(10)
    window.add(b"key", 0)
    window.add(b"key", 11 * NANOS)
    window.add(b"other", 12 * NANOS)
    assert window.has(b"key", 20 * NANOS)


def test_a_window_of_nothing():
    window = DedupWindow(0)
    window.add(b"key", 0)
    assert not window.is_on
    assert not window.has(b"key", 0)


def test_every_key_of_many_is_known_for_the_window():
    window, step = DedupWindow(10), NANOS // 1000
    for number in range(30_000):
        assert not window.has(b"%d" % number, number * step)
        window.add(b"%d" % number, number * step)
    assert all(window.has(b"%d" % number, 30_000 * step) for number in range(20_000, 30_000))
    assert not any(window.has(b"%d" % number, 30_000 * step) for number in range(20_000))
    assert window.forgotten == 0


def test_of_more_keys_than_it_may_hold_the_newest_stay_and_the_others_are_counted():
    window = DedupWindow(300, most=100)
    for number in range(1000):
        window.add(b"%d" % number, NANOS + number)
    assert len(window) <= 100
    newest = [number for number in range(1000) if window.has(b"%d" % number, 2 * NANOS)]
    assert newest == list(range(1000 - len(window), 1000))
    assert len(newest) + window.forgotten == 1000
    assert len(newest) >= 75


def test_a_key_takes_some_forty_bytes():
    preparation = """
        from neve.buffer.window import NANOS, DedupWindow
        window = DedupWindow(300)
        """
    work = """
        for number in range(100_000):
            window.add(number.to_bytes(48, "little"), NANOS + number)
        """
    # A dictionary and a queue took 23 MB.
    assert grown_megabytes(preparation, work) < 10
