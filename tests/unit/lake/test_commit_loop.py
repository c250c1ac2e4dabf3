"""The loop around commits: what is tried again, what is looked for, and when it gives up."""

import threading

import pytest

from neve.errors import CatalogError, ConflictError, NotFoundError, UnknownOutcomeError
from neve.lake.commit_loop import (
    CommitCounters,
    RetryPolicy,
    commit_until_known,
    read_until_available,
)

QUICK = RetryPolicy(attempts=4, first_seconds=0.0, most_seconds=0.0)
CONFLICT = ConflictError("t: refused", retryable=True)
UNKNOWN = UnknownOutcomeError("t: lost", hint="look", retryable=True)
DOWN = CatalogError("cannot be reached", retryable=True)


class Catalog:
    """A catalog whose steps are planned: what each attempt raises, and whether it is applied."""

    def __init__(self, *plan, shown_after_looks=0):
        self.plan = list(plan)
        self.applied = False
        self.calls = []
        self.shown_after_looks = shown_after_looks
        self.reads_that_fail = []

    def refresh(self):
        self.calls.append("refresh")
        if self.reads_that_fail:
            raise self.reads_that_fail.pop(0)

    def attempt(self):
        self.calls.append("attempt")
        error, applied = self.plan.pop(0) if self.plan else (None, True)
        self.applied = self.applied or applied
        if error:
            raise error
        return "committed"

    def find_applied(self):
        self.calls.append("look")
        looks = self.calls.count("look")
        return "found" if self.applied and looks > self.shown_after_looks else None

    def commit(self, policy=QUICK, stop=None):
        self.counters = CommitCounters()
        return commit_until_known(
            self.refresh,
            self.attempt,
            self.find_applied,
            policy=policy,
            counters=self.counters,
            stop=stop,
        )


@pytest.mark.parametrize(
    ("plan", "result", "attempts"),
    [
        ([], "committed", 1),
        ([(CONFLICT, False)], "committed", 2),
        ([(UNKNOWN, False)], "committed", 2),
        ([(UNKNOWN, True)], "found", 1),
        # Sent twice on its way: refused the second time, applied the first.
        ([(CONFLICT, True)], "found", 1),
        ([(DOWN, False)], "committed", 2),
        ([(UNKNOWN, False), (DOWN, False), (CONFLICT, True)], "found", 3),
    ],
)
def test_what_an_attempt_comes_to(plan, result, attempts):
    catalog = Catalog(*plan)
    assert catalog.commit() == result
    assert catalog.calls.count("attempt") == attempts == catalog.counters.attempts
    assert len(catalog.counters.commit_seconds) == 1


def test_the_table_is_read_anew_before_each_attempt_and_each_look():
    catalog = Catalog((CONFLICT, False), (UNKNOWN, True))
    catalog.commit()
    expected = ["refresh", "attempt", "refresh", "look"]
    assert catalog.calls == expected * 2
    assert (catalog.counters.conflicts, catalog.counters.unknown_outcomes) == (1, 1)


def test_a_late_commit_is_found_when_the_next_attempt_is_refused():
    catalog = Catalog((UNKNOWN, True), (CONFLICT, False), shown_after_looks=1)
    assert catalog.commit() == "found"
    assert catalog.calls.count("attempt") == 2


@pytest.mark.parametrize("error", [CONFLICT, UNKNOWN])
def test_it_gives_up_after_so_many_attempts_and_says_so(error):
    catalog = Catalog(*[(error, False)] * 9)
    with pytest.raises(type(error), match=r"given up after 4 attempts") as raised:
        catalog.commit()
    assert (raised.value.hint, raised.value.retryable) == (error.hint, True)
    assert catalog.counters.attempts == 4


def test_what_cannot_pass_is_raised_at_once():
    refusal = CatalogError("refused the credentials")
    catalog = Catalog((refusal, False))
    with pytest.raises(CatalogError) as raised:
        catalog.commit()
    assert raised.value is refusal
    assert catalog.calls == ["refresh", "attempt"]


def test_a_deadline_bounds_attempts_and_reads():
    now = 0.0

    def sleep(seconds):
        nonlocal now
        now += seconds

    policy = RetryPolicy(
        attempts=10**6, read_attempts=10**6, deadline_seconds=60, sleep=sleep, clock=lambda: now
    )
    catalog = Catalog(*[(CONFLICT, False)] * 1000)
    with pytest.raises(ConflictError, match="given up after"):
        catalog.commit(policy)
    assert 60 <= now < 60.001
    now, reads = 0.0, Catalog()
    reads.reads_that_fail = [DOWN] * 1000
    with pytest.raises(CatalogError, match="cannot be reached"):
        reads.commit(policy)
    assert 60 <= now < 60.001
    assert "attempt" not in reads.calls


def test_thousands_of_attempts_have_a_pause():
    assert RetryPolicy(most_seconds=2.0).pause_seconds(10_000) <= 2.0


def test_after_a_lost_answer_a_catalog_that_stays_away_leaves_the_outcome_unknown():
    catalog = Catalog((UNKNOWN, True))
    policy = RetryPolicy(attempts=4, read_attempts=3, first_seconds=0.0)
    refresh = catalog.refresh

    def refresh_once_only():
        refresh()
        catalog.reads_that_fail = [DOWN] * 100

    catalog.refresh = refresh_once_only
    with pytest.raises(UnknownOutcomeError) as raised:
        catalog.commit(policy)
    assert raised.value.__cause__ is DOWN


def test_a_table_that_was_dropped_meanwhile_is_said():
    catalog = Catalog((CONFLICT, False))
    gone = NotFoundError("table t does not exist any more")
    attempt = catalog.attempt

    def attempt_and_drop():
        catalog.reads_that_fail = [gone]
        return attempt()

    catalog.attempt = attempt_and_drop
    with pytest.raises(NotFoundError):
        catalog.commit()


def test_a_stop_ends_the_wait_and_makes_no_further_attempt():
    stop = threading.Event()
    catalog = Catalog(*[(CONFLICT, False)] * 9)
    attempt = catalog.attempt

    def attempt_and_stop():
        stop.set()
        return attempt()

    catalog.attempt = attempt_and_stop
    # A wait of an hour, were it not for the stop.
    policy = RetryPolicy(first_seconds=3600, most_seconds=3600)
    with pytest.raises(ConflictError):
        catalog.commit(policy, stop)
    assert catalog.counters.attempts == 1
    # Also when it comes during the wait.
    stop.clear()
    catalog = Catalog(*[(CONFLICT, False)] * 9)
    timer = threading.Timer(0.1, stop.set)
    timer.start()
    with pytest.raises(ConflictError):
        catalog.commit(policy, stop)
    timer.join()
    assert catalog.counters.attempts == 1
    # Also while the catalog cannot be read.
    catalog = Catalog()
    catalog.reads_that_fail = [DOWN] * 100
    with pytest.raises(CatalogError):
        catalog.commit(policy, stop)
    assert catalog.calls == ["refresh"]


def test_reads_are_repeated_only_while_the_failure_may_pass():
    failures = [DOWN, DOWN]

    def read():
        if failures:
            raise failures.pop(0)
        return "read"

    assert read_until_available(read, QUICK) == "read"
    failures[:] = [CatalogError("refused"), DOWN]
    with pytest.raises(CatalogError, match="refused"):
        read_until_available(read, QUICK)
    assert failures == [DOWN]
