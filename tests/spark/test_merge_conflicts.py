"""Others at work on the mirror, and answers that are lost: never a row lost or doubled."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import requests

from neve import failpoints
from neve.errors import ConflictError, UnknownOutcomeError
from neve.lake.java_tables import JavaTable
from neve.lake.row_delta import PreparedCommit
from neve.lake.staging import StagingTable
from neve.merge import merge_into
from neve.merge.merge_into import BRANCH_PREFIX, MergeInto
from neve.merge.plan import LoadedTables
from neve.merge.strategy import Strategy
from tests.support.merging import Mirrored, event
from tests.support.power_cut import meanwhile, power_cut

POINTS = [name for name in failpoints.POINTS if name.startswith("merge.")]


@pytest.fixture
def mirrored(embedded_lake):
    """Merged by MERGE INTO on a branch, which has the most steps."""
    return Mirrored(embedded_lake, strategy=Strategy.MERGE)


@pytest.fixture
def once(monkeypatch):
    """Replace a method for one call; what replaces it gets the original, bound."""

    def replace(owner, name, instead):
        original = getattr(owner, name)

        def called(self, *arguments, **keys):
            monkeypatch.setattr(owner, name, original)
            return instead(lambda: original(self, *arguments, **keys))

        monkeypatch.setattr(owner, name, called)

    return replace


def wave(number):
    """Something of everything: a row, a newer version, a delete, a late event, a rejected one."""
    start = number * 10
    return [
        event("I", start, start, "new"),
        event("U", start, 1, f"wave {number}"),
        event("I", start, start + 1, "to go"),
        event("D", start + 1, start + 1),
        event("I", start - 9, 0, "late"),
        event("?", start, start, "what"),
    ]


def check(mirrored, waves):
    """The mirror is the replay, and what is beside it is there once."""
    mirrored.check()
    check_beside(mirrored, waves)


def check_beside(mirrored, waves):
    tombstones = mirrored.table("rows_tombstones").scan().to_arrow()["id"].to_pylist()
    assert sorted(tombstones) == [number * 10 + 1 for number in range(1, waves + 1)]
    assert len(mirrored.table("rows_rejected").scan().to_arrow()) == waves


def branches(mirrored):
    refs = mirrored.table().metadata.refs
    return [name for name in refs if name.startswith(BRANCH_PREFIX)]


# What others do to the mirror, and whether it moves `main`; otherwise nothing is in the way.
ACTS = {
    "append": ("INSERT INTO {mirror} VALUES (900, 'theirs', 9, 9)", True),
    "compaction": (Mirrored.compact, True),
    "expiry": (Mirrored.expire, False),
    "update": ("UPDATE {mirror} SET name = 'changed' WHERE id = 500", True),
    "delete": ("DELETE FROM {mirror} WHERE id = 501", True),
    "property": ("ALTER TABLE {mirror} SET TBLPROPERTIES ('theirs' = 'set')", False),
}


# To the statement all that moves `main` is one; an index has to follow a compaction.
USUAL = {Strategy.MERGE: ("append",), Strategy.INDEX: ("append", "compaction")}
OTHERS = (("append", "compaction"), ("append", "expiry", "property"), ("update", "delete"))


@pytest.mark.parametrize(
    ("strategy", "acts"),
    [
        *USUAL.items(),
        *(
            pytest.param(strategy, acts, marks=pytest.mark.soak)
            for strategy in USUAL
            for acts in OTHERS
        ),
    ],
)
def test_another_writer_between_our_work_and_its_commit(embedded_lake, once, acts, strategy):
    mirrored = Mirrored(embedded_lake, strategy=strategy)
    ours = (
        (JavaTable, "publish_branch") if strategy is Strategy.MERGE else (PreparedCommit, "commit")
    )
    mirrored.append(*wave(1), event("I", 1, 500, "theirs to change"), event("I", 1, 501, "to go"))
    mirrored.merge()
    for number, (act, moves_main) in enumerate(map(ACTS.get, acts), 2):
        mirrored.append(*wave(number))

        def after_theirs(publish, act=act):
            if callable(act):
                act(mirrored, mirrored.mirror)
            else:
                mirrored.lake.sql(act.format(mirror=f"lake.{mirrored.mirror}"))
            return publish()

        once(*ours, after_theirs)
        report = mirrored.merge()
        # A commit of files was prepared on the metadata as it was, and any change is in its way.
        refused = moves_main or strategy is Strategy.INDEX
        assert (report.conflicts, report.batches, report.rows_scanned) == (int(refused), 1, 6)
    found, wanted = mirrored.found(), mirrored.wanted()
    # What they did to rows that no event speaks of stays.
    if "append" in acts:
        assert found.pop((900,)) == {"id": 900, "name": "theirs", "amount": 9, "lsn": 9}
    else:
        assert found.pop((500,)) == {**wanted.pop((500,)), "name": "changed"}
        del wanted[(501,)]
    assert found == wanted
    check_beside(mirrored, 1 + len(acts))
    assert branches(mirrored) == []


@pytest.mark.parametrize("strategy", [Strategy.SCAN, Strategy.INDEX])
def test_a_mirror_that_others_write_and_expire_meanwhile_is_looked_at_anew(embedded_lake, strategy):
    mirrored = Mirrored(embedded_lake, strategy=strategy)
    mirrored.append(*wave(1))
    mirrored.merge()
    mirrored.append(*wave(2))

    def replace_and_expire():
        mirrored.compact(mirrored.mirror)
        mirrored.expire(mirrored.mirror)

    with meanwhile("merge.prepared", replace_and_expire):
        report = mirrored.merge()
    assert (report.conflicts, report.batches) == (1, 1)
    check(mirrored, 2)


@pytest.mark.soak
def test_another_writer_each_time_ends_in_an_error_that_loses_nothing(mirrored, monkeypatch):
    mirrored.append(*wave(1))
    mirrored.merge()
    mirrored.append(*wave(2))
    original = JavaTable.publish_branch

    def after_theirs(self, *arguments):
        mirrored.compact(mirrored.mirror)
        return original(self, *arguments)

    monkeypatch.setattr(JavaTable, "publish_branch", after_theirs)
    with pytest.raises(ConflictError, match="main has moved"):
        mirrored.merge(attempts=2)
    monkeypatch.undo()
    mirrored.merge()
    check(mirrored, 2)


@pytest.mark.soak
def test_two_mergers_take_turns(mirrored, monkeypatch):
    """At a step of the first, the second does all of its own."""
    for waves, point in enumerate(POINTS, 1):
        mirrored.append(*wave(waves))
        others = []

        def reach(name, point=point, others=others):
            if name == point and not others:
                others.append(None)
                others[0] = mirrored.merge()

        monkeypatch.setattr(failpoints, "reach", reach)
        report = mirrored.merge()
        monkeypatch.undo()
        check(mirrored, waves)
        # Each event is counted by one of the two.
        first_won = point == "merge.published"
        assert (report.batches, others[0].batches) == (int(first_won), int(not first_won))
        assert (report.conflicts, others[0].conflicts) == (int(not first_won), 0)
        assert report.rows_scanned + others[0].rows_scanned == 6


def test_a_merge_of_more_than_an_hour_keeps_its_branch(mirrored, monkeypatch):
    """Another worker removes only what cannot be published any more."""
    mirrored.append(*wave(1))
    mirrored.merge()
    mirrored.lake.sql(f"ALTER TABLE {mirrored.mirror} CREATE BRANCH `neve-merge-test`").collect()
    mirrored.append(*wave(2))
    clock = SimpleNamespace(time=lambda: time.time() - 7200)
    monkeypatch.setattr(merge_into, "time", clock)

    def another_dies():
        clock.time = time.time
        with power_cut("merge.applied"):
            mirrored.merge(strategy=Strategy.MERGE)
        assert len(branches(mirrored)) == 3

    with meanwhile("merge.applied", another_dies):
        report = mirrored.merge(strategy=Strategy.MERGE)
    assert (report.batches, report.conflicts) == (1, 0)
    check(mirrored, 2)
    # What the dead one left goes with the next merge, an hour later.
    clock.time = lambda: time.time() + 7200
    mirrored.append(*wave(3))
    mirrored.merge(strategy=Strategy.MERGE)
    assert branches(mirrored) == ["neve-merge-test"]


@pytest.mark.parametrize("step", ["added_records", "publish_branch"])
def test_a_branch_that_somebody_removed_costs_an_attempt(mirrored, once, step):
    mirrored.append(*wave(1))
    mirrored.merge()
    mirrored.append(*wave(2))

    def removed(go_on):
        (branch,) = branches(mirrored)
        mirrored.lake.sql(f"ALTER TABLE {mirrored.mirror} DROP BRANCH `{branch}`").collect()
        return go_on()

    once(JavaTable, step, removed)
    report = mirrored.merge(strategy=Strategy.MERGE)
    assert (report.batches, report.conflicts) == (1, 1)
    check(mirrored, 2)


def test_two_mergers_make_the_mirror_at_once(mirrored, once):
    mirrored.append(*wave(1))

    def after_the_other(create):
        assert mirrored.merge().batches == 1
        return create()

    once(JavaTable, "create", after_the_other)
    report = mirrored.merge()
    assert (report.batches, report.conflicts) == (0, 1)
    check(mirrored, 1)


def race(mirrored, waves, mergers):
    for number in range(1, waves + 1):
        mirrored.append(*wave(number))
    start = threading.Barrier(mergers)

    def work(_):
        start.wait()
        return mirrored.merge(attempts=60, loaded=LoadedTables())

    with ThreadPoolExecutor(mergers) as pool:
        reports = list(pool.map(work, range(mergers)))
    check(mirrored, waves)
    assert sum(report.rows_scanned for report in reports) == waves * 6


def test_two_mergers_at_once(embedded_lake):
    race(Mirrored(embedded_lake, batch_size=6), waves=2, mergers=2)


@pytest.mark.soak
def test_many_mergers_at_once(embedded_lake):
    race(Mirrored(embedded_lake, batch_size=6), waves=12, mergers=4)


def unknown():
    return UnknownOutcomeError("the answer was lost", retryable=True)


def lost_after(call):
    call()
    raise unknown()


def lost_before(call):
    raise unknown()


CREATE, PUBLISH = (JavaTable, "create"), (JavaTable, "publish_branch")
BESIDE, BRANCH = (StagingTable, "append"), (JavaTable, "create_branch")
APPLY = (MergeInto, "_apply")


@pytest.mark.parametrize(
    ("lost", "steps"),
    [
        (lost_after, [CREATE, BESIDE, PUBLISH]),
        pytest.param(lost_after, [BRANCH, APPLY], marks=pytest.mark.soak),
        pytest.param(lost_before, [CREATE, BESIDE, BRANCH, APPLY, PUBLISH], marks=pytest.mark.soak),
    ],
)
def test_a_lost_answer_is_looked_into(mirrored, once, lost, steps):
    for waves, (owner, name) in enumerate(steps, 1):
        mirrored.append(*wave(waves))
        once(owner, name, lost)
        report = mirrored.merge()
        check(mirrored, waves)
        assert (report.outcome, report.batches, report.rows_scanned) == ("merged", 1, 6)
        assert report.conflicts == 0
    # One commit for each wave, and the first, empty one: none was made twice.
    assert len(mirrored.past()) == len(steps) + 1


def test_a_lost_answer_is_looked_into_until_there_is_one(mirrored, once):
    """The catalog applied the commit, and is then down for a while."""
    mirrored.append(*wave(1))
    mirrored.merge()
    mirrored.append(*wave(2))

    def lost_and_down(publish):
        publish()
        once(type(mirrored.lake.catalog()), "load_table", down)
        raise unknown()

    def down(load):
        raise requests.exceptions.ConnectionError

    once(JavaTable, "publish_branch", lost_and_down)
    report = mirrored.merge()
    assert (report.outcome, report.batches, report.rows_scanned) == ("merged", 1, 6)
    check(mirrored, 2)
    assert len(mirrored.past()) == 3


@pytest.mark.parametrize(
    "strategy", [Strategy.INDEX, pytest.param(Strategy.SCAN, marks=pytest.mark.soak)]
)
def test_a_lost_answer_to_a_commit_of_files_is_looked_into(embedded_lake, once, strategy):
    mirrored = Mirrored(embedded_lake, strategy=strategy)
    mirrored.append(*wave(1))
    mirrored.merge()
    mirrored.append(*wave(2))

    def lost(commit):
        commit()
        raise UnknownOutcomeError("the answer was lost", retryable=True)

    once(PreparedCommit, "commit", lost)
    report = mirrored.merge()
    assert (report.batches, report.rows_scanned) == (1, 6)
    check(mirrored, 2)
