"""What a person decides on a held batch: show, publish or discard it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from neve.buffer.buffer import open_reader
from neve.buffer.spec import buffer_spec
from neve.buffer.stream_states import StreamState
from neve.errors import NotFoundError, UsageError
from neve.lake.identifier import Identifier, name_of
from neve.lake.staged_snapshot import StagedSnapshot
from neve.lake.staging import StagingTable, load_staging_table
from neve.observe.failures import failure_of
from neve.publish.batch import HELD_PREFIX, STAGED_PREFIX, Outcome
from neve.publish.batch_counts import require_balance
from neve.publish.publisher import Publisher
from neve.publish.ranges import BATCH_ID, decode_ranges
from neve.publish.staged_list import StagedBatch, staged_batch, telemetry_tables

if TYPE_CHECKING:
    import pyarrow as pa

    from neve.lake import Lake

logger = logging.getLogger(__name__)

DISCARDED = "discarded"
FAILED = "failed"


class _NoSuchBatchError(NotFoundError):
    """A table that was read holds no such batch. That a table or a file is away is no proof."""


@dataclass(frozen=True)
class HeldSelection:
    """Which held batches are meant: of one table or of all, those older than an age or all."""

    table: str | None = None
    older_than_seconds: float = 0.0


@dataclass(frozen=True)
class HeldResult:
    """What became of one held batch; without a batch id, of a table that could not be read."""

    table: str
    batch_id: str | None
    rows: int
    age_seconds: float | None
    outcome: str
    error: str | None = None


@dataclass(frozen=True)
class HeldBatches:
    """The batches that a person decides on, and the tables that could not be read."""

    batches: tuple[StagedBatch, ...]
    unreadable: tuple[HeldResult, ...] = ()

    @property
    def rows(self) -> int:
        return sum(batch.rows for batch in self.batches)

    @property
    def tables(self) -> list[str]:
        return sorted({batch.table for batch in self.batches})


def release(lake: Lake, table: str, batch_id: str) -> Outcome:
    """Publish a held batch, or one that the worker of another buffer staged. Exactly once.

    Raises:
        UsageError: its rows are on `main` already, another has discarded it meanwhile, or it is
            this buffer's own, which consolidation publishes.
        UnbalancedError: its counts do not add up.
    """
    publisher, batch = _find(lake, table, batch_id)
    require_balance(table, batch)
    if batch.ref.startswith(HELD_PREFIX):
        outcome = publisher.release(batch)
    else:
        states = publisher.streams.stream_states(decode_ranges(batch.summary)).values()
        if all(state is StreamState.PRESENT for state in states):
            raise UsageError(
                f"table {table}: the segments of batch {batch_id} are in this buffer",
                hint="audit and publish it with: neve consolidate --once",
            )
        outcome = publisher.publish_for_other_buffer(batch)
    if outcome is Outcome.SUPERSEDED:
        raise UsageError(
            f"table {table}: batch {batch_id} was published or discarded already",
            hint=f"if it is still listed, drop it: neve staged discard {table} {batch_id}",
        )
    return outcome


def discard(lake: Lake, table: str, batch_id: str) -> None:
    """Give a batch up: its rows are never published."""
    publisher, held = _find(lake, table, batch_id)
    publisher.discard(held)


def find_held(lake: Lake, selection: HeldSelection) -> HeldBatches:
    """Return the held batches that are meant; of all tables, one that cannot be read is named."""
    lake.profile.require_catalog("staging")
    batches: list[StagedBatch] = []
    unreadable = []
    for identifier in telemetry_tables(lake, selection.table):
        try:
            staging = _staging(lake, identifier)
        except Exception as error:
            if selection.table:
                raise
            name = name_of(identifier)
            failure = failure_of(error, "staged", name)
            unreadable.append(HeldResult(name, None, 0, None, FAILED, str(failure)))
            continue
        batches += [
            staged_batch(identifier, snapshot, "held", staging.properties)
            for snapshot in staging.staged(HELD_PREFIX)
        ]
    old_enough = (b for b in batches if b.age_seconds >= selection.older_than_seconds)
    return HeldBatches(tuple(old_enough), tuple(unreadable))


def release_each(lake: Lake, held: HeldBatches) -> list[HeldResult]:
    """Publish held batches, the oldest first, each on its own: one that fails stops no other."""
    return _act_on_each(held, lambda batch: release(lake, *batch).value)


def discard_each(lake: Lake, held: HeldBatches) -> list[HeldResult]:
    """Give held batches up, each on its own: one that fails stops no other."""

    def discard_batch(batch: tuple[str, str]) -> str:
        discard(lake, *batch)
        return DISCARDED

    return _act_on_each(held, discard_batch)


def _act_on_each(held: HeldBatches, action: Callable[[tuple[str, str]], str]) -> list[HeldResult]:
    return [*held.unreadable, *(_act_on(batch, action) for batch in held.batches)]


def _act_on(batch: StagedBatch, action: Callable[[tuple[str, str]], str]) -> HeldResult:
    outcome, message = FAILED, None
    try:
        outcome = action((batch.table, batch.ref))
    except _NoSuchBatchError:
        # Another person, or an earlier step of this command, was first.
        outcome = Outcome.SUPERSEDED.value
    except Exception as error:  # noqa: BLE001 - one that fails stops no other
        failure = failure_of(error, "staged", batch.table)
        logger.warning("%s: held batch %s: %s", batch.table, batch.batch_id, failure)
        message = str(failure)
    return HeldResult(batch.table, batch.batch_id, batch.rows, batch.age_seconds, outcome, message)


def find_batch(lake: Lake, table: str, batch_id: str) -> StagedBatch:
    """Return a batch that is staged or held. Raises NotFoundError."""
    publisher, staged = _find(lake, table, batch_id)
    state = "held" if staged.ref.startswith(HELD_PREFIX) else "staged"
    return staged_batch(lake.profile.table(table), staged, state, publisher.table.properties)


def show(lake: Lake, table: str, batch_id: str, limit: int) -> pa.Table:
    """Return some rows of a staged or held batch."""
    publisher, held = _find(lake, table, batch_id)
    return publisher.table.added_rows(held.snapshot_id, limit)


def _find(lake: Lake, table: str, batch_id: str) -> tuple[Publisher, StagedSnapshot]:
    staging = _staging(lake, lake.profile.table(table))
    batches = [*staging.staged(HELD_PREFIX), *staging.staged(STAGED_PREFIX)]
    for batch in batches:
        if batch_id in (batch.summary.get(BATCH_ID), batch.ref):
            return Publisher(staging, open_reader(buffer_spec(lake.settings))), batch
    known = ", ".join(batch.summary.get(BATCH_ID, batch.ref) for batch in batches) or "none"
    raise _NoSuchBatchError(
        f"table {table} holds no batch {batch_id}",
        hint=f"staged or held are: {known}; see: neve staged list",
    )


def _staging(lake: Lake, identifier: Identifier) -> StagingTable:
    return load_staging_table(lake.profile, lake.catalog(), identifier)
