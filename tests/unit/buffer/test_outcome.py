"""An outcome is told once, to everybody who asks, from whichever thread."""

import threading

import pytest

from neve.buffer.outcome import Outcome
from neve.errors import UnavailableError


def test_callbacks_run_once_whether_they_come_before_or_after():
    outcome, calls = Outcome(), []
    outcome.add_done_callback(lambda _: calls.append("before"))
    assert not outcome.done()
    outcome.set_result()
    outcome.add_done_callback(lambda _: calls.append("after"))
    assert calls == ["before", "after"]
    outcome.result(0)


def test_a_failure_is_raised_where_it_is_awaited():
    outcome = Outcome()
    with pytest.raises(TimeoutError):
        outcome.result(0)
    outcome.set_exception(UnavailableError("full"))
    with pytest.raises(UnavailableError, match="full"):
        outcome.result(0)


def test_no_callback_is_lost_or_doubled_between_threads():
    for _ in range(500):
        outcome, calls = Outcome(), []
        begin = threading.Barrier(2)

        def tell(outcome=outcome, begin=begin):
            begin.wait()
            outcome.set_result()

        teller = threading.Thread(target=tell)
        teller.start()
        begin.wait()
        for number in range(20):
            outcome.add_done_callback(lambda _, calls=calls, number=number: calls.append(number))
        teller.join()
        assert sorted(calls) == list(range(20))
