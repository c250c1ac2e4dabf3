"""The steps of publishing a batch; each can be killed, repeated, and run by two workers at once.

Delivery: exactly once. What a batch consumed is a table property that changes in the very commit
that moves `main` to the batch's rows. Whoever loses a race finds the mark past its range.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from neve import failpoints
from neve.lake.commit_loop import (
    CommitCounters,
    RetryPolicy,
    commit_until_known,
    read_until_available,
)
from neve.lake.staged_snapshot import StagedSnapshot
from neve.lake.staging import Change, StagingTable
from neve.publish.batch import (
    HELD,
    HELD_PREFIX,
    STAGED_PREFIX,
    Outcome,
    all_refs,
    batch_id_of,
    held_limit_error,
    is_cherry_picked,
    is_on_main,
    own_entries,
    rejected_property,
    staged_refs,
)
from neve.publish.contains import CONTAINS, SOURCE_SNAPSHOT_ID, contained_after
from neve.publish.held_reason import encode_blocking, held_by_property
from neve.publish.ranges import (
    BATCH_ID,
    MARK_PREFIX,
    RANGES,
    REJECTED_SNAPSHOT,
    REPLAY,
    Ranges,
    decode_ranges,
    encode_ranges,
    is_consumed,
    read_marks,
    write_marks,
)
from neve.publish.stagings import (
    Streams,
    dropped_streams,
    has_lost_by_marks,
    is_proven_consumed,
    load_stagings,
    may_hold_copies,
    require_present,
    was_consumed,
)

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile

    from neve.publish.audit_result import AuditResult
    from neve.publish.batch_counts import BatchCounts

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass
class PublishCounters(CommitCounters):
    """What publishing cost, for the metrics."""

    restaged: int = 0
    discarded: int = 0


@dataclass
class Publisher:
    """Stages and publishes batches of one table."""

    table: StagingTable
    # Asked after each look at the table and never before: whoever drops a stream was past it in
    # every table, so a stream that is there now had all its marks when the table was read.
    streams: Streams
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    counters: PublishCounters = field(default_factory=PublishCounters)
    # Properties of the table that are not needed any more; the next commit of `main` removes them.
    finished_properties: set[str] = field(default_factory=set)

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
        """Stage a batch's files on `main`; None when it lost against another worker's.

        Idempotent by range: a batch staged twice is published once, the oldest staging winning.
        """
        entries = {BATCH_ID: batch_id, RANGES: encode_ranges(ranges), **(summary or {})}
        ref = f"{STAGED_PREFIX}{batch_id}"

        def attempt() -> StagedSnapshot | None:
            if self._is_consumed(ranges) or may_hold_copies(self.table, entries, self.streams):
                return None
            return self.table.stage(files, self._with_contained(entries), ref)

        staged = self._commit(attempt, lambda: self.find(ref))
        failpoints.reach("publish.staged")
        return staged

    def stage_clean(
        self,
        staged: StagedSnapshot,
        batch_id: str,
        files: Sequence[DataFile],
        rejected_id: int | None,
        counts: BatchCounts | None = None,
    ) -> StagedSnapshot | None:
        """Stage a batch's clean rows in its place, in one commit; None if another was first.

        Args:
            batch_id: a new one, which the rejected rows were staged under.
            rejected_id: the snapshot of the rejected rows; None if those are not to be stored.
            counts: the batch's, with the rows that were set aside.
        """
        entries = {**own_entries(staged.summary), BATCH_ID: batch_id}
        if counts is not None:
            entries |= counts.encode()
        if rejected_id is not None:
            entries[REJECTED_SNAPSHOT] = str(rejected_id)
        ref = f"{STAGED_PREFIX}{batch_id}"

        def attempt() -> StagedSnapshot | None:
            if self._has_lost(staged) or self.find(staged.ref) is None:
                return None
            summary = self._with_contained(entries)
            return self.table.stage(files, summary, ref, all_refs(self.table, staged))

        clean = self._commit(attempt, lambda: self.find(ref))
        failpoints.reach("publish.clean_staged")
        return clean

    def has_consumed(self, ranges: Ranges) -> bool:
        """Tell whether it is proven that the table, as it was read last, is past these ranges."""
        is_own = all(self.streams.owns(stream) for stream in ranges)
        marks, states = read_marks(self.table.properties), self.streams.stream_states(ranges)
        return is_own and is_proven_consumed(ranges, marks, states)

    def waiting(self) -> StagedSnapshot | None:
        """Return the staged snapshot to publish next, discarding those that lost.

        Stagings of other buffers and of replays are left to those. One of a stream that was dropped
        is discarded: only consumed streams are dropped, and the mark may be gone by now.

        Raises:
            StorageError: a stream of ours is not in the buffer, and was not dropped.
        """
        self._refresh()
        marks = read_marks(self.table.properties)
        own = [
            staged
            for staged in load_stagings(self.table, STAGED_PREFIX, self.streams)
            if staged.is_own and REPLAY not in staged.snapshot.summary
        ]
        winner = next(
            (s for s in own if s.is_next(marks) and not self._holds_copies(s.snapshot)), None
        )
        # Publishing the winner drops all refs of its batch.
        kept = batch_id_of(winner.snapshot) if winner else None
        for staged in own:
            is_proven = staged.is_consumed(marks) or staged.is_present
            if is_proven and batch_id_of(staged.snapshot) != kept:
                self.discard(staged.snapshot)
            elif winner is None:
                require_present(self.table.name, staged.states)
        return winner.snapshot if winner else None

    def abandoned(self, before_ms: int) -> list[StagedSnapshot]:
        """Return our stagings of before that time whose rows are proven to be in the table.

        `waiting` discards such a one at once, but looks only while its signal has data.
        """
        self._refresh()
        marks = read_marks(self.table.properties)
        return [
            staged.snapshot
            for staged in load_stagings(self.table, STAGED_PREFIX, self.streams)
            if staged.snapshot.timestamp_ms < before_ms
            and staged.is_own
            and staged.is_consumed(marks)
        ]

    def remembers(self, stream: str) -> bool:
        """Tell whether the table, as it was read last, has a mark or a staging of a stream."""
        return stream in read_marks(self.table.properties) or any(
            stream in decode_ranges(staged.summary) for staged in self.table.staged(STAGED_PREFIX)
        )

    def discard(self, staged: StagedSnapshot) -> None:
        """Forget a batch, all its refs; its files go when snapshots are expired. Idempotent.

        What was staged when it was read, and is held by now, stays held.
        """
        logger.info("%s: discarding %s", self.table.name, staged.ref)
        self.counters.discarded += 1
        is_held = staged.ref.startswith(HELD_PREFIX)
        refs_of = all_refs if is_held else staged_refs

        def attempt() -> bool:
            reason = held_by_property(batch_id_of(staged))
            self.table.drop_refs(refs_of(self.table, staged), (reason,) if is_held else ())
            return True

        self._commit(attempt, lambda: None)

    def publish(self, staged: StagedSnapshot) -> Outcome:
        """Show a staged batch on `main`, move its marks and drop its refs, in one commit.

        Exactly once. SUPERSEDED: another worker has consumed its range, or copies of its requests.

        Raises:
            StorageError: a stream is not in the buffer, and was not dropped.
        """
        return self._publish(staged, lambda: self._has_lost(staged))

    def publish_for_other_buffer(self, staged: StagedSnapshot) -> Outcome:
        """Publish a staged batch whose streams are not in this buffer: a person decided so.

        Exactly once, also beside a worker of that buffer: the marks move in the same commit.

        Raises:
            UsageError: a batch before it was not published yet.
        """
        ranges = decode_ranges(staged.summary)
        return self._publish(staged, lambda: has_lost_by_marks(self.table, ranges, self.streams))

    def _publish(self, staged: StagedSnapshot, has_lost: Callable[[], bool]) -> Outcome:
        ranges = decode_ranges(staged.summary)
        was_sent = False

        def attempt() -> Outcome:
            nonlocal was_sent
            was_published = is_on_main(self.table, staged)
            if has_lost():
                # Another worker may have held this very batch: that ref is a person's to drop.
                self.table.drop_refs(staged_refs(self.table, staged))
                return Outcome.PUBLISHED if was_published and was_sent else Outcome.SUPERSEDED
            change = self._consuming(staged) if self._is_shown(staged) else self._showing(staged)
            failpoints.reach("publish.ready")
            was_sent = True
            self.table.apply(
                replace(
                    change,
                    set_properties={**self._marks_after(ranges), **rejected_property(staged)},
                    remove_properties=self._removable_properties(ranges),
                )
            )
            return Outcome.PUBLISHED

        def find_applied() -> Outcome | None:
            has_marks = is_consumed(ranges, read_marks(self.table.properties))
            return self._find_published(staged) if has_marks else None

        outcome = self._commit(attempt, find_applied)
        failpoints.reach("publish.published")
        return outcome

    @property
    def held_count(self) -> int:
        """How many batches are held, as the table was last read."""
        return len(self.table.staged(HELD_PREFIX))

    def hold(
        self,
        staged: StagedSnapshot,
        max_held: int | None = None,
        results: Sequence[AuditResult] = (),
    ) -> Outcome:
        """Move a blocked batch to a branch of its own and let the marks go on without it.

        Args:
            results: how its audits ended; a property of the table keeps those that block it.

        Raises:
            HeldLimitError: `max_held` batches are held already. The batch stays staged and its
                segments stay in the buffer: nothing is lost, and the table waits for a person.
        """
        ranges = decode_ranges(staged.summary)
        branch = HELD_PREFIX + batch_id_of(staged)
        reason = {held_by_property(batch_id_of(staged)): encode_blocking(results)}

        def attempt() -> Outcome:
            if self._has_lost(staged):
                self.table.drop_refs(staged_refs(self.table, staged))
                return Outcome.SUPERSEDED
            if max_held is not None and self.held_count >= max_held:
                raise held_limit_error(self.table.name, self.held_count)
            self.table.apply(
                Change(
                    base_main=self.table.main_id,
                    set_properties={**self._marks_after(ranges), **reason},
                    remove_properties=self._removable_properties(ranges),
                    branches={branch: staged.snapshot_id},
                    drop_refs=staged_refs(self.table, staged),
                    summary={
                        HELD: branch,
                        BATCH_ID: batch_id_of(staged),
                        CONTAINS: self._with_contained(staged.summary)[CONTAINS],
                    },
                )
            )
            return Outcome.HELD

        outcome = self._commit(attempt, lambda: Outcome.HELD if self.find(branch) else None)
        failpoints.reach("publish.held")
        return outcome

    def release(self, held: StagedSnapshot) -> Outcome:
        """Publish a held batch after all; its marks have moved long ago.

        Exactly once: all refs of the batch go in the very commit that shows its rows. SUPERSEDED:
        it is on `main` already, or was discarded.
        """
        outcome = self.show(held, lambda: failpoints.reach("publish.release_ready"))
        failpoints.reach("publish.released")
        return outcome

    def show(self, staged: StagedSnapshot, before_swap: Callable[[], None]) -> Outcome:
        """Show a batch on `main` and drop its refs in one commit, without marks.

        Exactly once, by its ref. SUPERSEDED: it is on `main` already, or was discarded.
        """
        was_sent = False

        def attempt() -> Outcome:
            nonlocal was_sent
            if is_on_main(self.table, staged):
                return Outcome.PUBLISHED if was_sent else Outcome.SUPERSEDED
            if self.find(staged.ref) is None or is_cherry_picked(self.table, staged):
                return Outcome.SUPERSEDED
            change = self._showing(staged)
            before_swap()
            was_sent = True
            reason = {held_by_property(batch_id_of(staged))} & set(self.table.properties)
            self.table.apply(replace(change, remove_properties=tuple(reason)))
            return Outcome.PUBLISHED

        return self._commit(attempt, lambda: self._find_published(staged))

    def _showing(self, staged: StagedSnapshot) -> Change:
        """Return the change that moves `main` to a batch's rows and drops all refs of the batch.

        Where `main` is no longer the staged snapshot's parent, the same files are appended to the
        `main` of now. Both snapshots then share data files: `source-snapshot-id` keeps Iceberg's
        incremental cleanup from deleting them when the staged one is expired (iceberg#13614).
        """
        refs = all_refs(self.table, staged)
        if self.table.main_id == staged.parent_id:
            return Change(staged.parent_id, staged.snapshot_id, drop_refs=refs)
        self.counters.restaged += 1
        return Change(
            self.table.main_id,
            files=tuple(self.table.added_files(staged.snapshot_id)),
            summary={
                **self._with_contained(own_entries(staged.summary)),
                SOURCE_SNAPSHOT_ID: str(staged.snapshot_id),
            },
            drop_refs=refs,
        )

    def _consuming(self, staged: StagedSnapshot) -> Change:
        """Return the change that consumes a batch whose rows are on `main`: it adds none."""
        contains = self._with_contained(staged.summary)[CONTAINS]
        refs = all_refs(self.table, staged)
        return Change(self.table.main_id, drop_refs=refs, summary={CONTAINS: contains})

    def _with_contained(self, summary: Mapping[str, str]) -> dict[str, str]:
        """Add to a batch's summary what `main` contains once the batch is on it."""
        return {**summary, CONTAINS: contained_after(self.table, summary, self._streams_to_state)}

    def _streams_to_state(self, streams: Collection[str]) -> set[str]:
        """Return the streams that a statement still has to name: those with a mark.

        A stream whose mark was removed was dropped, or its buffer was forgotten: nothing of it can
        ever be replayed.
        """
        return set(streams) & set(read_marks(self.table.properties))

    def _marks_after(self, ranges: Ranges) -> dict[str, str]:
        """Return the properties that change when these ranges are consumed."""
        return write_marks(ranges)

    def find(self, ref: str) -> StagedSnapshot | None:
        """Return what a ref names, as the table was read last."""
        return next((staged for staged in self.table.staged(ref) if staged.ref == ref), None)

    def _find_published(self, staged: StagedSnapshot) -> Outcome | None:
        return Outcome.PUBLISHED if is_on_main(self.table, staged) else None

    def _is_shown(self, staged: StagedSnapshot) -> bool:
        """Tell whether a batch's rows are on `main`: somebody may have put them there by hand."""
        return is_on_main(self.table, staged) or is_cherry_picked(self.table, staged)

    def _has_lost(self, staged: StagedSnapshot) -> bool:
        """Tell whether another worker was first, with this batch's range or with copies of it.

        Raises:
            StorageError: a stream is not in the buffer, and was not dropped. That proves nothing.
        """
        return self._is_consumed(decode_ranges(staged.summary)) or self._holds_copies(staged)

    def _holds_copies(self, staged: StagedSnapshot) -> bool:
        # Of rows that are on `main` already, only the marks are missing.
        is_outdated = may_hold_copies(self.table, staged.summary, self.streams)
        return is_outdated and not self._is_shown(staged)

    def _is_consumed(self, ranges: Ranges) -> bool:
        return was_consumed(self.table, ranges, self.streams)

    def _removable_properties(self, ranges: Ranges) -> tuple[str, ...]:
        dropped = dropped_streams(self.table, ranges, self.streams)
        finished = self.finished_properties & set(self.table.properties)
        return (*(f"{MARK_PREFIX}{stream}" for stream in sorted(dropped)), *sorted(finished))

    def _refresh(self) -> None:
        read_until_available(self.table.refresh, self.retry)

    def _commit(self, attempt: Callable[[], T], find_applied: Callable[[], T | None]) -> T:
        return commit_until_known(
            self.table.refresh, attempt, find_applied, policy=self.retry, counters=self.counters
        )
