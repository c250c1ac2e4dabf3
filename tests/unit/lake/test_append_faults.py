"""Appends without Spark that fail, race or wait: each is applied exactly once."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

import neve
from neve.errors import ConflictError, UnknownOutcomeError
from neve.lake.commit_loop import CommitCounters, RetryPolicy
from neve.lake.snapshot_limit import SnapshotLimit
from tests.support.appending import Appender
from tests.support.lakes import sqlite_settings
from tests.support.wait import until


@pytest.fixture
def lake(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        yield lake


def stored_manifests(tmp_path):
    directory = tmp_path / "warehouse" / "ns" / "t" / "metadata"
    return {file.as_uri() for file in directory.glob("*.avro")}


def as_uris(paths):
    return {path if path.startswith("file:") else Path(path).as_uri() for path in paths}


class SwapGate:
    """Does something to each swap of metadata, by its number."""

    def __init__(self, monkeypatch, lake):
        self.plan, self.count, self.lock = {}, 0, threading.Lock()
        swap = type(lake.catalog()).swap_metadata

        def gated(catalog, *arguments):
            with self.lock:
                self.count += 1
                action = self.plan.get(self.count)
            if action is None:
                return swap(catalog, *arguments)
            return action(lambda: swap(catalog, *arguments))

        monkeypatch.setattr(type(lake.catalog()), "swap_metadata", gated)


@pytest.fixture
def gate(monkeypatch, lake):
    return SwapGate(monkeypatch, lake)


def lost_after(swap):
    swap()
    raise CommitStateUnknownException("the connection was lost")


def lost_before(swap):
    raise CommitStateUnknownException("the connection was lost")


def refused(swap):
    raise CommitFailedException("another writer was first")


@pytest.mark.parametrize("fault", [lost_after, lost_before, refused])
def test_an_attempt_that_goes_wrong_adds_the_files_once(lake, gate, tmp_path, fault):
    appender = Appender(lake)
    appender.append(1)
    gate.plan = {gate.count + 1: fault, gate.count + 2: fault}
    appender.append(2)
    assert appender.ids() == Counter([1, 2])
    left = stored_manifests(tmp_path) - as_uris(appender.reachable())
    # Nothing is deleted of an attempt whose outcome was unknown; what was refused is.
    assert len(left) == (4 if fault is lost_before else 0)


def test_a_deadline_leaves_the_outcome_unknown_and_all_files_in_place(lake, gate, tmp_path):
    appender = Appender(lake)
    gate.plan = dict.fromkeys(range(1, 1000), lost_before)
    policy = RetryPolicy(first_seconds=0.01, most_seconds=0.02, deadline_seconds=0.2)
    (file,) = appender.write(1)
    with pytest.raises(UnknownOutcomeError):
        appender.table.append([file], "x", policy=policy, counters=appender.counters)
    assert appender.counters.attempts > 2
    assert len(stored_manifests(tmp_path)) == 2 * appender.counters.attempts
    assert Path(file.file_path.removeprefix("file://")).exists()


@pytest.mark.parametrize("is_applied", [True, False])
def test_files_settle_an_append_whose_snapshot_others_may_have_removed(lake, gate, is_applied):
    """The answer is lost, and before the table is read others have removed all versions known."""
    appender, others = Appender(lake), Appender(lake, limit=SnapshotLimit(3))
    appender.append(0)

    def lost_and_pushed_out(swap):
        if is_applied:
            swap()
        for number in range(10, 20):
            others.append(number)
        raise CommitStateUnknownException("the connection was lost")

    gate.plan = {gate.count + 1: lost_and_pushed_out}
    appended = appender.append(1)
    assert appender.ids() == Counter([0, 1, *range(10, 20)])
    assert appended.snapshot_id in {each for each, *_ in appender.entries().values()}
    assert appender.counters.attempts == (2 if is_applied else 3)


def test_files_settle_an_append_that_was_compacted_since(lake, gate):
    """`main` has its rows in other files: an older retained snapshot shows that it is applied."""
    appender, others = Appender(lake), Appender(lake, limit=SnapshotLimit(3))
    appender.append(0)

    def applied_and_rewritten(swap):
        swap()
        for number in range(10, 20):
            others.append(number)
        others.load().overwrite(others.load().scan().to_arrow())
        raise CommitStateUnknownException("the connection was lost")

    gate.plan = {gate.count + 1: applied_and_rewritten}
    appender.append(1)
    assert appender.ids() == Counter([0, 1, *range(10, 20)])


def test_absence_is_no_proof_once_the_history_was_expired(lake, gate):
    """The answer is lost, and somebody has expired versions that may have had the files."""
    appender, others = Appender(lake), Appender(lake)

    def applied_and_expired(swap):
        swap()
        ids = [others.append(number).snapshot_id for number in range(10, 14)]
        old = [
            each for each in others.load().metadata.snapshots if each.snapshot_id not in ids[-2:]
        ]
        expiry = others.load().maintenance.expire_snapshots()
        expiry.by_ids([each.snapshot_id for each in old]).commit()
        raise CommitStateUnknownException("the connection was lost")

    gate.plan = {1: applied_and_expired}
    waited = []
    policy = RetryPolicy(clock=lambda: sum(waited), sleep=waited.append, deadline_seconds=5)
    with pytest.raises(UnknownOutcomeError, match="snapshots that may have it have expired"):
        appender.append(1, policy=policy)
    assert appender.ids() == Counter([1, *range(10, 14)])


def test_a_table_that_others_have_moved_far_is_read_again(lake):
    """The manifest list of what was current for us is deleted by now."""
    appender, others = Appender(lake), Appender(lake, limit=SnapshotLimit(3))
    appender.append(0)
    for number in range(1, 8):
        others.append(number)
    appender.append(8)
    assert appender.counters.conflicts == 1
    assert appender.ids() == Counter(range(9))


def test_an_append_of_an_id_that_is_applied_changes_nothing(lake):
    appender, other = Appender(lake), Appender(lake)
    first = appender.append(1, append_id="a")
    assert other.append(1, append_id="a").snapshot_id == first.snapshot_id
    assert other.table.find("a") == first.snapshot_id
    assert other.table.find("b") is None
    assert appender.ids() == Counter([1])


def test_appends_that_arrive_during_a_commit_share_the_next_one(lake, gate):
    appender = Appender(lake)
    table = appender.table
    with ThreadPoolExecutor(8) as pool:

        def hold(swap):
            until(lambda: len(table._waiting) == 6)
            swap()

        gate.plan = {1: hold}
        files = [appender.write(number) for number in range(7)]
        first = pool.submit(append_files, table, files[0], "0")
        until(lambda: gate.count == 1)
        others = [pool.submit(append_files, table, files[n], str(n)) for n in range(1, 7)]
        snapshots = {each.result().snapshot_id for each in others}
    assert len(snapshots) == 1
    assert snapshots == {table.find("3"), table.find("6")}
    assert first.result().snapshot_id not in snapshots
    assert appender.ids() == Counter(range(7))


def test_appends_that_failed_together_are_tried_alone(lake, gate):
    appender = Appender(lake)
    table = appender.table
    with ThreadPoolExecutor(8) as pool:

        def hold(swap):
            until(lambda: len(table._waiting) == 3)
            raise PermissionError("the disk is read-only")

        def fail(swap):
            raise PermissionError("the disk is read-only")

        gate.plan = {1: hold, 2: fail}
        files = [appender.write(number) for number in range(4)]
        running = [pool.submit(append_files, table, files[n], str(n)) for n in range(4)]
        failed = [each for each in running if each.exception() is not None]
    assert len(failed) == 2
    assert sum(appender.ids().values()) == 2
    assert table._waiting == []


def append_files(table, files, append_id, seconds=60.0):
    policy = RetryPolicy(first_seconds=0.01, most_seconds=0.1, deadline_seconds=seconds)
    return table.append(files, append_id, policy=policy, counters=CommitCounters())


def test_who_waits_for_other_threads_beyond_its_deadline_is_told_what_is_known(lake, gate):
    appender = Appender(lake)
    table = appender.table
    released = threading.Event()
    gate.plan = {1: lambda swap: (released.wait(60), swap())}
    files = [appender.write(number) for number in range(2)]
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(append_files, table, files[0], "0")
        until(lambda: gate.count == 1)
        with pytest.raises(ConflictError, match="other threads committed all the time"):
            append_files(table, files[1], "1", seconds=0.05)
        released.set()
        first.result()
    assert appender.ids() == Counter([0])


@pytest.mark.parametrize("shared", [True, False], ids=["one table", "a table each"])
def test_eight_writers_at_once_append_each_row_once(tmp_path, lake, shared):
    appender = Appender(lake, limit=SnapshotLimit(10))
    writers = [appender if shared else Appender(lake, limit=SnapshotLimit(10)) for _ in range(8)]
    start = threading.Barrier(8)

    def write(writer, first):
        start.wait(60)
        for number in range(first, first + 6):
            writer.append(number)

    with ThreadPoolExecutor(8) as pool:
        running = [pool.submit(write, each, 10 * n) for n, each in enumerate(writers)]
        for each in running:
            each.result()
    expected = Counter(10 * writer + number for writer in range(8) for number in range(6))
    assert appender.ids() == expected
    # Also what refused attempts wrote is gone again.
    assert stored_manifests(tmp_path) == as_uris(appender.reachable())
