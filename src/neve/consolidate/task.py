"""The work of one Spark task: read segments, decode, sort, write data files. Runs without Spark.

Files that a killed task leaves behind are named by no commit and removed with other orphans; dead
letters have names made of their place, so that doing a task again writes each once.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyiceberg.io import load_file_io
from pyiceberg.manifest import DataFile
from pyiceberg.table.metadata import TableMetadataUtil

from neve import failpoints
from neve.buffer.buffer import open_store
from neve.buffer.dead_letters import dead_request, set_aside, set_segment_aside
from neve.buffer.layout import is_retained_path
from neve.buffer.read_ahead import read_ahead
from neve.buffer.reader import BufferReader, Segment
from neve.buffer.spec import BufferSpec
from neve.buffer.store import BufferStore
from neve.consolidate.decode_requests import CountedRequests, DecodedRequests, decode_requests
from neve.consolidate.duplicates import Place
from neve.consolidate.gathered_rows import GatheredRows, can_gather
from neve.consolidate.whole_rows import WholeRows
from neve.errors import CorruptionError, NotFoundError, StorageError
from neve.lake.pending_rows import tables_to_write
from neve.publish.batch_counts import BatchCounts
from neve.publish.ranges import Ranges
from neve.signals import Signal
from neve.telemetry.promote import Promotion
from neve.telemetry.rows import DeadLetter, TableRows
from neve.telemetry.schemas import TABLES_OF

if TYPE_CHECKING:
    from neve.telemetry.arrays import Mask

RESULT = pa.schema(
    [
        ("table", pa.string()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("data_file", pa.binary()),
        # Of a table, at the end of a task: what became of the records that it read.
        ("counts", pa.string()),
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

    def covers(self, requests: pa.RecordBatch) -> Mask:
        """Tell for each request whether it lies in the ranges that this table consumes."""
        streams = requests.column("stream").to_pylist()
        segments = requests.column("segment").to_pylist()
        return np.array(
            [
                stream in self.ranges
                and self.ranges[stream].first <= segment <= self.ranges[stream].last
                for stream, segment in zip(streams, segments, strict=True)
            ],
            np.bool_,
        )

    def has_copies(self, requests: pa.RecordBatch) -> Mask:
        """Tell for each request whether it is a copy of a stored one."""
        if not self.duplicates:
            return np.zeros(len(requests), np.bool_)
        columns = (requests.column(name).to_pylist() for name in ("stream", "segment", "position"))
        return np.array(
            [place in self.duplicates for place in zip(*columns, strict=True)], np.bool_
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
class Written:
    """What the tasks of a job wrote for one table."""

    files: list[DataFile] = field(default_factory=list)
    counts: BatchCounts = field(default_factory=BatchCounts)

    @property
    def rows(self) -> int:
        return sum(file.record_count for file in self.files)


@dataclass
class JobResult:
    """What the tasks of a job did, by table, and what they tell beside it."""

    tables: dict[str, Written]
    dead_letters: int = 0
    unfit_values: int = 0

    @classmethod
    def of(cls, job: Job, rows: Iterable[Mapping[str, Any]]) -> JobResult:
        """Gather what tasks reported as `RESULT`."""
        result = cls({target.table: Written() for target in job.targets})
        for row in rows:
            if row["data_file"]:
                file = pickle.loads(row["data_file"])  # noqa: S301 - by our own task, a moment ago
                result.tables[row["table"]].files.append(file)
            if row["counts"]:
                result.tables[row["table"]].counts += BatchCounts(**json.loads(row["counts"]))
            result.dead_letters += row["dead_letters"] or 0
            result.unfit_values += row["unfit_values"] or 0
        return result


def parallelism_of(runner: object) -> int:
    """Return how many tasks a runner does side by side: one, unless it says otherwise."""
    return int(getattr(runner, "parallelism", 1))


@dataclass
class _Tally:
    """Counts that a task reports beside its files."""

    dead_letters: int = 0
    duplicate_keys: int = 0
    unfit_values: int = 0


class _PendingRows:
    """Rows of one table that wait to be written, and where they go."""

    def __init__(self, target: Target, promotions: Sequence[Promotion]) -> None:
        self.target = target
        metadata = TableMetadataUtil.parse_raw(target.metadata_json)
        io = load_file_io(target.io_properties, metadata.location)
        kind = GatheredRows if can_gather(metadata, target.table) else WholeRows
        self.rows = kind(target.table, metadata, io, promotions)
        self.counts = BatchCounts()

    @property
    def bytes(self) -> int:
        return self.rows.bytes

    def relieve(self) -> pa.RecordBatch:
        """Free memory; returns the files that were written for it, if any, as `RESULT`."""
        return self._result(self.rows.relieve())

    def write(self) -> pa.RecordBatch:
        """Write the rows as data files; returns these, as `RESULT`."""
        return self._result(self.rows.write())

    def _result(self, files: Sequence[DataFile]) -> pa.RecordBatch:
        return _result(
            [
                {
                    "table": self.target.table,
                    "rows": file.record_count,
                    "bytes": file.file_size_in_bytes,
                    "data_file": pickle.dumps(file),
                }
                for file in files
            ]
        )


def run_task(job: Job, number: int) -> Iterator[pa.RecordBatch]:
    """Do one task of a job; yields what was written, as `RESULT`.

    Rows are gathered up to `flush_bytes`; before there are more, some are compressed or written.
    """
    store = open_store(job.buffer)
    pending = [_PendingRows(target, job.promotions) for target in job.targets]
    tally = _Tally()
    for requests in _read(store, job, number, tally):
        counted = CountedRequests.of(job.signal, requests)
        for group in _tables_by_wanted_requests(pending, counted):
            for decoded in decode_requests(counted.only(group.wanted)):
                _account(store, job.signal, group.tables, decoded, tally)
                yield from _gather(pending, group.tables, decoded.tables, job.flush_bytes)
    for table in pending:
        yield table.write()
        tally.unfit_values += table.rows.unfit_values
    failpoints.reach("consolidate.written")
    counts = [{"table": t.target.table, "counts": json.dumps(asdict(t.counts))} for t in pending]
    yield _result([*counts, asdict(tally)])


def _account(
    store: BufferStore,
    signal: Signal,
    tables: Sequence[_PendingRows],
    decoded: DecodedRequests,
    tally: _Tally,
) -> None:
    """Set aside what no table can hold, and count its records for the tables that lack them."""
    tally.dead_letters += _set_aside(store, decoded.requests, decoded.letters)
    tally.duplicate_keys += decoded.duplicate_keys
    lost = dict(zip(TABLES_OF[signal], decoded.dead_letters.tolist(), strict=True))
    for table in tables:
        table.counts += BatchCounts(dead_letters=lost[table.target.table])


def _gather(
    pending: Sequence[_PendingRows],
    tables: Sequence[_PendingRows],
    decoded: Sequence[TableRows],
    most_bytes: int,
) -> Iterator[pa.RecordBatch]:
    """Add rows to their tables; yields what had to be written before."""
    by_name = {table.target.table: table for table in tables}
    for rows in decoded:
        if rows.name not in by_name or not len(rows):
            continue
        table = by_name[rows.name]
        for part in table.rows.parts(rows):
            for full in tables_to_write(pending, part.nbytes, most_bytes):
                yield full.relieve()
            table.rows.add(part)


def _read(store: BufferStore, job: Job, number: int, tally: _Tally) -> Iterator[pa.RecordBatch]:
    reader = BufferReader(store, dedup_seconds=job.buffer.dedup_seconds)
    segments = job.tasks[number]
    for segment, reading in read_ahead(segments, reader.read_whole, _bytes):
        try:
            yield from reader.read(segment, reading.result())
        except NotFoundError as error:
            # Declared retired: another worker was faster. Tables with rows in it have them, and
            # will refuse ours. Otherwise its rows would be lost, with the marks past them; so
            # would those of a retained segment, which a replay reads because a table lacks them.
            if is_retained_path(segment.path) or not reader.is_retired(segment):
                raise _missing(segment) from error
        except CorruptionError as error:
            # What came before the damage was read; the rest is kept as it is, for a person.
            set_segment_aside(store, segment, store.read(segment.path), error.message)
            tally.dead_letters += 1
        finally:
            # Its bytes make room for the next one.
            del reading


def _bytes(segment: Segment) -> int:
    return segment.bytes


def _missing(segment: Segment) -> StorageError:
    where = f"segment {segment.number} of stream {segment.stream}"
    if is_retained_path(segment.path):
        return StorageError(
            f"{where} is not retained any more", hint="nothing of this batch was written"
        )
    return StorageError(
        f"{where} is not in the buffer, and was not declared retired",
        hint="if its directory was moved, move it back; nothing of it was consumed",
        retryable=True,
    )


@dataclass(frozen=True)
class _Group:
    """Tables that want the same requests."""

    wanted: Mask
    tables: Sequence[_PendingRows]


def _tables_by_wanted_requests(
    pending: Sequence[_PendingRows], counted: CountedRequests
) -> list[_Group]:
    """Group the tables by the requests they want: mostly one group, so that is decoded once.

    What a table reads, and which records of it are copies of stored ones, is counted here.
    """
    groups: dict[bytes, list[_PendingRows]] = {}
    wanted: dict[bytes, Mask] = {}
    for table in pending:
        is_covered = table.target.covers(counted.requests)
        is_copy = is_covered & table.target.has_copies(counted.requests)
        records = counted.records_of(table.target.table)
        table.counts += BatchCounts(
            int(records[is_covered].sum()), duplicates=int(records[is_copy].sum())
        )
        mask = is_covered & ~is_copy
        key = np.packbits(mask).tobytes()
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


def _result(rows: Sequence[Mapping[str, object]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), RESULT)
