"""Files of a rewrite whose commit may have been applied are never deleted."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from neve.errors import CatalogError, ConflictError, NeveError, UnknownOutcomeError
from neve.lake.compaction import GroupRewrite
from neve.lake.table_ref import TableRef


class Rewrite:
    """Commits that fail one after the other; the table shows none of them."""

    def __init__(self, *failures) -> None:
        self.failures = list(failures)
        self.aborted = False

    def present(self, paths):
        return paths

    def write(self, *_):
        return SimpleNamespace(id="x", files=1, bytes=1)

    def commit(self, *_):
        raise self.failures.pop(0)

    def has_commit(self, *_):
        return False

    def abort(self, _):
        self.aborted = True


def is_aborted(*failures):
    rewrite = GroupRewrite.__new__(GroupRewrite)
    rewrite._lake = SimpleNamespace(explaining=nullcontext)
    rewrite._ref = TableRef("lake", ("ns", "t"))
    rewrite._committing = threading.Lock()
    rewrite._rewrite = Rewrite(*failures)
    with pytest.raises(NeveError):
        rewrite.rewrite(["a", "b"], (), 1, 1)
    return rewrite._rewrite.aborted


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
