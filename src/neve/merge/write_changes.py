"""Changes as files: new rows as data files, old rows as deletion vectors, one commit.

The tasks write; what comes back to the driver is small: files, bitmaps, index entries.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import load_file_io
from pyiceberg.table.metadata import TableMetadata
from pyroaring import BitMap64
from pyspark.sql import types as T

from neve.index.columns import names_by_id
from neve.index.entries import TOMBSTONE, Entries, concat_entries, make_entries
from neve.index.hashing import KeyHasher
from neve.index.root import Root
from neve.index.sequences import encode_sequences
from neve.lake.data_files import write_data_files, write_rows
from neve.lake.frames import in_portions, map_batches
from neve.lake.spark_tasks import LocalTasks
from neve.merge import columns as cols
from neve.merge import transforms as tr
from neve.merge.decision import ABSENT, REMOVE, REPEAT, TIE, UPSERT
from neve.merge.locators import Decided, DecidedHere
from neve.merge.report import Tally
from neve.merge.shape import Shape

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

    from neve.merge.locators import Task

_RESULT = T.StructType([T.StructField("written", T.BinaryType())])
_CHANGES = (UPSERT, REMOVE, ABSENT, tr.DUPLICATE)
_RECENT_FILES = 1000
# Row groups of so many rows are read at most, where not knowing is no loss: a source that delivers
# at least once mostly repeats events of a moment ago, and their rows lie in small new files.
_MOST_ROWS = 1_000_000


@dataclass
class Written:
    """What was written of a batch, or of a portion of it."""

    # How many keys came to which end.
    tally: dict[str, Tally] = field(default_factory=dict)
    # By the mirror's file, as the locator named it.
    deleted: dict[str, BitMap64] = field(default_factory=dict)
    data_files: list[DataFile] = field(default_factory=list)
    tombstones: list[DataFile] = field(default_factory=list)
    # Index entries by new file's path, still without their files' ordinals.
    entries: dict[str, Entries] = field(default_factory=dict)
    tombstone_entries: list[Entries] = field(default_factory=list)
    # Of unresolved ties: the least and the greatest value of the first sequence column.
    tied: list[Any] = field(default_factory=list)

    def add(self, more: Written) -> None:
        for end, tally in more.tally.items():
            self.tally[end] = self.tally.get(end, Tally()).plus(tally)
        for file, positions in more.deleted.items():
            self.deleted[file] = self.deleted.get(file, BitMap64()) | positions
        self.data_files += more.data_files
        self.tombstones += more.tombstones
        self.entries |= more.entries
        self.tombstone_entries += more.tombstone_entries
        self.tied += more.tied

    def new_entries(self, ordinals: dict[str, int]) -> Entries | None:
        """Return the index entries of a batch, given the ordinals of its files."""
        parts = [
            replace(entries, file=np.full(len(entries), ordinals[path], np.int32))
            for path, entries in self.entries.items()
        ]
        parts += self.tombstone_entries
        return concat_entries(parts) if parts else None


@dataclass(frozen=True)
class _WriteRows:
    """The task: everything in it can be pickled."""

    mirror: TableMetadata
    mirror_io: dict[str, str]
    tombstones: TableMetadata
    tombstones_io: dict[str, str]
    shape: Shape
    hash_keys: KeyHasher | None  # None: there is no index to be kept
    # Paths of files by their ordinals in the index; None: they are named by their paths.
    index_files: dict[str, str] | None
    stamp: tuple[tuple[str, object], ...]
    # What is to be done to the batches before.
    first: Task | None
    # When tombstones are written, for the index.
    written_seconds: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for written in self._write_portions(batches):
            yield pa.RecordBatch.from_pydict({"written": [pickle.dumps(written)]})

    def write_here(self, rows: pa.Table) -> list[Written]:
        """Do in this process what is else done in tasks."""
        return list(self._write_portions(rows.combine_chunks().to_batches()))

    def _write_portions(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Written]:
        # Each key is here once, so that rows can be written portion by portion.
        for rows in in_portions(batches if self.first is None else self.first(batches)):
            yield self._write(rows)

    def _write(self, rows: pa.Table) -> Written:
        rows = self._with_settled_ties(rows)
        replaced = _of(rows, _CHANGES, (cols.ROW_FILE, cols.ROW_POSITION))
        sequence = self.shape.sequence
        tied = pc.min_max(_of(rows, (TIE,), sequence)[sequence[0]])
        ends = [end for end in tied.as_py().values() if end is not None]
        written = Written(_tally(rows), _positions(replaced), tied=ends)
        self._write_upserts(_of(rows, (UPSERT,), self.shape.columns.names), written)
        self._write_tombstones(_of(rows, (REMOVE, ABSENT), self.shape.decisive), written)
        return written

    def _with_settled_ties(self, rows: pa.Table) -> pa.Table:
        """Compare ties with the rows they would replace: equal ones change nothing."""
        places = np.flatnonzero(pc.equal(rows[cols.DISPOSITION], TIE).to_numpy())
        if not len(places):
            return rows
        is_decided = cols.WINS_TIE in rows.column_names
        if is_decided:
            wins = rows[cols.WINS_TIE].to_numpy()[places] == 1
        else:
            wins = np.ones(len(places), np.bool_)
        ties = rows.take(pa.array(places[wins]))
        io = load_file_io(self.mirror_io, self.mirror.location)
        most_rows = None if is_decided else _MOST_ROWS
        schema = self.mirror.schema()
        is_new = wins.copy()
        is_new[wins] = ~_equal_rows(schema, io, ties, self.shape, self._path_of, most_rows)
        dispositions = np.array(rows[cols.DISPOSITION].to_pylist(), object)
        dispositions[places] = np.where(is_new, UPSERT if is_decided else TIE, REPEAT)
        at = rows.column_names.index(cols.DISPOSITION)
        return rows.set_column(at, cols.DISPOSITION, pa.array(dispositions, pa.string()))

    def _path_of(self, file: str) -> str | None:
        """The index names files by their ordinals, a scan by their paths."""
        return file if self.index_files is None else self.index_files.get(file)

    def _write_upserts(self, upserts: pa.Table, written: Written) -> None:
        if not len(upserts):
            return
        io = load_file_io(self.mirror_io, self.mirror.location)
        for file in write_rows(self.mirror, io, _sorted(upserts, self.shape.keys)):
            written.data_files.append(file.data_file)
            if self.hash_keys is not None:
                positions = np.arange(file.data_file.record_count)
                entries = self._entries(self.hash_keys, file.rows, 0, positions)
                written.entries[file.data_file.file_path] = entries

    def _write_tombstones(self, tombstones: pa.Table, written: Written) -> None:
        if not len(tombstones):
            return
        if self.hash_keys is not None:
            written.tombstone_entries.append(
                self._entries(self.hash_keys, tombstones, TOMBSTONE, self.written_seconds)
            )
        for name, value in self.stamp:
            stamps = pa.array([value] * len(tombstones))
            tombstones = tombstones.append_column(name, stamps)
        io = load_file_io(self.tombstones_io, self.tombstones.location)
        written.tombstones += write_data_files(self.tombstones, io, tombstones)

    def _entries(self, hash_keys: KeyHasher, rows: pa.Table, file: int, positions: Any) -> Entries:
        hashes = hash_keys([rows[key] for key in self.shape.keys])
        sequence = encode_sequences([rows[name] for name in self.shape.sequence])
        return make_entries(hashes.first, hashes.second, file, positions, sequence)


def _equal_rows(
    schema: Schema,
    io: FileIO,
    events: pa.Table,
    shape: Shape,
    path_of: Callable[[str], str | None],
    most_rows: int | None = _MOST_ROWS,
) -> npt.NDArray[np.bool_]:
    """Tell which events are the mirror's rows just so; False also where that is not known.

    Args:
        events: with ROW_FILE and ROW_POSITION.
        path_of: gives the path of a file as events name it, or None.
        most_rows: how many may be read for it; None: as many as it takes.
    """
    is_equal = np.zeros(len(events), np.bool_)
    # Of columns that the changelog lacks now, only values are compared.
    missing = [name for name in shape.missing if events[name].null_count < len(events)]
    columns = [*(field.name for field in shape.compared), *missing]
    files = events[cols.ROW_FILE].combine_chunks().dictionary_encode()
    numbers = np.asarray(files.indices)
    positions = events[cols.ROW_POSITION].to_numpy()
    # Sorted once, so that each file's events are a slice, however many files there are.
    order = np.lexsort((positions, numbers))
    sorted_events = events.select(columns).take(pa.array(order))
    # Where nothing is nested, equal rows are known at once: only a map tells -0.0 from 0.0.
    is_flat = not any(pa.types.is_nested(kind) for kind in sorted_events.schema.types)
    ends = np.cumsum(np.bincount(numbers, minlength=len(files.dictionary))).tolist()
    paths = map(path_of, files.dictionary.to_pylist())
    for path, start, end in zip(paths, [0, *ends], ends, strict=False):
        if path is None:
            continue
        places, wanted = order[start:end], sorted_events.slice(start, end - start)
        try:
            rows, read = _rows_at(schema, io, path, positions[places], wanted, most_rows)
        except (OSError, pa.ArrowException):
            continue
        if most_rows is not None:
            most_rows -= read
        if rows is not None:
            pairs = zip(rows.to_pylist(), wanted.to_pylist(), strict=True)
            filled = (
                (row, event | {name: row[name] for name in missing if event[name] is None})
                for row, event in pairs
            )
            is_equal[places] = [
                (is_flat and row == event) or _are_same(row, event) for row, event in filled
            ]
    return is_equal


def _are_same(one: Any, other: Any, *, in_map: bool = False) -> bool:
    """Tell whether two values are the same to `transforms.latest`.

    NaN is NaN, as to Spark, and -0.0 is 0.0; but not inside a map, which is compared as JSON.
    """
    if isinstance(one, float) and isinstance(other, float):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return one == other and (not in_map or math.copysign(1, one) == math.copysign(1, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            _are_same(value, other[name], in_map=in_map) for name, value in one.items()
        )
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        # Arrow gives the entries of a map as tuples.
        in_map = in_map or isinstance(one, tuple)
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(_are_same(*pair, in_map=in_map) for pair in pairs)
    return bool(one == other)


def _rows_at(
    schema: Schema, io: FileIO, path: str, positions: Any, wanted: pa.Table, most_rows: int | None
) -> tuple[pa.Table | None, int]:
    """Read rows of a data file, given by rising positions; also say how many were read for it."""
    with io.new_input(path).open(seekable=True) as stream:
        file = pq.ParquetFile(stream)
        named = names_by_id(file.schema_arrow)
        ids = [schema.find_field(name).field_id for name in wanted.column_names]
        if not named.keys() >= set(ids):
            return None, 0
        names = [named[field_id] for field_id in ids]
        parts, start, read = [], 0, 0
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            here = positions[(positions >= start) & (positions < start + rows)] - start
            if len(here):
                read += rows
                if most_rows is not None and read > most_rows:
                    return None, read
                chosen = file.read_row_group(group, columns=names).select(names)
                parts.append(chosen.take(pa.array(here)))
            start += rows
    return pa.concat_tables(parts).rename_columns(wanted.column_names).cast(wanted.schema), read


def _of(rows: pa.Table, dispositions: Sequence[str], columns: Sequence[str]) -> pa.Table:
    """Return some columns of the rows that come to these ends."""
    chosen = pc.is_in(rows[cols.DISPOSITION], pa.array(dispositions))
    return rows.select(list(columns)).filter(chosen)


def _positions(replaced: pa.Table) -> dict[str, BitMap64]:
    """Return the positions of replaced rows by their files."""
    replaced = replaced.filter(pc.is_valid(replaced[cols.ROW_FILE]))
    by_file = replaced.group_by(cols.ROW_FILE).aggregate([(cols.ROW_POSITION, "list")])
    positions = by_file[f"{cols.ROW_POSITION}_list"]
    return {
        file: BitMap64(here.values.to_numpy())
        for file, here in zip(by_file[cols.ROW_FILE].to_pylist(), positions, strict=True)
    }


def _tally(rows: pa.Table) -> dict[str, Tally]:
    sums = [([], "count_all"), *((name, "sum") for name in cols.SUMMED)]
    counted = rows.group_by(cols.DISPOSITION).aggregate(sums).to_pylist()
    return {
        row[cols.DISPOSITION]: Tally(
            row["count_all"], *(row[f"{name}_sum"] or 0 for name in cols.SUMMED)
        )
        for row in counted
    }


def _sorted(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Sort by key, so that files' bounds are narrow and columns compress."""
    sortable = all(
        pa.types.is_integer(rows[key].type)
        or pa.types.is_string(rows[key].type)
        or pa.types.is_temporal(rows[key].type)
        for key in keys
    )
    return rows.sort_by([(key, "ascending") for key in keys]) if sortable else rows


