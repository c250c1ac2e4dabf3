"""Follow a table: read its changes batch after batch, each one exactly once.

The tag `neve_follow_<name>` is the position: the snapshot up to which everything is committed. A
follower that has committed nothing has no tag, and begins at `since`. A commit is a compare-and-set
on the tag, so that of two consumers of one name the second is refused.

Delivery is at least once for a consumer of its own: killed after its work and before `commit`, it
reads the batch again. `to_table` is exactly once (`follow_target.py`).
"""

from __future__ import annotations

import json
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Union

from neve.errors import ConflictError, NotFoundError, UsageError
from neve.lake.commit_loop import RetryPolicy, read_until_available
from neve.lake.followers import PROPERTY_PREFIX, FollowerTag, check_name, follower_tag
from neve.lake.metadata_json import MAIN
from neve.versions.resolve import Commit, ancestors, resolve_range

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from neve.lake import Lake
    from neve.lake.metadata_json import MetadataJson
    from neve.lake.table_ref import TableRef
    from neve.versions.arguments import Mode
    from neve.versions.follow_target import TargetReport
    from neve.versions.resolve import Version

logger = logging.getLogger(__name__)

MAX_COMMITS = 100

Transform = Union[Callable[["DataFrame"], "DataFrame"], str]  # noqa: UP007 - a type at run time
"""What is done to the changes before they are written: a function, or a SELECT from `changes`."""


@dataclass(frozen=True)
class FollowSpec:
    """Who follows which table, and how.

    Args:
        since: where a follower begins that has committed nothing; None: at the empty table.
        until: the last version that is read, or the branch that is followed; None: `main`.
        max_commits: a batch has no more commits than this.
        wait_seconds: how long to wait before looking for new commits; None: do not wait.
    """

    ref: TableRef
    name: str
    mode: Mode = "changes"
    keys: tuple[str, ...] | None = None
    since: Version | None = None
    until: Version | None = None
    max_commits: int = MAX_COMMITS
    wait_seconds: float | None = None

    def __post_init__(self) -> None:
        check_name(self.name)
        if self.max_commits < 1:
            raise UsageError("max_commits is the most commits of a batch: at least 1")
        if self.wait_seconds is not None and self.wait_seconds <= 0:
            raise UsageError("wait is how many seconds to wait between two looks: more than 0")


@dataclass(frozen=True)
class CommitRange:
    """The commits of one batch, the oldest first."""

    since: int | None
    until: int
    commits: tuple[Commit, ...]
    # Snapshots before them have expired: the rows of `until` are what was added in all.
    is_whole_table: bool = False


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


