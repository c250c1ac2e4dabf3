"""The schedule of merges, with mirrors that end their turns as a list says."""

import threading
import time
from contextlib import ExitStack, nullcontext
from itertools import pairwise
from types import SimpleNamespace

import pytest

from neve.cli import service
from neve.config import Settings
from neve.errors import CatalogError, ConflictError
from neve.observe import sentry as reporting
from neve.observe.merging import MergeMetrics
from neve.observe.metrics import Registry
from neve.service.merging import Recorder, keep_merging, run_cycle
from tests.support.mergers import ListedMerger
from tests.support.sentry import running_sentry
from tests.support.wait import until

TABLES = ("shop.a", "shop.b", "shop.c")


class Schedule:
    """Mirrors, and who hears of them."""

    def __init__(self, *mergers):
        self.mergers = mergers
        self.registry = Registry({})
        self.reports = []
        self.recorder = Recorder(
            MergeMetrics(self.registry), [one.name for one in mergers], self.reports.append
        )
        self.stop = threading.Event()

    def cycle(self):
        run_cycle(self.mergers, self.stop, self.recorder)

    def sample(self, name, **labels):
        return self.registry.get_sample_value(f"merger_{name}", labels)

    def keep(self, interval_seconds):
        thread = threading.Thread(
            target=keep_merging, args=(self.mergers, interval_seconds, self.stop, self.recorder)
        )
        thread.start()
        return thread


def test_one_table_that_fails_stops_no_other_and_is_tried_again(caplog):
    a, b, c = (
        ListedMerger(TABLES[0]),
        ListedMerger(TABLES[1], CatalogError("the catalog is down"), KeyError("a defect")),
        ListedMerger(TABLES[2]),
    )
    schedule = Schedule(a, b, c)
    assert schedule.sample("table_failure_total", table="shop.b") == 0
    schedule.cycle()
    assert [one.table for one in schedule.reports] == ["shop.a", "shop.c"]
    assert schedule.recorder.trouble == "shop.b: the catalog is down"
    assert [record.getMessage() for record in caplog.records] == [
        "shop.b: merge failed: the catalog is down"
    ]
    assert caplog.records[0].exc_info is None
    schedule.cycle()
    assert schedule.recorder.troubles == {"shop.b": "internal error: KeyError"}
    assert caplog.records[1].exc_info[0] is KeyError
    schedule.cycle()
    assert schedule.recorder.trouble is None
    assert (a.taken, b.taken, c.taken) == (3, 3, 3)
    assert schedule.sample("table_failure_total", table="shop.b") == 2
    assert schedule.sample("table_success_total", table="shop.b") == 1
    assert schedule.sample("table_success_total", table="shop.a") == 3
    assert schedule.sample("table_duration_seconds_count", table="shop.b") == 3
    assert schedule.sample("cycle_completed_total") == 3


def test_every_table_that_fails_is_named():
    mergers = [ListedMerger(name, CatalogError("down")) for name in reversed(TABLES[:2])]
    schedule = Schedule(*mergers, ListedMerger("shop.c"))
    schedule.cycle()
    assert schedule.recorder.trouble == "shop.a: down; shop.b: down"


def test_what_a_turn_did_is_counted():
    turn = {
        "outcome": "merged",
        "batches": 2,
        "rows_scanned": 100,
        "applied": 82,
        "superseded": 10,
        "repeated": 1,
        "truncated": 2,
        "rows_upserted": 70,
        "rows_deleted": 12,
        "late_dropped": 5,
        "set_aside": 3,
        "conflicts": 1,
        "merge_seconds": [0.2, 2.0],
        "duration_seconds": 2.5,
        "lag_seconds": 60.0,
        "lag_snapshots": 4,
    }
    schedule = Schedule(ListedMerger("shop.a", turn, turn))
    schedule.cycle()
    schedule.cycle()
    counted = {
        "rows_scanned_total": 200,
        "rows_applied_total": 164,
        "rows_deduplicated_total": 20,
        "rows_repeated_total": 2,
        "rows_truncated_total": 4,
        "rows_upserted_total": 140,
        "rows_deleted_total": 24,
        "rows_late_dropped_total": 10,
        "rows_set_aside_total": 6,
        "conflicts_total": 2,
        "merge_duration_seconds_count": 4,
        "merge_duration_seconds_sum": 4.4,
        "table_duration_seconds_sum": 5.0,
        "lag_snapshots": 4,
    }
    assert {name: schedule.sample(name, table="shop.a") for name in counted} == counted
    assert schedule.sample("cycle_duration_seconds_count") == 2
    first = schedule.sample("lag_seconds", table="shop.a")
    assert 60 <= first < 70
    # Nothing was heard since, and what was behind grew older.
    assert schedule.sample("lag_seconds", table="shop.a") > first
    schedule.cycle()
    assert schedule.sample("lag_seconds", table="shop.a") == 0
    assert schedule.sample("lag_snapshots", table="shop.a") == 0


def test_what_a_turn_did_before_it_failed_is_counted_too():
    turn = {
        "batches": 1,
        "rows_scanned": 100,
        "rows_upserted": 70,
        "conflicts": 3,
        "merge_seconds": [0.5],
        "duration_seconds": 2.5,
        "lag_seconds": 60.0,
        "lag_snapshots": 4,
    }
    down = CatalogError("the catalog is down")
    merger = ListedMerger("shop.a", {**turn, "raises": ConflictError("main has moved")}, down)
    schedule = Schedule(merger)
    counted = {
        "rows_scanned_total": 100,
        "rows_upserted_total": 70,
        "conflicts_total": 3,
        "merge_duration_seconds_count": 1,
        "table_duration_seconds_sum": 2.5,
        "lag_snapshots": 4,
    }
    # The second turn could not even look, and so says nothing new of the lag.
    for failures in (1, 2):
        schedule.cycle()
        assert {name: schedule.sample(name, table="shop.a") for name in counted} == counted
        assert 60 <= schedule.sample("lag_seconds", table="shop.a") < 70
        assert schedule.sample("table_failure_total", table="shop.a") == failures
    assert schedule.sample("table_success_total", table="shop.a") == 0


