"""A small table that is appended to without Spark, and what must hold of it and its files."""

from __future__ import annotations

import multiprocessing
import time
import uuid
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

import pyarrow as pa
from pyiceberg.manifest import ManifestEntryStatus

import neve
from neve.lake.appends import Appended, AppendTable
from neve.lake.commit_loop import CommitCounters, RetryPolicy
from neve.lake.create import FEW_METADATA_FILES, TableSpec, ensure_table
from neve.lake.data_files import write_data_files
from neve.lake.snapshot_limit import SnapshotLimit

SCHEMA = pa.schema([pa.field("id", pa.int64())])
PATIENT = RetryPolicy(first_seconds=0.01, most_seconds=0.1, deadline_seconds=60)


@dataclass
class Appender:
    """Appends rows to one table of a lake."""

    lake: object
    namespace: str = "ns"
    limit: SnapshotLimit = field(default_factory=SnapshotLimit)
    counters: CommitCounters = field(default_factory=CommitCounters)

    def __post_init__(self) -> None:
        properties = {**FEW_METADATA_FILES, "commit.manifest-merge.enabled": "true"}
        spec = TableSpec((self.namespace, "t"), SCHEMA, properties=properties)
        made = ensure_table(self.lake.profile, self.lake.catalog(), spec)
        self.table = AppendTable(self.lake.profile, made, self.limit)

    def write(self, *ids: int):
        rows = pa.table({"id": pa.array(ids, pa.int64())})
        return write_data_files(self.table.metadata, self.table.io, rows)

    def append(self, *ids: int, append_id: str = "", policy: RetryPolicy = PATIENT) -> Appended:
        """Append rows in one file."""
        return self.table.append(
            self.write(*ids),
            append_id or str(uuid.uuid4()),
            policy=policy,
            counters=self.counters,
        )

    def load(self):
        """Return the table as PyIceberg reads it."""
        return self.lake.catalog().load_table((self.namespace, "t"))

    def ids(self, snapshot_id: int | None = None) -> Counter:
        rows = self.load().scan(snapshot_id=snapshot_id).to_arrow()
        return Counter(rows["id"].to_pylist())

    def reachable(self) -> set[str]:
        """Return the manifest lists and manifests of all retained snapshots."""
        table = self.load()
        lists = {snapshot.manifest_list for snapshot in table.metadata.snapshots}
        return lists | {
            manifest.manifest_path
            for snapshot in table.metadata.snapshots
            for manifest in snapshot.manifests(table.io)
        }

    def entries(self) -> dict[str, tuple[int, int, int]]:
        """Return each live file's snapshot and sequence numbers, by its path."""
        table = self.load()
        return {
            entry.data_file.file_path: (
                entry.snapshot_id,
                entry.sequence_number,
                entry.file_sequence_number,
            )
            for manifest in table.current_snapshot().manifests(table.io)
            for entry in manifest.fetch_manifest_entry(table.io)
            if entry.status != ManifestEntryStatus.DELETED
        }


def append_rows(settings, namespace: str, first: int, count: int, seconds: float) -> float:
    """Append rows one by one, in a process of its own; return how long the slowest one took."""
    policy = RetryPolicy(deadline_seconds=seconds)
    with neve.open(settings) as lake:
        appender = Appender(lake, namespace, SnapshotLimit(20))
        slowest = 0.0
        for number in range(first, first + count):
            started = time.monotonic()
            appender.append(number, policy=policy)
            slowest = max(slowest, time.monotonic() - started)
        return slowest


def race_processes(settings, namespace: str, writers: int, each: int, seconds: float) -> float:
    """Append by many processes at once; return how long the slowest append took."""
    with ProcessPoolExecutor(writers, multiprocessing.get_context("spawn")) as pool:
        running = [
            pool.submit(append_rows, settings, namespace, writer * each, each, seconds)
            for writer in range(writers)
        ]
        return max(slowest.result() for slowest in running)
