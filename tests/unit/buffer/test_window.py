from __future__ import annotations

from neve.buffer.window import NANOS, DedupWindow


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
    assert len(window) == 11


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
