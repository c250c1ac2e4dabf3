"""The steps of publishing a batch; each can be killed, repeated, and run by two workers at once.

Delivery: exactly once. What a batch consumed is a table property that changes in the very commit
that moves `main` to the batch's rows. Whoever loses a race finds the mark past its range.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from neve import failpoints
from neve.lake.commit_loop import (
    CommitCounters,
    RetryPolicy,
    commit_until_known,
    read_until_available,
)
from neve.lake.staging import Change, StagedSnapshot, StagingTable
from neve.publish.contains import CONTAINS, contained_after
from neve.publish.ranges import (
    BATCH_ID,
    RANGES,
    Marks,
    Ranges,
    decode_ranges,
    encode_ranges,
    follows,
    is_consumed,
    read_marks,
    without_streams,
    write_marks,
)

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile

logger = logging.getLogger(__name__)

T = TypeVar("T")

STAGED_PREFIX = "neve-staged-"
HELD_PREFIX = "neve-held-"
# In the summary of the commit that holds a batch: that commit has its id, and none of its rows.
HELD = "neve.held"
SOURCE_SNAPSHOT_ID = "source-snapshot-id"


class Outcome(str, Enum):
    """How a batch ended."""

    PUBLISHED = "published"
    HELD = "held"
    # Its range was consumed by another worker, or by this one before it was killed.
    SUPERSEDED = "superseded"


@dataclass
class PublishCounters(CommitCounters):
    """What publishing cost, for the metrics."""

    restaged: int = 0
    discarded: int = 0


@dataclass
class Publisher:
    """Stages and publishes batches of one table."""

    table: StagingTable
    # The streams that exist now. Asked after each look at the table and never before: a stream that
    # a mark or a staging names, and that is then not there, was consumed and dropped for good.
    streams: Callable[[], Iterable[str]]
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    counters: PublishCounters = field(default_factory=PublishCounters)

    def marks(self) -> dict[str, int]:
        """Return how far this table has consumed each stream, as the catalog has it now."""
        self._refresh()
        return read_marks(self.table.properties)

    def stage(
        self,
        batch_id: str,
        files: Sequence[DataFile],
        ranges: Ranges,
        summary: Mapping[str, str] | None = None,
    ) -> StagedSnapshot | None:
        """Stage a batch's files on `main`; None when its range was consumed meanwhile.

        Idempotent by range: a batch staged twice is published once, the oldest staging winning.
        """
        entries = {BATCH_ID: batch_id, RANGES: encode_ranges(ranges), **(summary or {})}
        ref = f"{STAGED_PREFIX}{batch_id}"

        def attempt() -> StagedSnapshot | None:
            if self._is_consumed(ranges):
                return None
            return self.table.stage(files, self._with_contained(entries), ref)

        staged = self._commit(attempt, lambda: self._find(ref))
        failpoints.reach("publish.staged")
        return staged

    def waiting(self) -> StagedSnapshot | None:
        """Return the staged snapshot to publish next, discarding those that lost.

        A staging of a stream that is gone was consumed by another worker, since only consumed
        streams are dropped; its mark may be gone with it.
        """
        self._refresh()
        stagings = self.table.staged(STAGED_PREFIX)
        marks = read_marks(self.table.properties)
        streams = set(self.streams()) if stagings else set()
        winner = next((staged for staged in stagings if _is_next(staged, marks, streams)), None)
        # Publishing the winner drops all refs of its batch.
        kept = batch_id_of(winner) if winner else None
        for staged in stagings:
            if batch_id_of(staged) != kept:
                self.discard(staged)
        return winner

    def abandoned(self, before_ms: int) -> list[StagedSnapshot]:
        """Return what was staged before that time, and that nobody can ever publish.

        `waiting` discards such a one at once, but looks only while its signal has data. Here there
        is time: should the buffer have been lost, a staging is the last copy there is.
        """
        self._refresh()
        old = [
            staged for staged in self.table.staged(STAGED_PREFIX) if staged.timestamp_ms < before_ms
        ]
        marks = read_marks(self.table.properties)
        streams = set(self.streams()) if old else set()
        return [staged for staged in old if not _is_next(staged, marks, streams)]

    def discard(self, staged: StagedSnapshot) -> None:
        """Forget a batch, all its refs; its files go when snapshots are expired. Idempotent."""
        logger.info("%s: discarding %s", self.table.name, staged.ref)
        self.counters.discarded += 1

        def attempt() -> bool:
            self.table.drop_refs(self._refs_of_batch(staged))
            return True

        self._commit(attempt, lambda: None)

    def publish(self, staged: StagedSnapshot) -> Outcome:
        """Show a staged batch on `main`, move its marks and drop its refs, in one commit.

        Exactly once. SUPERSEDED: another worker has consumed its range.
        """
        ranges = decode_ranges(staged.summary)
        was_sent = False

        def attempt() -> Outcome:
            nonlocal was_sent
            is_on_main = self._is_on_main(staged)
            if is_on_main or self._is_consumed(ranges):
                self.table.drop_refs(self._refs_of_batch(staged))
                return Outcome.PUBLISHED if is_on_main and was_sent else Outcome.SUPERSEDED
            change = self._showing(staged)
            failpoints.reach("publish.ready")
            was_sent = True
            self.table.apply(
                replace(
                    change,
                    set_properties=self._marks_after(ranges),
                    remove_properties=self._forgotten(ranges),
                )
            )
            return Outcome.PUBLISHED

        outcome = self._commit(attempt, lambda: self._find_published(staged))
        failpoints.reach("publish.published")
        return outcome

    def hold(self, staged: StagedSnapshot) -> Outcome:
        """Move a blocked batch to a branch of its own and let the marks go on without it."""
        ranges = decode_ranges(staged.summary)
        branch = HELD_PREFIX + batch_id_of(staged)

        def attempt() -> Outcome:
            if self._is_consumed(ranges):
                self.table.drop_refs(self._refs_of_batch(staged))
                return Outcome.SUPERSEDED
            self.table.apply(
                Change(
                    base_main=self.table.main_id,
                    set_properties=self._marks_after(ranges),
                    remove_properties=self._forgotten(ranges),
                    branches={branch: staged.snapshot_id},
                    drop_refs=self._refs_of_batch(staged),
                    summary={
                        HELD: branch,
                        BATCH_ID: batch_id_of(staged),
                        CONTAINS: contained_after(self.table, staged.summary),
                    },
                )
            )
            return Outcome.HELD

        outcome = self._commit(attempt, lambda: Outcome.HELD if self._find(branch) else None)
        failpoints.reach("publish.held")
        return outcome

    def release(self, held: StagedSnapshot) -> Outcome:
        """Publish a held batch after all; its marks have moved long ago.

        Exactly once: all refs of the batch go in the very commit that shows its rows. SUPERSEDED:
        it is on `main` already, or was discarded.
        """
        was_sent = False

        def attempt() -> Outcome:
            nonlocal was_sent
            if self._is_on_main(held):
                return Outcome.PUBLISHED if was_sent else Outcome.SUPERSEDED
            if self._find(held.ref) is None:
                return Outcome.SUPERSEDED
            change = self._showing(held)
            failpoints.reach("publish.release_ready")
            was_sent = True
            self.table.apply(change)
            return Outcome.PUBLISHED

        outcome = self._commit(attempt, lambda: self._find_published(held))
        failpoints.reach("publish.released")
        return outcome

    def _showing(self, staged: StagedSnapshot) -> Change:
        """Return the change that moves `main` to a batch's rows and drops all refs of the batch.

        Where `main` is no longer the staged snapshot's parent, the same files are appended to the
        `main` of now. Both snapshots then share data files: `source-snapshot-id` keeps Iceberg's
        incremental cleanup from deleting them when the staged one is expired (iceberg#13614).
        """
        refs = self._refs_of_batch(staged)
        if self.table.main_id == staged.parent_id:
            return Change(staged.parent_id, staged.snapshot_id, drop_refs=refs)
        self.counters.restaged += 1
        return Change(
            self.table.main_id,
            files=tuple(self.table.added_files(staged.snapshot_id)),
            summary={
                **self._with_contained(_own(staged.summary)),
                SOURCE_SNAPSHOT_ID: str(staged.snapshot_id),
            },
            drop_refs=refs,
        )

    def _with_contained(self, summary: Mapping[str, str]) -> dict[str, str]:
        """Add to a batch's summary what `main` contains once the batch is on it."""
        return {**summary, CONTAINS: contained_after(self.table, summary)}

    def _marks_after(self, ranges: Ranges) -> dict[str, str]:
        """Return the properties that change when these ranges are consumed."""
        return write_marks(ranges)

    def _refs_of_batch(self, staged: StagedSnapshot) -> tuple[str, ...]:
        """Name all refs of a batch: earlier versions left some that end in `@` and a number."""
        batch_id = batch_id_of(staged)
        return tuple(
            present.ref
            for prefix in (STAGED_PREFIX, HELD_PREFIX)
            for present in self.table.staged(prefix)
            if batch_id_of(present) == batch_id
        )

    def _find(self, ref: str) -> StagedSnapshot | None:
        return next((staged for staged in self.table.staged(ref) if staged.ref == ref), None)

    def _find_published(self, staged: StagedSnapshot) -> Outcome | None:
        return Outcome.PUBLISHED if self._is_on_main(staged) else None

    def _is_on_main(self, staged: StagedSnapshot) -> bool:
        """Tell whether the history of `main`, as far as it is kept, has this batch's rows."""
        batch_id = batch_id_of(staged)
        return any(
            summary.get(BATCH_ID) == batch_id and HELD not in summary
            for summary in self.table.main_summaries()
        )

    def _is_consumed(self, ranges: Ranges) -> bool:
        """Tell whether another worker was first.

        A stream that is gone was consumed, and its mark may be gone with it. One that is there now
        had all its marks when the table was looked at; whoever removes one later moves `main`.
        """
        marks = read_marks(self.table.properties)
        return is_consumed(ranges, marks) or not set(self.streams()) >= set(ranges)

    def _forgotten(self, ranges: Ranges) -> tuple[str, ...]:
        """Name the marks of streams that are gone, to be removed in the same swap."""
        stale = set(read_marks(self.table.properties)) - set(ranges)
        return tuple(without_streams(stale, self.streams())) if stale else ()

    def _refresh(self) -> None:
        read_until_available(self.table.refresh, self.retry)

    def _commit(self, attempt: Callable[[], T], find_applied: Callable[[], T | None]) -> T:
        return commit_until_known(
            self.table.refresh, attempt, find_applied, policy=self.retry, counters=self.counters
        )


def _is_next(staged: StagedSnapshot, marks: Marks, streams: Set[str]) -> bool:
    """Tell whether a staging goes on where its table is; streams that are gone were consumed."""
    ranges = decode_ranges(staged.summary)
    return follows(ranges, marks) and streams >= set(ranges)


def batch_id_of(staged: StagedSnapshot) -> str:
    """Return the id that all snapshots and refs of a batch share."""
    name = staged.ref.removeprefix(STAGED_PREFIX).removeprefix(HELD_PREFIX).partition("@")[0]
    return staged.summary.get(BATCH_ID) or name


def _own(summary: Mapping[str, str]) -> dict[str, str]:
    """Return our entries of a summary; the rest counts files and is made anew."""
    return {key: value for key, value in summary.items() if key.startswith("neve.")}
