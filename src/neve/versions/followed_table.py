"""The table that a follower reads: its commits in batches, and the follower's tag on it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from neve.errors import NotFoundError, UnsupportedError, UsageError
from neve.lake.commit_loop import RetryPolicy, read_until_available
from neve.lake.follower_tags import PROPERTY_PREFIX, check_name
from neve.lake.metadata_json import MAIN
from neve.lake.table_reads import file_reader
from neve.versions.resolve import Commit, ancestors, is_first, resolve_range

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from neve.lake import Lake
    from neve.lake.metadata_json import MetadataJson
    from neve.lake.table_ref import TableRef
    from neve.versions.arguments import Mode
    from neve.versions.resolve import Version

MAX_COMMITS = 100


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
        self._read_file = file_reader(lake, spec.ref)
        self._uuid: str | None = None
        self._since_id: int | None = None

    @property
    def name(self) -> str:
        return self.spec.ref.name

    def read(self) -> MetadataJson:
        """Read the table's metadata.

        Raises:
            NotFoundError: there is no such table, or it was created again.
            UnsupportedError: it cannot be told from a table that is created again.
        """
        reader = self.lake.reader(self.spec.ref.catalog)
        metadata = read_until_available(
            lambda: reader.read_document(self.spec.ref.identifier), RetryPolicy(), self.stop
        )
        if not metadata.document.get("table-uuid"):
            raise UnsupportedError(
                f"table {self.name} has no table-uuid, as format version 1 allows, so that a "
                "follower cannot tell it from another table of that name",
                hint="give its metadata file one, and register the table by that file",
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

    def beginning(self, metadata: MetadataJson) -> Version | None:
        """Return where a follower begins that has committed nothing.

        A branch is where it was at the first look: later it is where commits are not to be missed.
        """
        since = self.spec.since
        if self._since_id is not None:
            return self._since_id
        if isinstance(since, str):
            self._since_id = metadata.refs.get(since)
        return since

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
        elif isinstance(start, int) and start != spec.since:
            raise self._expired(start)
        elif start is None and spec.mode == "net" and line and not self._is_first(metadata, line):
            commits = tuple(reversed(line))
            return [CommitRange(None, line[0].snapshot_id, commits, is_whole_table=True)]
        versions = resolve_range(
            self.name,
            metadata,
            start,
            spec.until,
            only_ends=spec.mode == "net",
            read=self._read_file,
        )
        ranges = []
        before = versions.start_id
        for first in range(0, len(versions.commits), spec.max_commits):
            commits = versions.commits[first : first + spec.max_commits]
            until = commits[-1].snapshot_id
            ranges.append(CommitRange(before, until, commits))
            before = until
        return ranges

    def _is_first(self, metadata: MetadataJson, line: Sequence[Commit]) -> bool:
        """Tell whether a line, the newest commit first, goes back to the table's first commit."""
        return is_first(metadata, line[-1], self._read_file)

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
        if shared is not None or not line or self._is_first(metadata, line):
            raise self._rolled_back(position, end_id, shared)
        return False

    def _expired(self, position: int) -> NotFoundError:
        name = self.spec.name
        again = (
            f"run: neve follow drop {self.name} {name}, and follow from a version that neve "
            f"describe {self.name} shows"
        )
        return NotFoundError(
            f"{self.name}: follower {name} is at snapshot {position}, which has expired, so that "
            "what changed after it is not known",
            hint=again if self._kept is None else self.refill_hint,
        )

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

    def rows(self, lake: Lake, commits: CommitRange, *, names_commits: bool = True) -> DataFrame:
        """Return the changes of some commits.

        Args:
            names_commits: without it, mode `net` reads less, and rows name no commit.
        """
        from neve.versions.changes import read_changes
        from neve.versions.target_rows import all_as_inserts

        spec = self.spec
        if commits.is_whole_table:
            with lake.explaining():
                frame = lake.spark.read.option("versionAsOf", commits.until).table(spec.ref.quoted)
            return all_as_inserts(frame)
        return read_changes(
            lake,
            spec.ref,
            commits.since,
            commits.until,
            spec.mode,
            spec.keys,
            names_commits=names_commits,
        )

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


def _end_id(name: str, metadata: MetadataJson, until: Version | None) -> int | None:
    if until is None:
        return metadata.current_snapshot_id
    # Of a range that begins at its end only the end is looked for.
    return resolve_range(name, metadata, until, until).end_id
