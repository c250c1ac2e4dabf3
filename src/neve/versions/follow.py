"""Follow a table: read its changes batch after batch, each one exactly once.

The tag `neve_follow_<name>` is the position: the snapshot up to which everything is committed. A
follower that has committed nothing has no tag, and begins at `since`. A commit is a compare-and-set
on the tag, so that of two consumers of one name the second is refused.

Delivery is at least once for a consumer of its own: killed after its work and before `commit`, it
reads the batch again. `to_table` is exactly once (`follow_target.py`).
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Union

from neve.errors import ConflictError, NotFoundError, UsageError
from neve.lake.follower_tags import PROPERTY_PREFIX, FollowerTag, check_name, follower_tag
from neve.lake.metadata_json import MAIN
from neve.versions.followed_table import CommitRange, FollowSpec, SourceTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from neve.lake import Lake
    from neve.lake.metadata_json import MetadataJson
    from neve.versions.follow_target import TargetReport
    from neve.versions.resolve import Commit, Version

Transform = Union[Callable[["DataFrame"], "DataFrame"], str]  # noqa: UP007 - a type at run time
"""What is done to the changes before they are written: a function, or a SELECT from `changes`."""


@dataclass(frozen=True)
class Batch:
    """Changes to be worked on, and then committed.

    Args:
        since: the snapshot before the first change; None: the empty table.
        until: the snapshot of the last change.
        commits: the commits between them, the oldest first. Some of them may change no row.
    """

    table: str
    follower: str
    since: int | None
    until: int
    commits: tuple[Commit, ...]
    _read: Callable[[], DataFrame] = field(repr=False, compare=False)
    _commit: Callable[[], None] = field(repr=False, compare=False)

    @cached_property
    def rows(self) -> DataFrame:
        """The changes; nothing is read before it is asked for, and only the changed files."""
        return self._read()

    def commit(self) -> None:
        """Move the follower to the end of this batch, and of all before it. Atomic, idempotent.

        Raises:
            ConflictError: the follower was moved or dropped meanwhile; nothing was changed.
            UnknownOutcomeError: the answer was lost; call it again.
            UsageError: a later batch is committed already, and this one with it.
            NotFoundError: the table was dropped.
        """
        self._commit()


class Follower:
    """A follower of a table: iterate over it for its batches, or keep a table with `to_table`."""

    def __init__(self, lake: Lake, spec: FollowSpec, stop: threading.Event | None = None) -> None:
        self._source = SourceTable(lake, spec, stop)
        # Where the tag is, as far as this follower knows.
        self._tag_id: int | None = None
        self._read_to: int | None = None
        self._is_started = False
        self._branch = MAIN
        self._batches = 0
        self._committed = 0

    @property
    def position(self) -> int | None:
        """The snapshot up to which everything is committed; None: nothing is yet."""
        tag = follower_tag(self._source.read(), self._source.spec.name)
        return None if tag is None else tag.snapshot_id

    def __iter__(self) -> Iterator[Batch]:
        """Yield batches until all commits are read, or with `wait` until `stop` is set.

        Each begins where the one before ended, whether that was committed or not.
        """
        source = self._source
        while not source.is_stopped:
            metadata = source.read()
            start = self._start(metadata)
            for commits in source.ranges(metadata, start):
                self._read_to = commits.until
                yield self._batch(commits)
                if source.is_stopped:
                    return
            if source.branch(metadata) is None or not source.wait():
                return

    def to_table(
        self,
        table: str,
        *,
        transform: Transform | None = None,
        keys: Sequence[str] | None = None,
        add: Sequence[str] = (),
        count: str | None = None,
    ) -> TargetReport:
        """Keep another table by the changes, exactly once, until all commits are read.

        Mode `appends` without keys appends rows. Otherwise rows are merged by their keys, read in
        mode `net`: one change for each key of a batch. The position is in the other table's own
        commit. A table that does not exist is created.

        Args:
            table: `ns.table`, or `catalog.ns.table` of a further catalog.
            transform: makes the rows to be written from the changes: a function of a DataFrame, or
                a SELECT from the view `changes`. Rows with `_change_type` `delete` are deleted.
            keys: columns of the other table that identify a row; without them, the followed
                table's.
            add: columns whose values are added to those that are there, not put in their place.
            count: of these, the one that counts rows; a row whose count becomes 0 is deleted.

        Raises:
            ConflictError: other writers were first in every attempt; nothing is lost, run again.
            NeveError: the rows cannot be read or written; the table is as its last batch left it.
        """
        from neve.versions.follow_target import TargetSpec, keep_table

        source = self._source
        spec = TargetSpec(
            ref=source.lake.ref(table),
            keys=as_names(keys) or source.spec.keys,
            transform=transform,
            add=as_names(add) or (),
            count=count,
        )
        return keep_table(source, spec)

    def _start(self, metadata: MetadataJson) -> Version | None:
        source = self._source
        tag = follower_tag(metadata, source.spec.name)
        if tag is not None and tag.target is not None:
            raise UsageError(
                f"{source.name}: follower {tag.name} keeps table {tag.target}",
                hint=f"choose another name, or drop it: neve follow drop {source.name} {tag.name}",
            )
        tag_id = None if tag is None else tag.snapshot_id
        if not self._is_started:
            if tag is None:
                self._require_new(metadata)
            self._is_started = True
            self._tag_id = self._read_to = tag_id
        elif tag_id != self._tag_id:
            raise self._moved(tag)
        self._branch = source.branch(metadata) or MAIN
        return source.beginning(metadata) if self._read_to is None else self._read_to

    def _require_new(self, metadata: MetadataJson) -> None:
        """Refuse to begin again where somebody else removed the tag: all rows would come twice."""
        name, table = self._source.spec.name, self._source.name
        mark = f"{PROPERTY_PREFIX}{name}"
        if mark in metadata.properties:
            raise NotFoundError(
                f"{table}: follower {name} has committed, but its tag {check_name(name)} is gone; "
                "nobody knows how far it came",
                hint="create the tag again; or, to begin anew, choose another name or run: "
                f"ALTER TABLE {table} UNSET TBLPROPERTIES ('{mark}')",
            )

    def _batch(self, commits: CommitRange) -> Batch:
        source = self._source
        self._batches += 1
        number = self._batches
        # Tells the move of this batch from any other one, also after a lost answer.
        move_id = uuid.uuid4().hex
        return Batch(
            source.name,
            source.spec.name,
            commits.since,
            commits.until,
            commits.commits,
            lambda: source.rows(source.lake, commits),
            lambda: self._commit(number, commits, move_id),
        )

    def _commit(self, number: int, commits: CommitRange, move_id: str) -> None:
        source = self._source
        if number < self._committed:
            raise UsageError(f"{source.name}: a batch after snapshot {commits.until} is committed")
        described = {"branch": self._branch}
        if not source.move(self._tag_id, commits.until, move_id, described):
            raise self._moved(follower_tag(source.read(), source.spec.name))
        self._tag_id = commits.until
        self._committed = number

    def _moved(self, tag: FollowerTag | None) -> ConflictError:
        name = self._source.spec.name
        happened = "was dropped" if tag is None else f"was moved to snapshot {tag.snapshot_id}"
        return ConflictError(
            f"{self._source.name}: follower {name} {happened} by somebody else; this consumer "
            f"expected it {_at(self._tag_id)}, and nothing was committed",
            hint="only one consumer can use a name; follow again to read from its position",
        )


def _at(snapshot_id: int | None) -> str:
    return "not to exist yet" if snapshot_id is None else f"at snapshot {snapshot_id}"


def as_names(names: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return names of columns; one name is one column."""
    if names is None:
        return None
    return (names,) if isinstance(names, str) else tuple(names)
