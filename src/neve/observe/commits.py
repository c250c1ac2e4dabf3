"""What a commit to a table cost, told once for each to whoever counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class CommitMeasured:
    """One commit, with all its attempts.

    Args:
        table: namespace and name.
        attempts: requests that asked the catalog to commit.
        conflicts: attempts that were refused since another writer was first.
        unknown_outcomes: attempts whose answer was lost.
        seconds: from the first attempt until the outcome, or until it was given up.
        manifests: manifests that were written, in all attempts.
        files, rows, bytes: of the data files, which are written before the first attempt.
        committed: whether the catalog has confirmed it.
    """

    table: str
    attempts: int
    conflicts: int
    unknown_outcomes: int
    seconds: float
    manifests: int
    files: int
    rows: int
    bytes: int
    committed: bool


# Called by the thread that commits, also when the commit failed. It must be quick, and not raise.
CommitObserver = Callable[[CommitMeasured], None]


def ignore_commits(commit: CommitMeasured) -> None:
    """Count nothing."""
