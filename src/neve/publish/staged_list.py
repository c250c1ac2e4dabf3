"""The batches that are staged or held, read from the tables' metadata alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from neve.errors import UnbalancedError
from neve.lake.identifier import Identifier, name_of
from neve.observe.failures import failure_of
from neve.publish.batch import HELD_PREFIX, STAGED_PREFIX, batch_id_of
from neve.publish.batch_counts import BatchCounts, added_records, require_balance
from neve.publish.held_reason import BlockingAudit, read_blocking
from neve.publish.ranges import BATCH_ID

if TYPE_CHECKING:
    from neve.errors import NeveError
    from neve.lake import Lake
    from neve.lake.metadata_json import MetadataJson
    from neve.lake.staged_snapshot import StagedSnapshot


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
    age_seconds: float
    # The audits that hold it; None: unknown, an earlier Neve held it. Empty for a staged one.
    held_by: tuple[BlockingAudit, ...] | None = ()
    # What became of the records that it read; None where nobody counted them.
    counts: BatchCounts | None = None
    # Why it is not published: its counts do not add up.
    unbalanced: str | None = None


def list_staged(
    lake: Lake,
    table: str | None = None,
    on_failure: Callable[[str, NeveError], None] | None = None,
) -> list[StagedBatch]:
    """Return what is staged or held, in one table or in all that consolidation writes.

    Args:
        on_failure: is told of each table that cannot be read; None: the first one is raised.
    """
    lake.profile.require_catalog("staging")
    reader = lake.reader()
    batches: list[StagedBatch] = []
    for identifier in telemetry_tables(lake, table):
        try:
            batches += _batches_of(identifier, reader.read(identifier))
        except Exception as error:
            if on_failure is None:
                raise
            name = name_of(identifier)
            on_failure(name, failure_of(error, "staged", name))
    return batches


def _batches_of(identifier: Identifier, metadata: MetadataJson) -> Iterator[StagedBatch]:
    for prefix, state in ((STAGED_PREFIX, "staged"), (HELD_PREFIX, "held")):
        for snapshot in metadata.staged(prefix):
            yield staged_batch(identifier, snapshot, state, metadata.properties)


def telemetry_tables(lake: Lake, table: str | None = None) -> list[Identifier]:
    """Return the table that is named, or all in the namespace of telemetry."""
    if table:
        return [lake.profile.table(table)]
    namespace = lake.profile.namespace(lake.settings.telemetry.namespace)
    return [name for name in lake.reader().list_tables() if name[:-1] == namespace]


def staged_batch(
    identifier: Identifier, staged: StagedSnapshot, state: str, properties: Mapping[str, str]
) -> StagedBatch:
    """Say what is known of a staged snapshot.

    Args:
        properties: of its table.
    """
    is_held = state == "held"
    unbalanced = None
    try:
        require_balance(name_of(identifier), staged)
    except UnbalancedError as error:
        unbalanced = error.message
    return StagedBatch(
        table=name_of(identifier),
        batch_id=staged.summary.get(BATCH_ID, ""),
        state=state,
        ref=staged.ref,
        snapshot_id=staged.snapshot_id,
        rows=added_records(staged),
        files=int(staged.summary.get("added-data-files", 0)),
        staged_at=datetime.fromtimestamp(staged.timestamp_ms / 1000, timezone.utc),
        age_seconds=round(max(0.0, time.time() - staged.timestamp_ms / 1000), 1),
        held_by=read_blocking(properties, batch_id_of(staged)) if is_held else (),
        counts=BatchCounts.decode(staged.summary),
        unbalanced=unbalanced,
    )
