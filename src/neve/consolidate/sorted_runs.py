"""Sorted rows in memory, compressed or not, of which some are read at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from neve.telemetry.arrays import Integers

# Rows that are compressed together: what is read of a run is read in such blocks, whole.
BLOCK_ROWS = 8 * 1024
BLOCK_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class SortedRun:
    """Rows in their order: what they are sorted by, and all of them."""

    keys: pa.Table
    rows: pa.Table | pa.Buffer
    """As a buffer, compressed."""
    sample: pa.Table
    """Some of them, from all over."""
    block_rows: int = BLOCK_ROWS

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def bytes(self) -> int:
        size = self.rows.size if isinstance(self.rows, pa.Buffer) else self.rows.nbytes
        return int(self.keys.nbytes + size + self.sample.nbytes)

    def read(self, start: int, end: int) -> pa.Table:
        """Return the rows from `start` up to `end`."""
        if isinstance(self.rows, pa.Table):
            return self.rows.slice(start, end - start)
        with pa.ipc.open_file(self.rows) as file:
            blocks = range(start // self.block_rows, -(-end // self.block_rows))
            rows = pa.Table.from_batches([file.get_batch(block) for block in blocks], file.schema)
        return rows.slice(start - blocks.start * self.block_rows, end - start)


def compressed(run: SortedRun) -> SortedRun:
    """Return the same rows, compressed."""
    if isinstance(run.rows, pa.Buffer):
        return run
    row_bytes = max(1, run.rows.nbytes // max(1, len(run)))
    block_rows = min(BLOCK_ROWS, -(-BLOCK_BYTES // row_bytes))
    stream = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    with pa.ipc.new_file(stream, run.rows.schema, options=options) as file:
        file.write_table(run.rows, block_rows)
    return SortedRun(run.keys, stream.getvalue(), run.sample, block_rows)


def read_rows(runs: Sequence[SortedRun], indices: Integers) -> pa.Table:
    """Return rows by their indices, which count through all runs.

    Meant for indices that lie close together in each run, as in files that are sorted as runs are:
    all that lies between them is read.
    """
    if len(runs) == 1 and _is_range(indices):
        return runs[0].read(int(indices[0]), int(indices[-1]) + 1)
    indices = indices.astype(np.int64)
    places = np.empty(len(indices), np.int64)
    tables: list[pa.Table] = []
    first = read = 0
    for run in runs:
        is_here = (indices >= first) & (indices < first + len(run))
        here = indices[is_here] - first
        if len(here):
            start, end = int(here.min()), int(here.max()) + 1
            places[is_here] = here - start + read
            tables.append(run.read(start, end))
            read += end - start
        first += len(run)
    return pa.concat_tables(tables).take(pa.array(places))


def _is_range(indices: Integers) -> bool:
    return bool(len(indices)) and bool(np.all(np.diff(indices.astype(np.int64)) == 1))
