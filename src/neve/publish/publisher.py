"""The steps of publishing a batch; each can be killed, repeated, and run by two workers at once.

Delivery: exactly once. What a batch consumed is a table property that changes in the very commit
that moves `main` to the batch's rows. Whoever loses a race finds the mark past its range.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from neve import failpoints
from neve.errors import HeldLimitError
from neve.lake.commit_loop import (
    CommitCounters,
    RetryPolicy,
    commit_until_known,
    read_until_available,
)
from neve.lake.staging import Change, StagedSnapshot, StagingTable
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

        def attempt() -> StagedSnapshot | None:
            if self._is_consumed(ranges):
                return None
            return self.table.stage(files, entries, f"{STAGED_PREFIX}{batch_id}")

        def find_applied() -> StagedSnapshot | None:
            name = f"{STAGED_PREFIX}{batch_id}"
            return next((one for one in self.table.staged(name) if one.ref == name), None)

        staged = self._commit(attempt, find_applied)
        failpoints.reach("publish.staged")
        return staged

    def waiting(self) -> StagedSnapshot | None:
        """Return the staged snapshot to publish next, discarding those that lost.

        A staging of a stream that is gone was consumed by another worker, since only consumed
        streams are dropped; its mark may be gone with it.
        """
        self._refresh()
        found = self.table.staged(STAGED_PREFIX)
        marks = read_marks(self.table.properties)
        streams = set(self.streams()) if found else set()
        winner = None
        for staged in found:
            if winner is None and _is_next(staged, marks, streams):
                winner = staged
            else:
                self.discard(staged)
        return winner

    def abandoned(self, before_ms: int) -> list[StagedSnapshot]:
        """Return what was staged before that time, and that nobody can ever publish.

        `waiting` discards such a one at once, but looks only while its signal has data. Here there
        is time: should the buffer have been lost, a staging is the last copy there is.
        """
        self._refresh()
        found = [one for one in self.table.staged(STAGED_PREFIX) if one.timestamp_ms < before_ms]
        marks = read_marks(self.table.properties)
        streams = set(self.streams()) if found else set()
        return [one for one in found if not _is_next(one, marks, streams)]

    def discard(self, staged: StagedSnapshot) -> None:
        """Forget a staging; its files go when snapshots are expired. Idempotent."""
        logger.info("%s: discarding %s", self.table.name, staged.ref)
        self.counters.discarded += 1

        def attempt() -> bool:
            self.table.drop_ref(staged.ref)
            return True

        self._commit(attempt, lambda: None)

    def publish(self, staged: StagedSnapshot) -> Outcome:
        """Move `main` to a staged snapshot and the marks with it, in one swap."""
        ranges = decode_ranges(staged.summary)
        current = staged

        def attempt() -> Outcome:
            nonlocal current
            if self._is_consumed(ranges):
                self.table.drop_ref(current.ref)
                return Outcome.SUPERSEDED
            if self.table.main_id != current.parent_id:
                current = self._restage(current)
            failpoints.reach("publish.ready")
            self.table.apply(
                Change(
                    base_main=current.parent_id,
                    to_main=current.snapshot_id,
                    set_properties=write_marks(ranges),
                    remove_properties=self._forgotten(ranges),
                    drop_refs=(current.ref,),
                )
            )
            return Outcome.PUBLISHED

        def find_applied() -> Outcome | None:
            return Outcome.PUBLISHED if self.table.on_main(current.snapshot_id) else None

        outcome = self._commit(attempt, find_applied)
        failpoints.reach("publish.published")
        return outcome

    @property
    def held_count(self) -> int:
        """How many batches are held, as the table was last read."""
        return len(self.table.staged(HELD_PREFIX))

    def hold(self, staged: StagedSnapshot, max_held: int | None = None) -> Outcome:
        """Move a blocked batch to a branch of its own and let the marks go on without it.

        Raises:
            HeldLimitError: `max_held` batches are held already. The batch stays staged and its
                segments stay in the buffer: nothing is lost, and the table waits for a person.
        """
        ranges = decode_ranges(staged.summary)
        branch = HELD_PREFIX + staged.ref.removeprefix(STAGED_PREFIX)

        def attempt() -> Outcome:
            if self._is_consumed(ranges):
                self.table.drop_ref(staged.ref)
                return Outcome.SUPERSEDED
            if max_held is not None and self.held_count >= max_held:
                raise held_limit_error(self.table.name, self.held_count)
            self.table.apply(
                Change(
                    base_main=self.table.main_id,
                    set_properties=write_marks(ranges),
                    remove_properties=self._forgotten(ranges),
                    branches={branch: staged.snapshot_id},
                    drop_refs=(staged.ref,),
                    summary={"neve.held": branch, BATCH_ID: staged.summary.get(BATCH_ID, "")},
                )
            )
            return Outcome.HELD

        def find_applied() -> Outcome | None:
            return Outcome.HELD if self.table.staged(branch) else None

        outcome = self._commit(attempt, find_applied)
        failpoints.reach("publish.staged_batches")
        return outcome

    def release(self, held: StagedSnapshot) -> Outcome:
        """Publish a held batch after all; its marks have moved long ago.

        Exactly once: the branch goes in the very commit that shows its rows.
        """
        current = held

        def attempt() -> Outcome:
            nonlocal current
            if not any(one.ref == held.ref for one in self.table.staged(HELD_PREFIX)):
                return Outcome.SUPERSEDED
            if self.table.main_id != current.parent_id:
                current = self._restage(current)
            refs = {held.ref, current.ref}
            self.table.apply(
                Change(self.table.main_id, current.snapshot_id, drop_refs=tuple(sorted(refs)))
            )
            return Outcome.PUBLISHED

        def find_applied() -> Outcome | None:
            return Outcome.PUBLISHED if self.table.on_main(current.snapshot_id) else None

        return self._commit(attempt, find_applied)

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

    def _restage(self, staged: StagedSnapshot) -> StagedSnapshot:
        """Stage the same files on the `main` of now; the older staging goes once this one is."""
        self.counters.restaged += 1
        files = self.table.added_files(staged.snapshot_id)
        name, _, times = staged.ref.partition("@")
        again = self.table.stage(files, _own(staged.summary), f"{name}@{int(times or 0) + 1}")
        failpoints.reach("publish.restaged")
        if staged.ref.startswith(STAGED_PREFIX):
            self.table.drop_ref(staged.ref)
        return again

    def _refresh(self) -> None:
        read_until_available(self.table.refresh, self.retry)

    def _commit(self, attempt: Callable[[], T], find_applied: Callable[[], T | None]) -> T:
        return commit_until_known(
            self.table.refresh, attempt, find_applied, policy=self.retry, counters=self.counters
        )


def held_limit_error(table: str, held: int) -> HeldLimitError:
    """Say that a table takes no further batch until a person decides on those that are held."""
    return HeldLimitError(
        f"{table}: a batch failed its audits, and {held} are held already: the table stops until "
        "some are published or discarded",
        hint=f"see: neve staged list {table}; then: neve staged publish|discard {table} --all; "
        "or raise consolidate.max_held",
    )


def _is_next(staged: StagedSnapshot, marks: Marks, streams: Set[str]) -> bool:
    """Tell whether a staging goes on where its table is; streams that are gone were consumed."""
    ranges = decode_ranges(staged.summary)
    return follows(ranges, marks) and streams >= set(ranges)


def _own(summary: Mapping[str, str]) -> dict[str, str]:
    """Return our entries of a summary; the rest counts files and is made anew."""
    return {key: value for key, value in summary.items() if key.startswith("neve.")}
