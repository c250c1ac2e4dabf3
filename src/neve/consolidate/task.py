"""What one Spark task does: read segments, decode, sort, write data files. Runs without Spark, too.

Files that a killed task leaves behind are named by no commit and removed with other orphans; dead
letters have names made of their place, so that doing a task again writes each once.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter

import numpy as np
import pyarrow as pa
from pyiceberg.io import load_file_io
from pyiceberg.table.metadata import TableMetadataUtil

from neve import failpoints
from neve.buffer.buffer import open_store
from neve.buffer.dead_letters import dead_request, set_aside, set_segment_aside
from neve.buffer.reader import BufferReader, Segment
from neve.buffer.spec import BufferSpec
from neve.buffer.store import BufferStore
from neve.consolidate.duplicates import Place
from neve.errors import CorruptionError, NotFoundError
from neve.lake.files import write_data_files
from neve.publish.ranges import Ranges
from neve.signals import Signal
from neve.telemetry.decode import decode
from neve.telemetry.promote import Promotion, promote
from neve.telemetry.rows import DeadLetter

RESULT = pa.schema(
    [
        ("table", pa.string()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("data_file", pa.binary()),
        ("dead_letters", pa.int64()),
        ("duplicate_keys", pa.int64()),
        ("unfit_values", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Target:
    """A table that takes rows: where its files go, and which requests it still lacks."""

    table: str
    metadata_json: str
    io_properties: dict[str, str]
    ranges: Ranges
    duplicates: frozenset[Place]

    def wants(self, requests: pa.RecordBatch) -> pa.Array:
        """Tell for each request whether its rows belong into this table now."""
        streams = requests.column("stream").to_pylist()
        segments = requests.column("segment").to_pylist()
        positions = requests.column("position").to_pylist()
        return pa.array(
            [
                place[0] in self.ranges
                and self.ranges[place[0]].first <= place[1] <= self.ranges[place[0]].last
                and place not in self.duplicates
                for place in zip(streams, segments, positions, strict=True)
            ],
            pa.bool_(),
        )


@dataclass(frozen=True)
class Job:
    """All that tasks need to know; sent to each of them."""

    signal: Signal
    buffer: BufferSpec
    targets: tuple[Target, ...]
    tasks: tuple[tuple[Segment, ...], ...]
    flush_bytes: int
    promotions: tuple[Promotion, ...] = ()


@dataclass
class _Tally:
    """What a task has to tell beside its files."""

    dead_letters: int = 0
    duplicate_keys: int = 0
    unfit_values: int = 0


class _Gathered:
    """Rows of one table on their way into a file."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.metadata = TableMetadataUtil.parse_raw(target.metadata_json)
        self.io = load_file_io(target.io_properties, self.metadata.location)
        self.tables: list[pa.Table] = []
        self.bytes = 0

    def add(self, rows: pa.Table) -> None:
        """Keep rows, and nothing else.

        Some columns are parts of what the decoder read, all of which they would keep in memory:
        as much again as the rows. Copied, they do not.
        """
        if len(rows):
            self.tables.append(rows.take(pa.array(np.arange(len(rows)))))
            self.bytes += self.tables[-1].nbytes

    def write(self) -> Iterator[dict[str, object]]:
        if not self.tables:
            return
        rows = pa.concat_tables(self.tables)
        self.tables, self.bytes = [], 0
        for file in write_data_files(self.metadata, self.io, rows):
            yield {
                "table": self.target.table,
                "rows": file.record_count,
                "bytes": file.file_size_in_bytes,
                "data_file": pickle.dumps(file),
            }


def run_task(job: Job, number: int) -> Iterator[pa.RecordBatch]:
    """Do one task of a job; yields what was written, as `RESULT`."""
    store = open_store(job.buffer)
    gathered = [_Gathered(target) for target in job.targets]
    tally = _Tally()
    for requests in _read(store, job, number, tally):
        for group in _alike(gathered, requests):
            wanted = requests.filter(group.wanted)
            if not len(wanted):
                continue
            decoded = decode(
                job.signal, wanted.column("payload"), wanted.column("received_unix_nano")
            )
            tally.duplicate_keys += decoded.duplicate_keys
            tally.dead_letters += _set_aside(store, wanted, decoded.dead_letters)
            for table in group.tables:
                promoted = promote(decoded.tables[table.target.table], job.promotions)
                tally.unfit_values += promoted.unfit_values
                table.add(promoted.rows)
        while sum(table.bytes for table in gathered) >= job.flush_bytes:
            yield _result(max(gathered, key=attrgetter("bytes")).write())
    for table in gathered:
        yield _result(table.write())
    failpoints.reach("consolidate.written")
    yield _result(iter([asdict(tally)]))


def _read(store: BufferStore, job: Job, number: int, tally: _Tally) -> Iterator[pa.RecordBatch]:
    reader = BufferReader(store, dedup_seconds=job.buffer.dedup_seconds)
    for segment in job.tasks[number]:
        try:
            yield from reader.read(segment)
        except NotFoundError:
            # Another worker was faster: tables with rows in it have them, and will refuse ours.
            if not reader.is_retired(segment):
                raise
        except CorruptionError as error:
            # What came before the damage was read; the rest is kept as it is, for a person.
            set_segment_aside(store, segment, store.read(segment.path), error.message)
            tally.dead_letters += 1


@dataclass(frozen=True)
class _Group:
    wanted: pa.Array
    tables: Sequence[_Gathered]


def _alike(gathered: Sequence[_Gathered], requests: pa.RecordBatch) -> list[_Group]:
    """Group the tables that want the same requests: mostly one group, so one decoding."""
    groups: dict[bytes, list[_Gathered]] = {}
    wanted: dict[bytes, pa.Array] = {}
    for table in gathered:
        mask = table.target.wants(requests)
        key = np.packbits(mask.to_numpy(zero_copy_only=False)).tobytes()
        groups.setdefault(key, []).append(table)
        wanted[key] = mask
    return [_Group(wanted[key], tables) for key, tables in groups.items()]


def _set_aside(store: BufferStore, requests: pa.RecordBatch, letters: Sequence[DeadLetter]) -> int:
    by_request: dict[int, list[tuple[str, str]]] = {}
    for letter in letters:
        by_request.setdefault(letter.request, []).append((letter.path, letter.reason))
    for row, reasons in by_request.items():
        set_aside(store, dead_request(requests, row, reasons))
    return len(letters)


def _result(rows: Iterator[dict[str, object]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), RESULT)
