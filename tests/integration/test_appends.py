"""Appends without Spark on every catalog, also while commits go wrong: each row once."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from neve.direct.spec import DirectSpec
from neve.errors import UnknownOutcomeError
from neve.lake.commit_loop import RetryPolicy
from neve.lake.snapshot_limit import SnapshotLimit
from tests.support.appending import Appender, race_processes
from tests.support.catalog_faults import FAULTS, lost_after, lost_before, refused
from tests.support.wait import until

report = logging.getLogger(__name__).warning


@pytest.mark.parametrize("lake", ["postgres", "rest", "s3tables"], indirect=True)
def test_writers_at_once_append_each_row_once_and_snapshots_stay_few(lake, namespace):
    writers = [Appender(lake, namespace) for _ in range(8)]
    start = threading.Barrier(8)

    def write(number):
        start.wait(60)
        writers[number].append(number)
        writers[number].append(number + 100)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    last = Appender(lake, namespace, SnapshotLimit(5))
    assert last.ids() == Counter([*range(8), *range(100, 108)])
    # More are not removed by one commit.
    for number in range(1000, 1003):
        last.append(number)
    table = last.load()
    # S3 Tables expires snapshots by itself.
    is_s3tables = lake.profile.settings.type == "s3tables"
    assert len(table.metadata.snapshots) == (19 if is_s3tables else 5)
    assert all(table.io.new_input(path).exists() for path in last.reachable())
    oldest = table.metadata.snapshots[0].snapshot_id
    assert len(last.ids(oldest)) == (1 if is_s3tables else 15)


@pytest.mark.parametrize("lake", ["postgres", "rest"], indirect=True)
def test_a_tag_that_was_just_made_keeps_its_snapshot(lake, namespace):
    """A REST catalog compares `main` alone, and drops refs to snapshots that a commit removes."""
    appender = Appender(lake, namespace, SnapshotLimit(3))
    for number in range(3):
        appender.append(number)
    oldest = appender.load().metadata.snapshots[0].snapshot_id
    appender.load().manage_snapshots().create_tag(oldest, "kept").commit()
    for number in range(3, 6):
        appender.append(number)
    assert appender.load().metadata.refs["kept"].snapshot_id == oldest
    assert appender.ids(oldest) == Counter([0])


@pytest.fixture
def appender(faulty_lake, faults):
    name = f"appends_{uuid.uuid4().hex[:12]}"
    appender = Appender(faulty_lake, name, SnapshotLimit(3))
    faults.expect(name)
    return appender


def stored(appender, paths):
    return {path for path in paths if appender.table.io.new_input(path).exists()}


@pytest.mark.parametrize("fault", FAULTS)
def test_commits_that_go_wrong_append_each_row_once(appender, faults, fault):
    faults.expect(appender.namespace, dict.fromkeys((1, 3, 6), FAULTS[fault]))
    for number in range(6):
        appender.append(number)
    assert faults.commits >= 6
    assert appender.ids() == Counter(range(6))
    assert len(appender.load().metadata.snapshots) == 3
    assert stored(appender, appender.reachable()) == appender.reachable()


def test_a_storm_of_conflicts_ends_with_the_deadline_and_not_before(appender, faults):
    """More refusals than any number of attempts that a policy has."""
    faults.expect(appender.namespace, dict.fromkeys(range(1, 31), refused(409)))
    policy = RetryPolicy(attempts=3, first_seconds=0.001, most_seconds=0.01)
    appender.append(1, policy=policy)
    assert (appender.counters.attempts, appender.counters.conflicts) == (31, 30)
    assert appender.ids() == Counter([1])


def test_a_catalog_that_is_away_for_a_while(appender, faults):
    faults.is_down = True
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(appender.append, 1)
        until(lambda: faults.refused_while_down >= 5)
        faults.is_down = False
        running.result(60)
    assert appender.ids() == Counter([1])


@pytest.mark.parametrize("fault", [lost_after, lost_before], ids=["applied", "not applied"])
def test_an_unknown_outcome_leaves_all_files_and_the_id_settles_it(appender, faults, fault):
    """PyIceberg's own append would delete the manifests of an attempt that is applied."""

    def lost_and_down(request, forward):
        faults.is_down = True
        return fault(request, forward)

    files = appender.write(1)
    faults.expect(appender.namespace, {1: lost_and_down})
    policy = RetryPolicy(first_seconds=0.01, most_seconds=0.05, deadline_seconds=0.3)
    with pytest.raises(UnknownOutcomeError):
        appender.table.append(files, "a", policy=policy, counters=appender.counters)
    faults.is_down = False
    assert len(stored(appender, [file.file_path for file in files])) == 1
    assert stored(appender, appender.reachable()) == appender.reachable()
    assert appender.ids() == Counter([1] if fault is lost_after else [])
    # Whoever takes the files up again, by the same id, does not add them twice.
    later = Appender(appender.lake, appender.namespace)
    for _ in range(2):
        later.table.append(files, "a", policy=RetryPolicy(), counters=later.counters)
    assert later.ids() == Counter([1])


@pytest.mark.soak
@pytest.mark.parametrize("lake", ["sqlite", "postgres", "rest"], indirect=True)
def test_eight_processes_at_once(lake, namespace):
    slowest = race_processes(lake.settings, namespace, writers=8, each=25, seconds=60)
    report("%s: the slowest of 8 processes waited %.2f s", lake.profile.settings.type, slowest)
    assert Appender(lake, namespace).ids() == Counter(range(200))


@pytest.mark.soak
@pytest.mark.parametrize("lake", ["sqlite", "postgres", "rest"], indirect=True)
def test_fifty_writers_at_once_end_before_their_deadlines(lake, namespace):
    """Each with the default deadline: no writer starves."""
    writers = [Appender(lake, namespace) for _ in range(50)]
    start, waits = threading.Barrier(50), []

    def write(number):
        policy = RetryPolicy(deadline_seconds=DirectSpec().deadline_seconds)
        start.wait(60)
        started = time.monotonic()
        writers[number].append(number, policy=policy)
        waits.append(time.monotonic() - started)

    with ThreadPoolExecutor(50) as pool:
        list(pool.map(write, range(50)))
    report("%s: the slowest of 50 waited %.2f s", lake.profile.settings.type, max(waits))
    assert writers[0].ids() == Counter(range(50))
