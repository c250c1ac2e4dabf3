"""`neve.batches`: what was published, for people. No decision depends on it."""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from types import MappingProxyType
from typing import TYPE_CHECKING

import pyarrow as pa

from neve.lake.commit_loop import CommitCounters, RetryPolicy, commit_until_known
from neve.lake.create import FEW_METADATA_FILES, TableSpec
from neve.lake.data_files import write_data_files
from neve.lake.staging import StagingTable, ensure_staging_table
from neve.publish.batch_counts import BatchCounts, added_records
from neve.publish.ranges import BATCH_ID, decode_ranges

if TYPE_CHECKING:
    from neve.lake import Lake
    from neve.publish.audited_publisher import AuditedOutcome

logger = logging.getLogger(__name__)

# A worker that goes on writes at most this often, and when it stops.
WRITE_SECONDS = 10.0
# A ledger that cannot be written is tried again with the next entries: batches do not wait long.
RETRY = RetryPolicy(attempts=4, most_seconds=1.0)
WRITE_ID = "neve.ledger-write-id"
# Entries that wait for a ledger that cannot be written.
MAX_GATHERED = 10_000
# A write costs what its metadata holds, so that is kept small: the manifests of single writes are
# merged at every twentieth, into manifests of some 270 files: no write touches more of them.
LEDGER_PROPERTIES: Mapping[str, str] = MappingProxyType(
    {
        **FEW_METADATA_FILES,
        "commit.manifest-merge.enabled": "true",
        "commit.manifest.min-count-to-merge": "20",
        "commit.manifest.target-size-bytes": str(64 * 1024),
        "write.metadata.metrics.default": "none",
    }
)
IDENTIFIER = ("neve", "batches")
TIMESTAMP = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [
        pa.field("batch_id", pa.string(), nullable=False),
        pa.field("table", pa.string(), nullable=False),
        pa.field("outcome", pa.string(), nullable=False),
        pa.field("ranges", pa.map_(pa.string(), pa.string())),
        pa.field("records", pa.int64()),
        pa.field("dead_letters", pa.int64()),
        pa.field("duplicates", pa.int64()),
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
    # Those read; see `batch_counts` for what they are made of.
    records: int
    dead_letters: int
    duplicates: int
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

    @classmethod
    def of(cls, table: StagingTable, audited: AuditedOutcome, started_at: datetime) -> LedgerEntry:
        """Describe a batch that has just ended."""
        summary = audited.staged.summary
        counts = BatchCounts.decode(summary) or BatchCounts()
        return cls(
            batch_id=summary.get(BATCH_ID, ""),
            table=table.name,
            outcome=audited.outcome.value,
            ranges={k: f"{r.first}-{r.last}" for k, r in decode_ranges(summary).items()},
            records=counts.read,
            dead_letters=counts.dead_letters,
            duplicates=counts.duplicates,
            rows=added_records(audited.staged),
            files=int(summary.get("added-data-files", 0)),
            bytes=int(summary.get("added-files-size", 0)),
            set_aside=audited.set_aside,
            audits=[asdict(result) for result in audited.results],
            staged_snapshot_id=audited.staged.snapshot_id,
            main_snapshot_id=table.main_id,
            started_at=started_at,
            finished_at=datetime.now(timezone.utc),
            error=str(audited.unfinished) if audited.unfinished else None,
        )


class LedgerWriter:
    """Gathers entries and writes them now and then, since each write is a commit.

    At-least-once and best effort: a ledger that cannot be written never fails a batch, and a
    process that is killed loses what it had gathered. No decision depends on the ledger.
    """

    def __init__(
        self,
        lake: Lake,
        interval_seconds: float = WRITE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lake = lake
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._next_write = 0.0
        self._entries: list[LedgerEntry] = []
        self._table: StagingTable | None = None

    def add(self, entries: Iterable[LedgerEntry]) -> None:
        """Gather entries for the next write."""
        self._entries += entries

    def write_when_due(self) -> None:
        """Write what was gathered, if the last write is long enough ago."""
        if self._entries and self._clock() >= self._next_write:
            self.write()

    def write(self) -> None:
        """Write what was gathered, now. What cannot be written is tried again with the next."""
        if not self._entries:
            return
        self._next_write = self._clock() + self._interval_seconds
        try:
            self._append(rows_of(self._entries))
            self._entries = []
        except Exception as error:  # noqa: BLE001 - somebody may have altered the table
            logger.warning("the ledger was not written: %s", error)
            self._table = None
            # The newest are kept: a catalog that is down for days must not fill the memory.
            self._entries = self._entries[-MAX_GATHERED:]

    def _append(self, rows: pa.Table) -> None:
        if self._table is None:
            spec = TableSpec(IDENTIFIER, SCHEMA, properties=LEDGER_PROPERTIES)
            self._table = ensure_staging_table(self._lake.profile, self._lake.catalog(), spec)
        staging, write_id = self._table, uuid.uuid4().hex
        files = write_data_files(staging.metadata, staging.io, rows)

        def find_applied() -> int | None:
            return next(
                (
                    snapshot_id
                    for snapshot_id, snapshot in staging.document.snapshots.items()
                    if (snapshot.get("summary") or {}).get(WRITE_ID) == write_id
                ),
                None,
            )

        commit_until_known(
            staging.refresh,
            lambda: staging.append(files, {WRITE_ID: write_id}),
            find_applied,
            policy=RETRY,
            counters=CommitCounters(),
        )


def rows_of(entries: Iterable[LedgerEntry]) -> pa.Table:
    """Return entries as rows of the ledger."""
    rows = [
        {**asdict(entry), "ranges": list(entry.ranges.items()), "audits": json.dumps(entry.audits)}
        for entry in entries
    ]
    return pa.Table.from_pylist(rows, SCHEMA)