class SourceTable:
    """The table that is followed.

    Args:
        kept: the table that `to_table` keeps.
    """

    def __init__(
        self, lake: Lake, spec: FollowSpec, stop: threading.Event | None, kept: str | None = None
    ) -> None:
        self.lake = lake
        self.spec = spec
        self.stop = stop
        self._kept = kept
        self._uuid: str | None = None

    @property
    def name(self) -> str:
        return self.spec.ref.name

    def read(self) -> MetadataJson:
        """Read the table's metadata. Raises NotFoundError, also if it was created again."""
        reader = self.lake.reader(self.spec.ref.catalog)
        metadata = read_until_available(
            lambda: reader.read(self.spec.ref.identifier), RetryPolicy(), self.stop
        )
        if self._uuid not in (None, metadata.uuid):
            raise NotFoundError(
                f"table {self.name} was dropped and created again",
                hint="follow the new table from its beginning",
            )
        self._uuid = metadata.uuid
        return metadata

    def branch(self, metadata: MetadataJson) -> str | None:
        """Return the branch that is followed; None: the end is one version."""
        until = self.spec.until
        if until is None:
            return MAIN
        return until if isinstance(until, str) and until in metadata.branches else None

    def ranges(self, metadata: MetadataJson, start: Version | None) -> list[CommitRange]:
        """Return the commits after a version, in the batches that they are read in.

        Raises:
            NotFoundError: the version is no ancestor of the end, or snapshots have expired.
            UsageError: `since` or `until` makes no sense.
        """
        spec = self.spec
        end_id = _end_id(self.name, metadata, spec.until)
        line = tuple(ancestors(metadata, end_id))
        if isinstance(start, int) and start in metadata.snapshots:
            if self._is_past(metadata, start, end_id, line):
                return []
        elif start is None and spec.mode == "net" and line and line[-1].parent_id is not None:
            commits = tuple(reversed(line))
            return [CommitRange(None, line[0].snapshot_id, commits, is_whole_table=True)]
        versions = resolve_range(
            self.name, metadata, start, spec.until, only_ends=spec.mode == "net"
        )
        ranges = []
        before = versions.start_id
        for first in range(0, len(versions.commits), spec.max_commits):
            commits = versions.commits[first : first + spec.max_commits]
            until = commits[-1].snapshot_id
            ranges.append(CommitRange(before, until, commits))
            before = until
        return ranges

    def _is_past(
        self, metadata: MetadataJson, position: int, end_id: int | None, line: Sequence[Commit]
    ) -> bool:
        """Tell whether an end that does not move was reached before. Refuses a rollback."""
        ids = {commit.snapshot_id for commit in line}
        if position in ids:
            return False
        before = [commit.snapshot_id for commit in ancestors(metadata, position)]
        if self.branch(metadata) is None and (end_id is None or end_id in before):
            return True
        shared = next((each for each in before if each in ids), None)
        if shared is not None or not line or line[-1].parent_id is None:
            raise self._rolled_back(position, end_id, shared)
        return False

    def _rolled_back(self, position: int, end_id: int | None, shared: int | None) -> NotFoundError:
        name = self.spec.name
        begin = "from the beginning" if shared is None else f"with since={shared}"
        undo = (
            f"undo what {name} has read after {shared or 'the beginning'}, run: neve follow drop "
            f"{self.name} {name}, and follow {begin}"
        )
        return NotFoundError(
            f"{self.name}: follower {name} is at snapshot {position}, which is no ancestor of "
            f"{end_id or 'the empty table'}: the table was rolled back or replaced, or the "
            "follower read another branch",
            hint=undo if self._kept is None else self.refill_hint,
        )

    @property
    def refill_hint(self) -> str:
        """How the table that `to_table` keeps is filled anew: it has a position of its own."""
        return (
            f"to fill {self._kept} from the beginning, drop it and run: neve follow drop "
            f"{self.name} {self.spec.name}"
        )

    def rows(self, lake: Lake, commits: CommitRange) -> DataFrame:
        """Return the changes of some commits."""
        from neve.versions.changes import read_changes
        from neve.versions.target_rows import all_as_inserts

        spec = self.spec
        if commits.is_whole_table:
            with lake.explaining():
                frame = lake.spark.read.option("versionAsOf", commits.until).table(spec.ref.quoted)
            return all_as_inserts(frame, commits.commits[-1])
        return read_changes(lake, spec.ref, commits.since, commits.until, spec.mode, spec.keys)

    def move(
        self,
        expected_id: int | None,
        snapshot_id: int,
        move_id: str,
        described: Mapping[str, str],
    ) -> bool:
        """Move the follower's tag; False: it is not where it was expected."""
        from neve.lake.tag_commit import TagMove, move_tag

        name = self.spec.name
        mark = json.dumps({"move": move_id, **described})
        move = TagMove(
            check_name(name), expected_id, snapshot_id, (f"{PROPERTY_PREFIX}{name}", mark)
        )
        return move_tag(self.lake, self.spec.ref, self._uuid or "", move)

    def wait(self) -> bool:
        """Wait until it is time for another look; False: nobody waits any longer."""
        seconds = self.spec.wait_seconds
        if seconds is None:
            return False
        if self.stop is None:
            time.sleep(seconds)
            return True
        return not self.stop.wait(seconds)

    @property
    def is_stopped(self) -> bool:
        return self.stop is not None and self.stop.is_set()


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
        return source.spec.since if self._read_to is None else self._read_to

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


def _end_id(name: str, metadata: MetadataJson, until: Version | None) -> int | None:
    if until is None:
        return metadata.current_snapshot_id
    # Of a range that begins at its end only the end is looked for.
    return resolve_range(name, metadata, until, until).end_id
