"""Appends to a table, each exactly once: data files that are written already, and one commit.

An append has an id of its own, which its snapshot's summary holds. After a conflict or a lost
answer the table is read again, and the id says whether the append is applied. What an append costs
does not depend on how many there were: metadata stays JSON (`json_table.py`), manifests and
snapshots stay few (`append_snapshot.py`, `snapshot_limit.py`).
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from neve.errors import ConflictError, UnsupportedError
from neve.lake.append_history import AppliedAppends, SeenVersion, find_removed_append
from neve.lake.append_snapshot import NewSnapshot, snapshot_json, write_append
from neve.lake.commit_errors import refused, unknown
from neve.lake.commit_loop import CommitCounters, RetryPolicy, commit_until_known
from neve.lake.faults import explained
from neve.lake.json_table import delete_after_commit, json_table
from neve.lake.metadata_json import MAIN
from neve.lake.metadata_updates import (
    add_snapshot,
    remove_snapshots,
    set_branch,
    set_properties,
)
from neve.lake.snapshot_limit import (
    APPEND_ID,
    REMOVED_APPENDS,
    SnapshotLimit,
    delete_unreached,
    snapshots_to_remove,
    with_removed,
)
from neve.lake.staged_snapshot import COUNTS
from neve.lake.trimmed_metadata import TrimmedMetadata

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

    from neve.lake.metadata_json import MetadataJson
    from neve.lake.profile import CatalogProfile

logger = logging.getLogger(__name__)

# Appends of one process that one commit takes along: their ids are in one summary.
_MOST_JOINED = 64
# So long after a commit of ours, few others have committed: the history since then is kept.
_FRESH_SECONDS = 5.0
# The deadline ends an append. Where many write to one table, most attempts are refused.
_ATTEMPTS = 1_000_000


@dataclass(frozen=True)
class Appended:
    """Where an append is.

    Args:
        snapshot_id: the snapshot that has its files.
        manifests: how many manifests this call has written, in all its attempts. 0, if the
            commit of another thread took the files along.
    """

    snapshot_id: int
    manifests: int = 0


@dataclass(eq=False)
class _Append:
    """An append that is not known to be applied.

    Args:
        seen: the version in which the table was last seen to lack it.
        is_sent: whether an earlier attempt, or others, may have applied it.
        is_abandoned: who wanted it has given up, and knows that it may be applied.
    """

    append_id: str
    files: tuple[DataFile, ...]
    seen: SeenVersion
    counts: Mapping[str, int] = field(default_factory=dict)
    applied: Appended | None = None
    is_sent: bool = False
    is_abandoned: bool = False

    @property
    def paths(self) -> set[str]:
        return {file.file_path for file in self.files}


class AppendTable:
    """One table as those see it who append to it without Spark. May be used by several threads.

    Raises:
        NotFoundError: there is no such table any more.
        UnsupportedError: its format version cannot be written here.
    """

    def __init__(
        self, profile: CatalogProfile, table: Table, limit: SnapshotLimit | None = None
    ) -> None:
        self._profile = profile
        self._table = json_table(
            profile, table.catalog, table.name(), str(table.metadata.table_uuid)
        )
        # S3 Tables expires snapshots by itself.
        is_unlimited = profile.settings.type == "s3tables"
        self._limit = SnapshotLimit(None) if is_unlimited else limit or SnapshotLimit()
        self._trimmed = TrimmedMetadata()
        self._applied = AppliedAppends()  # of the thread that commits
        self._changed = threading.Condition()
        self._waiting: list[_Append] = []
        self._is_committing = False
        # Whether nobody else is known to have committed since the table was read.
        self._is_fresh = False
        self.refresh()

    @property
    def name(self) -> str:
        """Namespace and table, with dots."""
        return self._table.name

    @property
    def uuid(self) -> str:
        return self._table.metadata.uuid

    @property
    def main_id(self) -> int | None:
        return self._table.metadata.refs.get(MAIN)

    @property
    def metadata(self) -> TableMetadata:
        """Its schema, partition spec, sort order and properties, for those who write files.

        Of the snapshots, it has the current one only.
        """
        return self._trimmed.parse(self._table.metadata)

    @property
    def document(self) -> MetadataJson:
        """Its metadata as a whole, all snapshots included."""
        return self._table.metadata

    @property
    def io(self) -> FileIO:
        return self._table.io

    def refresh(self) -> None:
        """Read the catalog anew. Raises NotFoundError: it was dropped, or created again."""
        self._table.refresh()
        self._read_at = time.monotonic()
        self._is_fresh = True
        if self._table.metadata.format_version > 2:
            raise UnsupportedError(
                f"table {self.name} has format version {self._table.metadata.format_version}: "
                "without Spark, Neve writes to versions 1 and 2 only",
                hint="let Spark write to it, or drop it, so that it is made anew",
            )

    def refresh_if_older(self, seconds: float) -> None:
        """Read the catalog anew if that was longer ago: a server's login to the store expires.

        Not during another thread's commit, which asserts what was read before it.
        """
        with self._changed:
            if self._is_committing or time.monotonic() - self._read_at <= seconds:
                return
            self._is_committing = True
        try:
            self.refresh()
        finally:
            self._leave((), None)

    def append(
        self,
        files: Sequence[DataFile],
        append_id: str,
        *,
        policy: RetryPolicy,
        counters: CommitCounters,
        counts: Mapping[str, int] | None = None,
        stop: threading.Event | None = None,
        others_append: bool = False,
    ) -> Appended:
        """Add files to `main`, exactly once for an id.

        Appends of other threads that arrive during a commit share the next one. The deadline of
        the policy counts, and not its number of attempts.

        Args:
            counts: of records, for the snapshot's summary; those of appends that share a commit are
                added up.
            others_append: others may apply it since the table was last read, which lacked it then.

        Raises:
            ConflictError: others were first in every attempt; nothing was applied.
            UnknownOutcomeError: the answer was lost, and the table does not show the append yet.
                The files must stay.
            NeveError: the catalog or the store failed; nothing was applied.
        """
        seen = SeenVersion.of(self._table.metadata)
        append = _Append(append_id, tuple(files), seen, counts or {}, is_sent=others_append)
        end = policy.clock() + policy.deadline_seconds
        joined = self._join(append, policy.deadline_seconds)
        if joined is None:
            if append.applied is None:
                raise RuntimeError("an append neither waits nor is applied")
            return append.applied
        policy = replace(
            policy,
            attempts=_ATTEMPTS,
            read_attempts=_ATTEMPTS,
            deadline_seconds=end - policy.clock(),
        )
        try:
            self._commit(joined, policy, counters, stop)
        finally:
            self._leave(joined, append)
        if append.applied is None:
            raise RuntimeError("a commit of other appends ended without an error")
        return append.applied

    def find(self, append_id: str) -> int | None:
        """Return the snapshot of an append, as the table was last read; None: it has none."""
        return AppliedAppends().of(self._table.metadata).get(append_id)

    def _join(self, append: _Append, seconds: float) -> list[_Append] | None:
        """Wait until this thread may commit, and return what; None: another thread has done it.

        Raises:
            ConflictError: other threads committed all the time; nothing was sent.
            UnknownOutcomeError: another thread's commit of it is not finished.
        """
        with self._changed:
            self._waiting.append(append)
            is_due = self._changed.wait_for(
                lambda: (
                    append.applied is not None
                    or (not self._is_committing and append in self._waiting)
                ),
                max(seconds, 0.0),
            )
            if append.applied is not None:
                return None
            if not is_due:
                append.is_abandoned = True
                is_unsent = append in self._waiting and not append.is_sent
                self._waiting = [each for each in self._waiting if each is not append]
                if is_unsent:
                    raise refused(self.name, "an append", "other threads committed all the time")
                raise unknown(self.name, "an append", "a commit with others has not ended yet")
            self._is_committing = True
            # One that has failed with others is tried alone: it may not be its own fault.
            others = [each for each in self._waiting if each is not append and not each.is_sent]
            joined = [append] if append.is_sent else [append, *others[: _MOST_JOINED - 1]]
            self._waiting = [each for each in self._waiting if each not in joined]
            return joined

    def _leave(self, joined: Sequence[_Append], own: _Append | None) -> None:
        """Let others commit; who joined a commit that failed tries it by itself."""
        with self._changed:
            self._waiting += [
                each
                for each in joined
                if each is not own and each.applied is None and not each.is_abandoned
            ]
            self._is_committing = False
            self._changed.notify_all()

    def _commit(
        self,
        joined: Sequence[_Append],
        policy: RetryPolicy,
        counters: CommitCounters,
        stop: threading.Event | None,
    ) -> None:
        attempts = _Attempts()
        conflicts = counters.conflicts

        def refresh() -> None:
            # Certainly refused: the table would show nothing that is not known.
            if attempts.is_look_needless:
                attempts.is_look_needless = False
                return
            # Where our own last commit was the newest, reading it again would cost a round trip.
            is_old = time.monotonic() - self._read_at > _FRESH_SECONDS
            if not self._is_fresh or is_old or self._may_remove_unseen():
                self.refresh()
            self._is_fresh = False

        def find_all() -> bool | None:
            metadata = self._table.metadata
            snapshots = self._applied.of(metadata)
            for each in joined:
                snapshot_id = snapshots.get(each.append_id)
                if snapshot_id is None:
                    with explained(self._profile):
                        found = find_removed_append(metadata, self.io, each.paths, each.seen)
                    snapshot_id, each.seen = found
                if snapshot_id is not None:
                    each.applied = Appended(snapshot_id, attempts.manifests)
            return True if all(each.applied for each in joined) else None

        try:
            commit_until_known(
                refresh,
                lambda: find_all() or self._attempt(joined, attempts),
                find_all,
                policy=policy,
                counters=counters,
                stop=stop,
            )
        finally:
            counters.manifests += attempts.manifests
        # Where others write, too, the table is read before the next commit.
        self._is_fresh = counters.conflicts == conflicts
        self._delete_refused(
            attempts, {each.applied.snapshot_id for each in joined if each.applied}
        )

    def _may_remove_unseen(self) -> bool:
        """Tell whether a commit would remove snapshots, and the catalog looks at `main` alone.

        A tag that was put on one of them since the table was read would go with it.
        """
        return not self._table.compares_all_refs and bool(self._snapshots_to_remove())

    def _snapshots_to_remove(self) -> list[int]:
        return snapshots_to_remove(self._table.metadata, self._limit, time.time())

    def _attempt(self, joined: Sequence[_Append], attempts: _Attempts) -> bool:
        left = [each for each in joined if each.applied is None]
        for each in left:
            now = SeenVersion.of(self._table.metadata)
            if each.is_sent and each.seen != now:
                raise unknown(self.name, "an append", "snapshots that may have it have expired")
            each.seen = now
        files = [file for each in left for file in each.files]
        new = self._write(files, _summary_of(left))
        attempts.manifests += len(new.manifests)
        before = self._table.metadata
        removed = self._snapshots_to_remove()
        snapshot_id = new.snapshot.snapshot_id
        updates = [add_snapshot(snapshot_json(new.snapshot)), set_branch(before, MAIN, snapshot_id)]
        if removed:
            updates.append(remove_snapshots(removed))
            updates.append(set_properties({REMOVED_APPENDS: with_removed(before, removed)}))
        unsent = [each for each in left if not each.is_sent]
        for each in unsent:
            each.is_sent = True
        try:
            self._table.commit(MAIN, updates, f"appending snapshot {snapshot_id}")
        except ConflictError:
            attempts.refused.append(new)
            # A server may refuse the second of two equal requests that a proxy has sent.
            attempts.is_look_needless = self._table.is_refusal_certain
            for each in unsent:
                each.is_sent = not self._table.is_refusal_certain
            raise
        self._read_at = time.monotonic()
        for each in left:
            each.applied = Appended(snapshot_id, attempts.manifests)
        if removed:
            delete_unreached(self.io, self.name, before, removed)
        return True

    def _write(self, files: Sequence[DataFile], summary: Mapping[str, str]) -> NewSnapshot:
        with explained(self._profile):
            try:
                return write_append(self.metadata, self.io, files, summary)
            except FileNotFoundError as error:
                # What we know of the table is older than what others have expired.
                raise refused(
                    self.name, "an append", f"a manifest is not there: {error}"
                ) from error
            except ValueError as error:
                # Of a property of the table, as a rule.
                raise UnsupportedError(f"{self.name} cannot be appended to: {error}") from error

    def _delete_refused(self, attempts: _Attempts, applied: set[int]) -> None:
        """Delete the manifests of refused attempts: the table shows that none was applied."""
        paths = {
            path
            for new in attempts.refused
            if new.snapshot.snapshot_id not in applied
            for path in new.paths
        }
        if paths:
            delete_after_commit(self.io, self.name, paths, "manifest")


@dataclass
class _Attempts:
    """What the attempts of one commit did so far."""

    manifests: int = 0
    is_look_needless: bool = False
    refused: list[NewSnapshot] = field(default_factory=list)


def _summary_of(appends: Sequence[_Append]) -> dict[str, str]:
    summary = {APPEND_ID: ",".join(each.append_id for each in appends)}
    counts: Counter[str] = Counter()
    for each in appends:
        counts.update(each.counts)
    if counts:
        summary[COUNTS] = json.dumps(counts)
    return summary
