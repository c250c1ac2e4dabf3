"""Entries of data files, gathered in two steps: by file into runs, then by bucket into shards.

Tasks of the first step read files and write *runs*: their entries, cut into buckets and no more.
Tasks of the second step take some buckets each and read those from all runs. So nobody holds more
than RUN_ROWS entries (first step) or one bucket (second step), however large the table is.

Memory of a task: in the first step some 5 times the bytes of RUN_ROWS entries, which are 28 bytes
each for integers, beside one batch of the columns read: 270 MB at 10 million rows, and no more at
more of them. In the second step some 5 times the bytes of a bucket: 40 MB.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from pyiceberg.io import FileIO, load_file_io

from neve.index.columns import IndexedColumns
from neve.index.entries import Entries, concat_entries, no_entries
from neve.index.read_keys import Kind, Part, read_part
from neve.index.root import new_path
from neve.index.run_files import RunFile, RunRef, write_run_file
from neve.index.shard import ShardRef, bits_for, write_shard
from neve.lake.spark_tasks import TaskRunner

RUN_ROWS = 1024 * 1024
_RUNS_A_TASK = 8
_PARTS_A_TASK = 4
_SHARD_ROWS = 64 * 1024 * 1024

Result = TypeVar("Result")


@dataclass(frozen=True)
class Source:
    """What tasks need to read files and write runs."""

    columns: IndexedColumns
    tombstone_columns: IndexedColumns
    io_properties: Mapping[str, str]
    location: str
    """Of the index."""
    bits: int = 0

    def io(self) -> FileIO:
        return load_file_io(dict(self.io_properties), self.location)

    def delete(self, paths: Iterable[str]) -> None:
        """Remove files of the index; what cannot be removed is an orphan, and harmless."""
        io = self.io()
        for path in paths:
            with suppress(OSError):
                io.delete(path)

    def columns_of(self, kind: Kind) -> IndexedColumns:
        return self.tombstone_columns if kind is Kind.TOMBSTONES else self.columns

    @property
    def empty(self) -> Entries:
        return no_entries(self.columns.sequence_type, checked=self.columns.checked)


@dataclass(frozen=True)
class Runs:
    """What the first step wrote."""

    source: Source
    files: tuple[RunRef, ...]

    def rows_of(self, kind: Kind) -> int:
        return sum(one.rows for one in self.files if one.kind == kind)

    def delete(self) -> None:
        """Remove the files."""
        self.source.delete(run.path for run in self.files)


class RunReader:
    """Reads the buckets of runs, in a task of the second step."""

    def __init__(self, runs: Runs) -> None:
        io = runs.source.io()
        self._empty = runs.source.empty
        self._files = [RunFile(io, run) for run in runs.files]

    def read(self, bucket: int, *kinds: Kind) -> Entries:
        """Return the entries of a bucket that are of these kinds, in no order."""
        found = [file.read(bucket) for file in self._files if file.run.kind in kinds]
        parts = [one for one in found if one is not None]
        return concat_entries(parts) if parts else self._empty


def write_runs(runner: TaskRunner, source: Source, parts: Sequence[Part]) -> Runs:
    """Run the first step.

    Raises:
        UnsupportedError: a file cannot be indexed; its name is said.
    """
    source = replace(source, bits=bits_for(sum(part.rows for part in parts)))
    tasks = [_ReadTask(source, chosen) for chosen in packed(parts, runner.parallelism)]
    written = runner.run(_read_files, tasks)
    return Runs(source, tuple(run for runs in written for run in runs))


def by_bucket(
    runner: TaskRunner, runs: Runs, function: Callable[[Sequence[int]], Result], rows: int
) -> list[Result]:
    """Run the second step: a function over ranges of buckets, each bucket in one of them."""
    buckets = 1 << runs.source.bits
    count = min(buckets, max(runner.parallelism, -(-rows // _SHARD_ROWS)))
    bounds = [buckets * number // count for number in range(count + 1)]
    return runner.run(
        function, [range(bounds[number], bounds[number + 1]) for number in range(count)]
    )


def packed(parts: Sequence[Part], parallelism: int) -> list[tuple[Part, ...]]:
    """Cut large files and put small ones together, so that tasks are alike and no more than wanted.

    The largest goes first, to the task that has least.
    """
    total = sum(part.rows for part in parts)
    if not parts:
        return []
    most = max(1, min(RUN_ROWS, -(-total // (_PARTS_A_TASK * parallelism))))
    cut = [one for part in parts for one in _cut(part, most)]
    count = min(len(cut), max(parallelism, -(-total // (_RUNS_A_TASK * RUN_ROWS))))
    tasks: list[list[Part]] = [[] for _ in range(count)]
    loads = np.zeros(count, np.int64)
    for part in sorted(cut, key=lambda one: -one.rows):
        least = int(np.argmin(loads))
        tasks[least].append(part)
        loads[least] += max(1, part.rows)
    return [tuple(task) for task in tasks]


def _cut(part: Part, most: int) -> list[Part]:
    # Positions that a vector names are few, and found in any row group.
    shares = 1 if part.within is not None else max(1, -(-part.rows // most))
    return [
        replace(part, share=share, shares=shares, rows=part.rows // shares)
        for share in range(shares)
    ]


@dataclass(frozen=True)
class _ReadTask:
    source: Source
    parts: tuple[Part, ...]


def _read_files(task: _ReadTask) -> list[RunRef]:
    source, io = task.source, task.source.io()
    written: list[RunRef] = []
    for kind in Kind:
        held: list[Entries] = []
        for part in task.parts:
            if part.kind is not kind:
                continue
            for entries in read_part(io, part, source.columns_of(kind)):
                held.append(entries)
                if sum(map(len, held)) >= RUN_ROWS:
                    written.append(_write_run(io, task, kind, held))
                    held = []
        if held:
            written.append(_write_run(io, task, kind, held))
    return written


def _write_run(io: FileIO, task: _ReadTask, kind: Kind, held: list[Entries]) -> RunRef:
    path = f"{task.source.location}/run-{uuid.uuid4()}.arrow"
    return write_run_file(io, path, int(kind), held, task.source.bits)


def write_buckets_of(
    source: Source, generation: int, buckets: Iterator[tuple[int, Entries]]
) -> ShardRef:
    """Write sorted buckets, each key once, as a shard of the index."""
    path = new_path(source.location, "shard")
    return write_shard(source.io(), path, buckets, source.bits, generation)
