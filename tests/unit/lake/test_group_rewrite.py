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


def group_rewrite(java):
    rewrite = GroupRewrite.__new__(GroupRewrite)
    rewrite._lake = SimpleNamespace(explaining=nullcontext)
    rewrite._ref = TableRef("lake", ("ns", "t"))
    rewrite._rewrite = java
    return rewrite


def written(name="x"):
    return WrittenGroup(name, 1, 1, 2, None)


def is_aborted(*failures):
    rewrite = group_rewrite(Rewrite(*failures))
    with suppress(NeveError):
        assert rewrite.commit([written()]) == [written()]
    return bool(rewrite._rewrite.aborted)


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
    groups = [written(name) for name in "abc"]
    assert group_rewrite(java).commit(groups) == [written("b")]
    assert java.attempts[0] == "abc"
    assert [each for each in java.attempts if len(each) == 1 and each != "b"] == ["a", "c"]
    assert java.aborted == ["b"]
    java = Rewrite()
    assert group_rewrite(java).commit(groups) == []
    assert (java.attempts, java.aborted) == (["abc"], [])
