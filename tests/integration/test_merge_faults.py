"""Merges on a REST catalog and S3 while requests go wrong: the mirror stays the replay."""

from __future__ import annotations

import pytest

from neve import failpoints
from neve.errors import ConflictError, UnknownOutcomeError
from neve.lake.java_tables import JavaTable
from neve.merge.strategy import Strategy
from tests.support.catalog_faults import FAULTS, lost_after, lost_before, refused
from tests.support.merging import Mirrored, event
from tests.support.power_cut import power_cut

pytestmark = pytest.mark.usefixtures("embedded_lake")

# Of a merge with something of everything: tombstones, rejected rows, a branch, rows on it, main.
BURY, REJECT, BRANCH, APPLY, PUBLISH = range(1, 6)
# As files there is no branch; the index comes in the same commit.
INDEXED_PUBLISH = 3
COMMITS_OF_A_NEW_MIRROR = 7
POINTS = [name for name in failpoints.POINTS if name.startswith("merge.")]


class Living(Mirrored):
    """A mirror that exists, and gets something of everything again and again."""

    def __init__(self, lake):
        # By MERGE INTO on a branch, which makes the most commits.
        super().__init__(lake, strategy=Strategy.MERGE)
        self.waves = 0
        self.next_wave()
        self.merge()

    def next_wave(self):
        self.waves += 1
        start = self.waves * 10
        self.append(
            event("I", start, start, "new"),
            event("U", start, 1, f"wave {self.waves}"),
            event("I", start, start + 1, "to go"),
            event("D", start + 1, start + 1),
            event("?", start, start, "what"),
        )

    def check_all(self):
        """The mirror is the replay, and what is beside it is there once."""
        self.check()
        assert self.merge().outcome == "idle"
        tombstones = self.table("rows_tombstones").scan().to_arrow()["id"].to_pylist()
        assert sorted(tombstones) == [number * 10 + 1 for number in range(1, self.waves + 1)]
        assert len(self.table("rows_rejected").scan().to_arrow()) == self.waves


@pytest.fixture(scope="module")
def living(embedded_lake, faulty_lake):
    return Living(faulty_lake)


@pytest.mark.parametrize(
    ("strategy", "number"),
    [
        (Strategy.INDEX, INDEXED_PUBLISH),
        pytest.param(Strategy.MERGE, PUBLISH, marks=pytest.mark.soak),
    ],
)
def test_commits_that_go_wrong(living, faults, strategy, number):
    """One that is refused, two that are applied without a word of it, and one that is both."""
    for name in ("409", "504 after it was applied", "dropped after it was applied", "sent twice"):
        report = go_wrong(living, faults, strategy, number, name)
        # Java hands on what the second request was answered: 409.
        conflicts = {"409", "sent twice"} if strategy is Strategy.MERGE else {"409"}
        assert report.conflicts == (name in conflicts), name
    living.check_all()


def go_wrong(living, faults, strategy, number, name):
    living.next_wave()
    faults.expect(living.namespace, {number: FAULTS[name]})
    report = living.merge(strategy=strategy)
    assert faults.commits >= number, name
    assert (report.outcome, report.batches, report.rows_scanned) == ("merged", 1, 5), name
    assert report.strategy == strategy.value
    return report


def test_many_faults_in_one_merge(living, faults):
    living.next_wave()
    plan = {BURY: lost_after, 3: refused(409), 6: refused(500), 10: lost_before, 16: lost_after}
    faults.expect(living.namespace, plan)
    report = living.merge(attempts=8)
    assert (report.outcome, report.batches) == ("merged", 1)
    living.check_all()


@pytest.mark.parametrize(
    "name",
    [
        "500",
        *(pytest.param(one, marks=pytest.mark.soak) for one in ("503", "504", "dropped before")),
    ],
)
def test_tables_that_cannot_be_loaded_for_a_moment(living, faults, name):
    most = 0
    for part in (0, 1, 2):
        number = 1 + most * part // 3
        living.next_wave()
        faults.expect(living.namespace, reading_plan={number: FAULTS[name]})
        assert living.merge().outcome == "merged"
        assert faults.reads >= number
        most = faults.reads
    faults.expect(living.namespace)
    living.check_all()


@pytest.mark.soak
@pytest.mark.parametrize(
    ("strategy", "number"),
    [
        *((Strategy.MERGE, number) for number in range(BURY, PUBLISH + 1)),
        *((Strategy.INDEX, number) for number in range(BURY, INDEXED_PUBLISH + 1)),
    ],
)
@pytest.mark.parametrize("name", FAULTS)
def test_each_commit_that_goes_wrong(living, faults, name, strategy, number):
    go_wrong(living, faults, strategy, number, name)
    living.check_all()


@pytest.mark.soak
@pytest.mark.parametrize("number", range(1, COMMITS_OF_A_NEW_MIRROR + 1))
@pytest.mark.parametrize("name", FAULTS)
def test_each_commit_that_goes_wrong_while_a_mirror_is_made(faulty_lake, faults, name, number):
    faults.expect("none yet")
    fresh = Living.__new__(Living)
    Mirrored.__init__(fresh, faulty_lake)
    fresh.waves = 0
    fresh.next_wave()
    faults.expect(fresh.namespace, {number: FAULTS[name]})
    assert fresh.merge(attempts=6).outcome == "merged"
    assert faults.commits >= number
    if name == "delayed":
        # Nothing was repeated: there is no further commit that could go wrong.
        assert faults.commits == COMMITS_OF_A_NEW_MIRROR
    faults.expect(fresh.namespace)
    fresh.check_all()


@pytest.fixture(scope="module", params=["sqlite", "postgres", "rest"])
def living_anywhere(request):
    return Living(request.getfixturevalue(f"{request.param}_lake"))


def _conflict(publish):
    raise ConflictError("refused", retryable=True)


def _lost_before(publish):
    raise UnknownOutcomeError("lost", retryable=True)


def _lost_after(publish):
    publish()
    raise UnknownOutcomeError("lost", retryable=True)


@pytest.mark.soak
@pytest.mark.parametrize("fault", [_conflict, _lost_before, _lost_after])
@pytest.mark.parametrize("point", POINTS)
def test_a_crash_and_then_a_fault_on_every_catalog(living_anywhere, monkeypatch, point, fault):
    living = living_anywhere
    living.next_wave()
    with power_cut(point):
        living.merge()
    living.next_wave()
    original, calls = JavaTable.publish_branch, []

    def publish(self, *arguments):
        calls.append(arguments)
        send = lambda: original(self, *arguments)  # noqa: E731
        return fault(send) if len(calls) == 1 else send()

    monkeypatch.setattr(JavaTable, "publish_branch", publish)
    assert living.merge().outcome == "merged"
    assert calls
    living.check_all()
