"""`neve.batches`: what was published, for people. No decision depends on it."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException

from neve.errors import NeveError
from neve.lake.create import FEW_METADATA_FILES, TableSpec, ensure_table
from neve.lake.faults import explained

if TYPE_CHECKING:
    from neve.lake import Lake

logger = logging.getLogger(__name__)

IDENTIFIER = ("neve", "batches")
TIMESTAMP = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [
        pa.field("batch_id", pa.string(), nullable=False),
        pa.field("table", pa.string(), nullable=False),
        pa.field("outcome", pa.string(), nullable=False),
        pa.field("ranges", pa.map_(pa.string(), pa.string())),
        pa.field("rows", pa.int64()),
        pa.field("files", pa.int64()),
        pa.field("bytes", pa.int64()),
        pa.field("set_aside", pa.int64()),
        pa.field("audits", pa.string()),
        pa.field("staged_snapshot_id", pa.int64()),
        pa.field("main_snapshot_id", pa.int64()),
        pa.field("started_at", TIMESTAMP),
        pa.field("finished_at", TIMESTAMP),
        pa.field("error", pa.string()),
    ]
)


@dataclass(frozen=True)
class LedgerEntry:
    """One batch of one table."""

    batch_id: str
    table: str
    outcome: str
    ranges: dict[str, str]
    rows: int
    files: int
    bytes: int
    set_aside: int
    audits: list[dict[str, object]]
    staged_snapshot_id: int | None
    main_snapshot_id: int | None
    started_at: datetime
    finished_at: datetime
    error: str | None = None


def write_ledger(lake: Lake, entries: Sequence[LedgerEntry]) -> None:
    """Append entries. At-least-once and best effort: a ledger that fails never fails a batch."""
    if not entries:
        return
    rows = [
        {**asdict(entry), "ranges": list(entry.ranges.items()), "audits": json.dumps(entry.audits)}
        for entry in entries
    ]
    try:
        spec = TableSpec(IDENTIFIER, SCHEMA, properties=FEW_METADATA_FILES)
        table = ensure_table(lake.profile, lake.catalog(), spec)
        with explained(lake.profile):
            table.append(pa.Table.from_pylist(rows, SCHEMA))
    except (NeveError, CommitFailedException) as error:
        logger.warning("the ledger was not written: %s", error)