def test_stopping_is_heeded_between_tables_and_handed_on():
    a, b = ListedMerger("shop.a"), ListedMerger("shop.b")
    schedule = Schedule(a, b)
    handed = []

    def during(stop):
        handed.append(stop)
        stop.set()

    a.during = during
    keep_merging(schedule.mergers, 60, schedule.stop, schedule.recorder)
    assert handed == [schedule.stop]
    assert (a.taken, b.taken) == (1, 0)
    # The turn that was going on is counted, the cycle was none.
    assert [one.table for one in schedule.reports] == ["shop.a"]
    assert schedule.sample("cycle_completed_total") == 0


def test_cycles_begin_every_interval_and_stopping_ends_the_wait():
    merger = ListedMerger("shop.a")
    schedule = Schedule(merger)
    began = []
    merger.during = lambda stop: began.append(time.monotonic())
    thread = schedule.keep(0.1)
    until(lambda: len(began) >= 4)
    schedule.stop.set()
    thread.join(10)
    assert not thread.is_alive()
    assert all(later - earlier > 0.05 for earlier, later in pairwise(began))

    waiting = Schedule(ListedMerger("shop.a"))
    thread = waiting.keep(3600)
    until(lambda: waiting.mergers[0].taken == 1)
    waiting.stop.set()
    thread.join(10)
    assert not thread.is_alive()
    assert waiting.mergers[0].taken == 1


def test_a_cycle_that_takes_longer_is_followed_at_once():
    merger = ListedMerger("shop.a")
    schedule = Schedule(merger)
    gaps, ended = [], []

    def during(stop):
        if ended:
            gaps.append(time.monotonic() - ended[-1])
        # Longer than the interval, as a large backlog is.
        time.sleep(0.2)
        ended.append(time.monotonic())

    merger.during = during
    thread = schedule.keep(0.15)
    until(lambda: len(gaps) >= 3)
    schedule.stop.set()
    thread.join(10)
    assert min(gaps) < 0.1


@pytest.mark.parametrize(
    ("error", "code"),
    [(ConflictError("row alice@example.com"), "conflict"), (KeyError("alice"), "internal")],
)
def test_failures_are_told_to_sentry_by_table_and_without_values(error, code):
    with running_sentry() as sentry:
        reporting.start(Settings(project="p", observe={"sentry": {"dsn": sentry.dsn}}))
        Schedule(ListedMerger("shop.a", error), ListedMerger("shop.b")).cycle()
        reporting.stop()
    [event] = sentry.events
    tags = {"service": "p", "part": "merge", "table": "shop.a", "code": code}
    assert event["tags"] == tags
    assert "alice" not in sentry.text


def test_tables_that_are_merged_side_by_side_fail_and_are_counted_alone():
    meeting = threading.Barrier(2, timeout=30)

    class Meeting(ListedMerger):
        def merge(self, stop, report):
            meeting.wait()
            return super().merge(stop, report)

    mergers = [Meeting("shop.a"), Meeting("shop.b", CatalogError("down")), Meeting("shop.c")]
    schedule = Schedule(*mergers, Meeting("shop.d"))
    # Each turn waits for another one: none ends unless two are at work.
    run_cycle(schedule.mergers, schedule.stop, schedule.recorder, parallel_tables=2)
    assert schedule.recorder.troubles == {"shop.b": "down"}
    assert sorted(report.table for report in schedule.reports) == ["shop.a", "shop.c", "shop.d"]
    assert schedule.sample("table_failure_total", table="shop.b") == 1
    assert schedule.sample("table_success_total", table="shop.d") == 1
    assert schedule.sample("cycle_completed_total") == 1


def test_no_turn_is_begun_side_by_side_after_a_stop():
    class Stopping(ListedMerger):
        def merge(self, stop, report):
            stop.set()
            return super().merge(stop, report)

    mergers = [Stopping(f"shop.{letter}") for letter in "abcdefgh"]
    schedule = Schedule(*mergers)
    run_cycle(schedule.mergers, schedule.stop, schedule.recorder, parallel_tables=2)
    assert 1 <= sum(merger.taken for merger in mergers) <= 2


@pytest.mark.parametrize(("configured", "at_a_time"), [({}, 2), ({"parallel_tables": 3}, 3)])
def test_a_service_merges_as_many_mirrors_at_a_time_as_are_configured(
    monkeypatch, configured, at_a_time
):
    lake = SimpleNamespace(settings=Settings.model_validate({"merge": configured}))
    call = SimpleNamespace(
        open=lambda: nullcontext(lake), output=SimpleNamespace(progress=lambda _: None)
    )
    monkeypatch.setattr("neve.merge.merger.configured_mergers", lambda *_: [])
    told = []
    monkeypatch.setattr("neve.service.merging.keep_merging", lambda *of: told.append(of[-1]))
    with ExitStack() as stack:
        (part,) = service._merges(call, stack, Registry({}), (), "auto")
        part.run(threading.Event())
    assert told == [at_a_time]
