"""A lake with telemetry that looks new, a day, a week or a month old, and what a small batch costs.

Consolidation runs in this process, without Spark. A receiver stays open, as receivers do.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import neve
from neve.buffer.buffer import Buffer, open_buffer, open_reader, open_store
from neve.buffer.frame import Entry, heads_only
from neve.buffer.identity import ensure_identity
from neve.buffer.layout import Kind, new_stream, part_path
from neve.buffer.payload import HASH_BYTES, SENDER_BYTES
from neve.buffer.spec import BufferSpec, buffer_spec
from neve.config import Settings
from neve.consolidate.consolidator import Consolidator
from neve.consolidate.spec import ConsolidateSpec
from neve.consolidate.watch import look
from neve.lake import json_table
from neve.publish.contains import CONTAINS, contained_in, encode_contained, with_ranges
from neve.publish.ledger import LedgerEntry
from neve.publish.ranges import Range, write_marks
from neve.signals import Signal
from tests.support import aged
from tests.support.consolidation import SIGNALS, run_inline
from tests.support.observers import Listening
from tests.support.otlp_bodies import protobuf
from tests.support.requests import buffered
from tests.support.wait import until

if TYPE_CHECKING:
    from neve.lake import Lake
    from neve.lake.staging import StagingTable

LOGS, LEDGER = "otel.logs", "neve.batches"
REQUESTS = 10


@dataclass(frozen=True)
class Age:
    """How old a lake looks.

    With the defaults there is a commit every 2.5 s, and snapshots are kept for an hour.

    Args:
        files: one for each commit, none of them compacted.
        streams: receivers that consolidation has consumed from, whose hashes are still needed.
        requests: in the dedup window.
        ledger_files: one for each write; upkeep rewrites them at 2,000.
    """

    name: str
    snapshots: int = 0
    files: int = 0
    streams: int = 0
    requests: int = 0
    ledger_files: int = 0


COMMITS_A_DAY = 34_560
NEW = Age("new")
DAY = Age("day", 1455, COMMITS_A_DAY, 3, 200_000, 500)
WEEK = Age("week", 1455, 7 * COMMITS_A_DAY, 20, 200_000, 2000)
MONTH = Age("month", 1455, 30 * COMMITS_A_DAY, 90, 200_000, 2000)


@dataclass(frozen=True)
class Cost:
    """What one small batch took: processor time and time, in seconds; documents parsed."""

    processor_seconds: float
    seconds: float
    documents: int


class AgedLake:
    """A worker and an open receiver at a lake."""

    def __init__(self, lake: Lake, buffer: Buffer, spec: BufferSpec) -> None:
        self.lake = lake
        self._buffer = buffer
        self._spec = spec
        self.worker = Consolidator(lake, ConsolidateSpec(buffer=spec), run_inline)
        self._observer = Listening()

    def send(self) -> None:
        """Append some requests, and wait until a worker could see them."""
        for _ in range(REQUESTS):
            body = buffered(protobuf(Signal.LOGS, secrets.token_hex(8), 1))
            self._buffer.append("logs", body).durable.result(10)
        until(lambda: self._waiting_requests() >= REQUESTS)

    def _waiting_requests(self) -> int:
        known = open_reader(self._spec).known_requests("logs")
        return sum(len(part.index.hashes) for part in known if not part.is_retired)

    def consolidate(self) -> Cost:
        """Look into the buffer and consolidate what is there: all of a worker's round."""
        with counted_documents() as documents:
            began, processor = time.perf_counter(), time.process_time()
            report = look(self.worker, threading.Event(), self._observer)
            cost = Cost(
                time.process_time() - processor, time.perf_counter() - began, len(documents)
            )
        assert (report.rows, report.trouble) == (REQUESTS, None)
        return cost

    def metadata_bytes(self) -> int:
        """Return the size of the metadata file that the newest commit has written."""
        table = aged.staging(self.lake, LOGS)
        return len(table.io.new_input(table.document.metadata_location))

    def write_ledger(self) -> Cost:
        """Write a row into the ledger."""
        now = datetime.now(timezone.utc)
        entry = LedgerEntry("b", LOGS, "published", {}, 1, 0, 0, 1, 1, 1, 0, [], 1, 1, now, now)
        self.worker.ledger.add([entry])
        with counted_documents() as documents:
            began, processor = time.perf_counter(), time.process_time()
            self.worker.ledger.write()
            return Cost(
                time.process_time() - processor, time.perf_counter() - began, len(documents)
            )


@contextmanager
def aged_lake(age: Age, settings: Settings, measured: Settings | None = None) -> Iterator[AgedLake]:
    """Make a lake of an age, with a worker that has done a few batches.

    Args:
        measured: other settings for the same lake, such as those with a slow store.
    """
    spec = replace(buffer_spec(settings), seal_seconds=0.01, put_interval_seconds=0.0)
    with neve.open(settings) as lake, open_buffer(spec, SIGNALS) as buffer:
        first = AgedLake(lake, buffer, spec)
        first.send()
        first.consolidate()
        first.write_ledger()
        if age.streams:
            _consume(aged.staging(lake, LOGS), _add_streams(age, spec))
            # Its summary names all of them, as those of the snapshots that are copied from it.
            first.send()
            first.consolidate()
        for table, files in ((LOGS, age.files), (LEDGER, age.ledger_files)):
            if files:
                aged.add_files(aged.staging(lake, table), files)
        if age.snapshots:
            aged.add_snapshots(aged.staging(lake, LOGS), age.snapshots)
        slow = buffer_spec(measured or settings)
        with neve.open(measured or settings) as lake_of_worker:
            old = AgedLake(lake_of_worker, buffer, replace(spec, storage=slow.storage))
            for _ in range(2):
                old.send()
                old.consolidate()
            old.write_ledger()
            yield old


def _add_streams(age: Age, spec: BufferSpec) -> list[str]:
    """Put the hashes of requests in the dedup window; return their streams, of a segment each."""
    store = open_store(spec)
    streams = [new_stream("logs", ensure_identity(store)) for _ in range(age.streams)]
    for stream in streams:
        entries = [_entry() for _ in range(age.requests // age.streams)]
        store.put_new(part_path(stream, 1, Kind.RETIRED), heads_only(entries, closing=False))
    return streams


def _consume(table: StagingTable, streams: list[str]) -> None:
    """Let a table have consumed streams: it has their marks, and says that it contains them."""
    ranges = {stream: Range(1, 1) for stream in streams}
    contained = with_ranges(contained_in(table), ranges)
    aged.add_snapshots(
        table,
        1,
        properties=write_marks(ranges),
        entries={CONTAINS: encode_contained(contained)},
    )


def _entry() -> Entry:
    return Entry(
        time.time_ns(), bytes(SENDER_BYTES), secrets.token_bytes(HASH_BYTES), 0, 0, 1, 100, 0
    )


@contextmanager
def counted_documents() -> Iterator[list[int]]:
    """Gather the sizes of the metadata documents of databases' tables that are parsed."""
    sizes: list[int] = []
    decode = json_table.decode_document

    def counting(content: bytes) -> dict:
        sizes.append(len(content))
        return decode(content)

    json_table.decode_document = counting
    try:
        yield sizes
    finally:
        json_table.decode_document = decode


def embedded_settings(directory: Path) -> Settings:
    return Settings.model_validate(
        {
            "catalog": {
                "uri": f"sqlite:///{directory}/catalog.db",
                "warehouse": str(directory / "warehouse"),
            },
            "buffer": {"location": str(directory / "buffer")},
        }
    )
