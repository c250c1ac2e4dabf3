"""Files of a rewrite whose commit may have been applied are never deleted."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from types import SimpleNamespace

from neve.errors import CatalogError, ConflictError, NeveError, UnknownOutcomeError
from neve.lake.compaction import GroupRewrite, WrittenGroup
from neve.lake.table_ref import TableRef


class Rewrite:
    """Commits that fail one after the other, or with a certain group; the table shows none."""

    def __init__(self, *failures, refuses="") -> None:
        self.failures = list(failures)
        self.refuses = refuses
        self.attempts: list[str] = []
        self.aborted: list[str] = []

    def commit(self, groups, _summary):
        self.attempts.append("".join(group.id for group in groups))
        if self.failures:
            raise self.failures.pop(0)
        if self.refuses and self.refuses in self.attempts[-1]:
            raise ConflictError("rows were deleted")

    def has_commit(self, *_):
        return False

    def abort(self, group):
        self.aborted.append(group.id)

    is_expired = False


def group_rewrite():
    lake = SimpleNamespace(explaining=nullcontext)
    return GroupRewrite(lake, TableRef("lake", ("ns", "t")), ())


def written(java, name="x"):
    return WrittenGroup(name, 1, 1, 2, None, java)


def is_aborted(*failures):
    java = Rewrite(*failures)
    group = written(java)
    with suppress(NeveError):
        assert group_rewrite().commit([group]) == [group]
    return bool(java.aborted)


def test_new_files_stay_if_any_attempt_may_have_been_applied():
    """An answer is lost, and then the catalog is away: the first commit may come through yet."""
    lost, away = UnknownOutcomeError("lost"), CatalogError("away", retryable=True)
    assert not is_aborted(lost, away, away)
    assert not is_aborted(lost, CatalogError("no access"))
    assert not is_aborted(lost, lost, lost)


def test_new_files_go_if_every_attempt_was_refused():
    refused = ConflictError("refused")
    assert is_aborted(refused, refused, refused)
    assert is_aborted(CatalogError("no access"))


def test_groups_share_a_commit_and_one_that_lost_is_refused_alone():
    java = Rewrite(refuses="b")
    groups = [written(java, name) for name in "abc"]
    assert group_rewrite().commit(groups) == [written(java, "b")]
    assert java.attempts[0] == "abc"
    assert [each for each in java.attempts if len(each) == 1 and each != "b"] == ["a", "c"]
    assert java.aborted == ["b"]
    java = Rewrite()
    groups = [written(java, name) for name in "abc"]
    assert group_rewrite().commit(groups) == []
    assert (java.attempts, java.aborted) == (["abc"], [])


def test_groups_of_an_expired_snapshot_give_way_and_those_of_a_newer_one_do_not():
    """Iceberg cannot tell which rows were deleted since, and fails with a NullPointerException."""
    old, new = Rewrite(), Rewrite()
    old.is_expired = True
    groups = [written(old, "a"), written(new, "b"), written(new, "c")]
    assert group_rewrite().commit(groups) == groups[:1]
    assert (old.attempts, old.aborted) == ([], ["a"])
    assert (new.attempts, new.aborted) == (["bc"], [])


def test_a_snapshot_is_read_anew_when_it_is_old_or_expired(monkeypatch):
    reads, now = [], [0.0]

    def read(*_):
        reads.append(SimpleNamespace(is_expired=False, present=lambda _: []))
        return reads[-1]

    monkeypatch.setattr("neve.lake.compaction.FileRewrite", read)
    lake = SimpleNamespace(explaining=nullcontext, spark=None)
    rewrite = GroupRewrite(lake, TableRef("lake", ("ns", "t")), (), clock=lambda: now[0])

    def count():
        assert rewrite.write(["a", "b"], (), None) is None
        return len(reads)

    assert [count(), count()] == [1, 1]
    now[0] = 301.0
    assert [count(), count()] == [2, 2]
    reads[-1].is_expired = True
    assert [count(), count()] == [3, 3]
