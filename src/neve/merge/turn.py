"""One turn of a mirror: what is read once and serves all the turn's batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from neve.lake.java_tables import JavaTable, Task, reusable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from neve.lake import Lake
    from neve.merge.plan import KnownChangelog
    from neve.merge.spec import MergeSpec

# Times are written as text for the next merge, and read by Python, too.
_SETTINGS = {"spark.sql.session.timeZone": "UTC"}


@dataclass
class Turn:
    """A backlog of several batches is looked at once: each batch takes the next slice of it.

    What is committed to the changelog meanwhile is for the next turn.
    """

    lake: Lake
    spec: MergeSpec
    _stack: ExitStack
    # The changelog as the turn found it; None: it is to be looked at.
    known: KnownChangelog | None = None
    _planned: dict[tuple[int, int | None], Sequence[Task]] = field(default_factory=dict)

    @classmethod
    @contextmanager
    def begun(cls, lake: Lake, spec: MergeSpec) -> Iterator[Turn]:
        with ExitStack() as stack:
            yield cls(lake, spec, stack)

    @cached_property
    def session(self) -> SparkSession:
        """The turn's own session, so that the settings of a merge are seen by nobody else."""
        return self._stack.enter_context(reusable(self.lake, _SETTINGS))

    def plan_files(self, snapshot_id: int, after_id: int | None = None) -> Sequence[Task]:
        """Return the changelog's files at a snapshot, or those appended after another one."""
        key = (snapshot_id, after_id)
        if key not in self._planned:
            changelog = JavaTable(self.lake, self.session, self.lake.ref(self.spec.changelog))
            self._planned[key] = changelog.plan_files(snapshot_id, after_id)
        return self._planned[key]

    def look_again(self) -> None:
        """Forget what was read: something has changed."""
        self.known = None
        self._planned.clear()
