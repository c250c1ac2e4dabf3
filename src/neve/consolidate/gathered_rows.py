"""The rows of one table that a task gathers, until it writes them as sorted files.

What rows inherit from their request, resource, scope and metric is kept once for each of these, and
repeated for a row group at a time while that is written. Rows that are too many for memory are
sorted and compressed there, run after run; a file merges the runs. So a task needs neither a disk
nor more memory for more rows, and its files are as large as if it had held all rows at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.table.metadata import TableMetadata

from neve.consolidate.sorted_runs import SortedRun, compressed, read_rows
from neve.lake.data_files import write_partition
from neve.lake.far_days import share_far_days
from neve.lake.parquet_options import SAMPLE_ROWS
from neve.lake.partition_rows import PartitionRows, split_by_partition
from neve.telemetry.arrays import Column, Integers
from neve.telemetry.promote import Promotion, promote
from neve.telemetry.rows import TableRows
from neve.telemetry.schemas import SCHEMAS

MIB = 1024 * 1024
# Rows of a row group, as Arrow has them with all they inherit.
ROW_GROUP_BYTES = 96 * MIB
# Compressed runs of one table: more of them become a file, which is then large enough by far.
RUNS_BYTES = 192 * MIB
# And rows of such runs: to merge them takes some 50 bytes for each, however small they are.
RUNS_ROWS = 2_000_000
# What a row counts at least: to sort it takes some 120 bytes, beside its own.
SMALLEST_ROW_BYTES = 200

_ROW_BYTES = "row bytes"


def can_gather(metadata: TableMetadata, name: str) -> bool:
    """Tell whether a table is sorted and partitioned by columns that are known before promotion.

    All telemetry tables are, unless somebody changed that.
    """
    schema = metadata.schema()
    days = [
        (str(field.transform), schema.find_column_name(field.source_id))
        for field in metadata.spec().fields
    ]
    return days == [("day", "timestamp")] and _sorted_by(metadata) <= set(SCHEMAS[name].names)


def _sorted_by(metadata: TableMetadata) -> set[str]:
    order = metadata.sort_order_by_id(metadata.default_sort_order_id)
    fields = order.fields if order else ()
    return {str(metadata.schema().find_column_name(field.source_id)) for field in fields}


class GatheredRows:
    """The rows of one table, and where they go."""

    def __init__(
        self, name: str, metadata: TableMetadata, io: FileIO, promotions: Sequence[Promotion]
    ) -> None:
        self.unfit_values = 0
        self.metadata, self.io = metadata, io
        self._promotions = promotions
        self._schema = SCHEMAS[name]
        self._own: list[pa.Table] = []
        self._own_bytes = 0
        self._owners = _Owners()
        self._runs: list[SortedRun] = []

    @property
    def bytes(self) -> int:
        """How much memory the rows take; tiny ones count as what it takes to sort them."""
        return self._own_bytes + self._owners.bytes + sum(run.bytes for run in self._runs)

    def parts(self, rows: TableRows) -> Iterator[TableRows]:
        """Yield what `add` takes: the rows as they are."""
        yield rows

    def add(self, rows: TableRows) -> None:
        """Keep a copy of rows: they are parts of what the decoder read, and would keep it all."""
        numbers = self._owners.add(rows)
        columns = {name: _copied(column) for name, column in rows.own.items()}
        sizes = pa.array(rows.row_bytes().astype(np.int32))
        self._own.append(pa.table({**columns, **numbers, _ROW_BYTES: sizes}))
        self._own_bytes += max(self._own[-1].nbytes, SMALLEST_ROW_BYTES * len(rows))

    def relieve(self) -> list[DataFile]:
        """Free the memory of rows that were not sorted yet; returns files, if that took any."""
        if not self._own:
            return self.write()
        self._runs.append(compressed(self._sorted_run()))
        rows = sum(len(run) for run in self._runs)
        return self.write() if self.bytes > RUNS_BYTES or rows > RUNS_ROWS else []

    def write(self) -> list[DataFile]:
        """Write all rows as files: one for each day, sorted as the table says; see `far_days`."""
        if self._own:
            run = self._sorted_run()
            self._runs.append(compressed(run) if self._runs else run)
        if not self._runs:
            return []
        keys = pa.concat_tables([run.keys for run in self._runs])
        source = _Source(
            tuple(self._runs), self._owners, self._schema.names, self._promotions, self._count_unfit
        )
        days = list(split_by_partition(self.metadata, keys))
        files = [
            write_partition(
                self.metadata,
                self.io,
                _GatheredPartition(
                    part.partition, part.table, part.order, part.spec_id, source=source
                ),
            )
            for part in share_far_days(self.metadata, days, "timestamp")
        ]
        self._runs, self._owners = [], _Owners()
        return files

    def _count_unfit(self, values: int) -> None:
        self.unfit_values += values

    def _sorted_run(self) -> SortedRun:
        """Sort what is not sorted yet, a column at a time: that needs the memory of one column."""
        # What the decoder freed lies between what is kept, and stays in the process otherwise.
        pa.default_memory_pool().release_unused()
        keys = self._keys(pa.concat_tables(self._own))
        parts = [part.order.indices for part in split_by_partition(self.metadata, keys)]
        order = pa.concat_arrays(parts)
        names = self._own[0].column_names
        unsorted = [[table.column(name).chunk(0) for table in self._own] for name in names]
        self._own, self._own_bytes = [], 0
        columns = []
        while unsorted:
            column = pa.concat_arrays(unsorted.pop())
            columns.append(column.take(order))
            del column
        rows = pa.table(columns[::-1], names)
        pa.default_memory_pool().release_unused()
        sample = rows.take(_sample_places(len(rows)))
        return SortedRun(keys.take(order), rows, sample)

    def _keys(self, own: pa.Table) -> pa.Table:
        """Return the columns that rows are sorted and partitioned by, and the size of each row."""
        columns = {
            name: own.column(name) if name in own.column_names else self._owners.column(name, own)
            for name in sorted({"timestamp", *_sorted_by(self.metadata)})
        }
        return pa.table({**columns, _ROW_BYTES: own.column(_ROW_BYTES)})


class _Owners:
    """What rows inherit: the columns of requests, resources, scopes and metrics, each once."""

    def __init__(self) -> None:
        self._tables: list[list[pa.Table]] = []
        self._counts: list[int] = []
        self.bytes = 0

    def add(self, rows: TableRows) -> dict[str, pa.Array]:
        """Keep the owners of rows; returns for each kind of them which one each row has."""
        numbers = {}
        for level, inherited in enumerate(rows.inherited):
            if level == len(self._tables):
                self._tables.append([])
                self._counts.append(0)
            columns = {name: _copied(column) for name, column in inherited.columns.items()}
            self._tables[level].append(pa.table(columns))
            self.bytes += self._tables[level][-1].nbytes
            numbers[str(level)] = pa.array(
                (inherited.owners + self._counts[level]).astype(np.int32)
            )
            self._counts[level] += len(self._tables[level][-1])
        return numbers

    def column(self, name: str, own: pa.Table) -> pa.ChunkedArray:
        """Return one inherited column of rows."""
        (level,) = (n for n, tables in enumerate(self._tables) if name in tables[0].column_names)
        column = pa.chunked_array(
            [chunk for table in self._tables[level] for chunk in table.column(name).chunks]
        )
        return column.take(own.column(str(level)))

    def expand(self, rows: pa.Table) -> dict[str, pa.ChunkedArray]:
        """Return all inherited columns of rows."""
        columns: dict[str, pa.ChunkedArray] = {}
        for level, tables in enumerate(self._tables):
            # Once: `take` would copy all chunks into one for each row group.
            tables[:] = [pa.concat_tables(tables).combine_chunks()]
            taken = tables[0].take(rows.column(str(level)))
            columns |= dict(zip(taken.column_names, taken.columns, strict=True))
        return columns


@dataclass(frozen=True)
class _Source:
    """Where the rows of files are read: sorted runs, and what their rows inherit."""

    runs: tuple[SortedRun, ...]
    owners: _Owners
    names: Sequence[str]
    promotions: Sequence[Promotion]
    count_unfit: Callable[[int], None]

    def rows(self, indices: Integers) -> pa.Table:
        """Return whole rows, by their indices in all runs."""
        promoted = promote(self.whole(read_rows(self.runs, indices)), self.promotions)
        self.count_unfit(promoted.unfit_values)
        return promoted.rows

    def whole(self, own: pa.Table) -> pa.Table:
        """Return rows with what they inherit."""
        columns = dict(zip(own.column_names, own.columns, strict=True)) | self.owners.expand(own)
        return pa.table({name: columns[name] for name in self.names})


@dataclass(frozen=True)
class _GatheredPartition(PartitionRows):
    """The rows of one file; `table` has their keys only."""

    source: _Source = field(kw_only=True)

    def row_groups(self, most_rows: int, *, are_ours: bool = False) -> Iterator[pa.Table]:
        del are_ours  # all are
        indices = self.indices.to_numpy()
        sizes = self.table.column(_ROW_BYTES).take(self.indices).to_numpy()
        for start, end in pairwise(_cuts(sizes, most_rows)):
            yield self.source.rows(indices[start:end])

    @property
    def sample(self) -> pa.Table:
        rows = pa.concat_tables([run.sample for run in self.source.runs])
        sample = self.source.whole(rows.take(_sample_places(len(rows))))
        return promote(sample, self.source.promotions).rows


def _sample_places(rows: int) -> pa.Array:
    """Return which of some rows make a sample: from all over, as neighbours are alike."""
    return pa.array(np.linspace(0, rows - 1, min(rows, SAMPLE_ROWS)).astype(np.int64))


def _copied(column: Column) -> Column:
    return column.take(pa.array(np.arange(len(column))))


def _cuts(sizes: Integers, most_rows: int) -> Iterator[int]:
    """Return where row groups begin, and the number of rows."""
    before = np.cumsum(sizes, dtype=np.int64) - sizes
    by_bytes = before // ROW_GROUP_BYTES
    starts = np.flatnonzero(np.diff(by_bytes, prepend=-1)).tolist()
    for start, end in pairwise([*starts, len(sizes)]):
        yield from range(start, end, most_rows)
    yield len(sizes)