def write_changes(
    changes: Decided | DecidedHere,
    shape: Shape,
    mirror: Table,
    tombstones: Table,
    stamp: dict[str, object],
    root: Root | None,
    written_at: datetime,
) -> Written:
    """Write a batch in its tasks, or here if its events are; nothing is committed.

    Args:
        changes: each key once, with the rank that says what is done, and where its row is.
        stamp: what every tombstone carries beside key and sequence.
        root: of the index that is to be kept; None if there is none.
    """
    settles_ties = isinstance(changes, Decided) and cols.WINS_TIE in changes.frame.columns
    task = _WriteRows(
        _without_history(mirror.metadata),
        dict(mirror.io.properties),
        _without_history(tombstones.metadata),
        dict(tombstones.io.properties),
        shape,
        root.hasher if root else None,
        None if root is None else _index_files(root, all_files=settles_ties),
        tuple(stamp.items()),
        changes.task,
        int(written_at.timestamp()),
    )
    written = Written()
    if isinstance(changes, DecidedHere):
        # Errors of a store are told as those of tasks are.
        (parts,) = LocalTasks().run(task.write_here, [changes.newest])
    else:
        parts = list(_write_in_tasks(changes, shape, task))
    for part in parts:
        written.add(part)
    return written


def _write_in_tasks(changes: Decided, shape: Shape, task: _WriteRows) -> Iterator[Written]:
    final = changes.frame
    if changes.task is None:
        final = final.select(
            *(tr.final_value(name, shape).alias(name) for name in shape.columns.names),
            *(cols.RANK, cols.DISPOSITION, cols.ROW_FILE, cols.ROW_POSITION, *cols.SUMMED),
            *(name for name in final.columns if name == cols.WINS_TIE),
        )
    for payload in map_batches(final, task, _RESULT).toArrow()["written"]:
        yield pickle.loads(payload.as_py())  # noqa: S301 - of our own tasks


def _index_files(root: Root, *, all_files: bool) -> dict[str, str]:
    """Return the paths of files in which rows of repeated events may lie.

    An event that is sent again is mostly one of a moment ago. To all tasks of a batch, all paths of
    an old mirror are sent only if events are known to contradict merged ones.
    """
    most = len(root.files) if all_files else _RECENT_FILES
    first = max(0, len(root.files) - most)
    return {str(first + number): path for number, path in enumerate(root.files[first:])}


def _without_history(metadata: TableMetadata) -> TableMetadata:
    """Return what a writer needs of a table; a long history would be sent to every task."""
    nothing: dict[str, object] = {
        "snapshots": [],
        "snapshot_log": [],
        "metadata_log": [],
        "statistics": [],
        "refs": {},
    }
    return metadata.model_copy(update=nothing)
