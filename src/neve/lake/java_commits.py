"""What Java raises while it commits, as the errors that the commit loop knows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from neve.lake import jvm
from neve.lake.commit_errors import CommitOutcome, outcome_of_java, refused, unknown
from neve.lake.sql import explain


@contextmanager
def committing_in_java(table: str, what: str) -> Iterator[None]:
    """Raise what a Java exception means for a commit; as `commit_errors.committing`."""
    try:
        yield
    except jvm.JavaError as error:
        causes = jvm.messages(error)
        outcome = outcome_of_java(causes)
        if outcome is CommitOutcome.REFUSED:
            raise refused(table, what, causes[-1]) from error
        if outcome is CommitOutcome.UNKNOWN:
            raise unknown(table, what, causes[-1]) from error
        raise explain(error) from error
