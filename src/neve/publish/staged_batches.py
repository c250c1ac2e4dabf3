"""What audits hold back, for the person who looks at it next."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from neve.buffer.buffer import open_reader
from neve.buffer.spec import buffer_spec
from neve.buffer.stream_states import StreamState
from neve.errors import NotFoundError, UsageError
from neve.lake.catalog import list_tables, load_table
from neve.lake.identifier import Identifier, parse_identifier
from neve.lake.staging import StagedSnapshot, StagingTable
from neve.publish.publisher import HELD_PREFIX, STAGED_PREFIX, Outcome, Publisher
from neve.publish.ranges import BATCH_ID, decode_ranges

if TYPE_CHECKING:
    import pyarrow as pa

    from neve.lake import Lake


@dataclass(frozen=True)
class StagedBatch:
    """A batch that is in a table and not on its `main`."""

    table: str
    batch_id: str
    state: str
    ref: str
    snapshot_id: int
    rows: int
    files: int
    staged_at: datetime


def list_staged(lake: Lake, table: str | None = None) -> list[StagedBatch]:
    """Return what is staged or held, in one table or in all that consolidation writes."""
    lake.profile.require_catalog("staging")
    found = []
    for identifier in _tables(lake, table):
        staging = _staging(lake, identifier)
        for prefix, state in ((STAGED_PREFIX, "staged"), (HELD_PREFIX, "held")):
            found += [_batch(identifier, one, state) for one in staging.staged(prefix)]
    return found


def release(lake: Lake, table: str, batch_id: str) -> Outcome:
    """Publish a held batch, or one that the worker of another buffer staged. Exactly once.

    Raises:
        UsageError: its rows are on `main` already, another has discarded it meanwhile, or it is
            this buffer's own, which consolidation publishes.
    """
    publisher, batch = _find(lake, table, batch_id)
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


def show(lake: Lake, table: str, batch_id: str, limit: int) -> pa.Table:
    """Return some rows of a staged or held batch."""
    publisher, held = _find(lake, table, batch_id)
    return publisher.table.added_rows(held.snapshot_id, limit)


def _find(lake: Lake, table: str, batch_id: str) -> tuple[Publisher, StagedSnapshot]:
    staging = _staging(lake, parse_identifier(table))
    batches = [*staging.staged(HELD_PREFIX), *staging.staged(STAGED_PREFIX)]
    for batch in batches:
        if batch_id in (batch.summary.get(BATCH_ID), batch.ref):
            return Publisher(staging, open_reader(buffer_spec(lake.settings))), batch
    known = ", ".join(batch.summary.get(BATCH_ID, batch.ref) for batch in batches) or "none"
    raise NotFoundError(
        f"table {table} holds no batch {batch_id}",
        hint=f"staged or held are: {known}; see: neve staged list",
    )


def _tables(lake: Lake, table: str | None) -> list[Identifier]:
    if table:
        return [parse_identifier(table)]
    namespace = parse_identifier(lake.settings.telemetry.namespace)
    names = list_tables(lake.profile, lake.catalog())
    return [name for name in names if name[:-1] == namespace]


def _staging(lake: Lake, identifier: Identifier) -> StagingTable:
    return StagingTable(lake.profile, load_table(lake.profile, lake.catalog(), identifier))


def _batch(identifier: Identifier, one: StagedSnapshot, state: str) -> StagedBatch:
    return StagedBatch(
        ".".join(identifier),
        one.summary.get(BATCH_ID, ""),
        state,
        one.ref,
        one.snapshot_id,
        int(one.summary.get("added-records", 0)),
        int(one.summary.get("added-data-files", 0)),
        datetime.fromtimestamp(one.timestamp_ms / 1000, timezone.utc),
    )
