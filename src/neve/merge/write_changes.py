"""Changes as files: new rows as data files, old rows as deletion vectors, one commit.

The tasks write; what comes back to the driver is small: files, bitmaps, index entries.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import load_file_io
from pyiceberg.table.metadata import TableMetadata
from pyroaring import BitMap64
from pyspark.sql import types as T

from neve.index.entries import TOMBSTONE, Entries, concat_entries, make_entries
from neve.index.hashing import compute_pk_hash
from neve.index.root import Root
from neve.index.sequences import encode_sequences
from neve.lake.data_files import write_data_files, write_rows
from neve.lake.frames import in_portions, map_batches
from neve.merge import columns as cols
from neve.merge import transforms as tr
from neve.merge.decision import ABSENT, REMOVE, REPEAT, TIE, UPSERT
from neve.merge.repeats import MOST_ROWS, equal_rows
from neve.merge.report import Tally
from neve.merge.shape import Shape

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame

    from neve.merge.locators import Decided, Task

_RESULT = T.StructType(
    [
        T.StructField("kind", T.StringType()),
        T.StructField("name", T.StringType()),
        T.StructField("payload", T.BinaryType()),
    ]
)
_FILE, _VECTOR, _ENTRIES, _TALLY, _TIES = "file", "vector", "entries", "tally", "ties"
_TOMBSTONES, _TOMBSTONE_ENTRIES = "tombstones", "tombstone entries"
_CHANGES = (UPSERT, REMOVE, ABSENT, tr.DUPLICATE)
_RECENT_FILES = 1000
_Result: TypeAlias = tuple[str, str, bytes]


@dataclass
class Written:
    """What the tasks of a batch wrote."""

    data_files: list[DataFile] = field(default_factory=list)
    # By the mirror's file, as the locator named it.
    deleted: dict[str, BitMap64] = field(default_factory=dict)
    tombstones: list[DataFile] = field(default_factory=list)
    # Index entries by new file's path, still without their files' ordinals.
    entries: dict[str, pa.Table] = field(default_factory=dict)
    tombstone_entries: list[pa.Table] = field(default_factory=list)
    # The least and the greatest of the first sequence column of unresolved ties.
    ties: list[pa.Table] = field(default_factory=list)
    # How many keys came to which end.
    tally: dict[str, Tally] = field(default_factory=dict)


@dataclass(frozen=True)
class _WriteRows:
    """The task: everything in it can be pickled."""

    mirror: TableMetadata
    mirror_io: dict[str, str]
    tombstones: TableMetadata
    tombstones_io: dict[str, str]
    columns: tuple[str, ...]
    keys: tuple[str, ...]
    sequence: tuple[str, ...]
    # Of the index that is to be kept: paths of files by their ordinals; None if there is none.
    index_files: dict[str, str] | None
    seed: int
    stamp: tuple[tuple[str, object], ...]
    # What is to be done to the batches before.
    first: Task | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Each key is here once, so that rows can be written portion by portion.
        for rows in in_portions(batches if self.first is None else self.first(batches)):
            kinds, labels, payloads = zip(*self._write(rows), strict=True)
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array(kinds, pa.string()),
                    pa.array(labels, pa.string()),
                    pa.array(payloads, pa.binary()),
                ],
                names=["kind", "name", "payload"],
            )

    def _write(self, rows: pa.Table) -> Iterator[_Result]:
        rows = self._with_settled_ties(rows)
        yield from _tallies(rows)
        yield from self._tied_between(rows)
        yield from _vectors(_of(rows, _CHANGES, (cols.ROW_FILE, cols.ROW_POSITION)))
        yield from self._upserts(_of(rows, (UPSERT,), self.columns))
        decided = tuple(dict.fromkeys((*self.keys, *self.sequence)))
        yield from self._tombstones(_of(rows, (REMOVE, ABSENT), decided))

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
        most_rows = None if is_decided else MOST_ROWS
        schema = self.mirror.schema()
        is_new = wins.copy()
        is_new[wins] = ~equal_rows(schema, io, ties, self.columns, self._path_of, most_rows)
        dispositions = np.array(rows[cols.DISPOSITION].to_pylist(), object)
        dispositions[places] = np.where(is_new, UPSERT if is_decided else TIE, REPEAT)
        at = rows.column_names.index(cols.DISPOSITION)
        return rows.set_column(at, cols.DISPOSITION, pa.array(dispositions, pa.string()))

    def _path_of(self, file: str) -> str | None:
        """The index names files by their ordinals, a scan by their paths."""
        return file if self.index_files is None else self.index_files.get(file)

    def _tied_between(self, rows: pa.Table) -> Iterator[_Result]:
        ties = rows.filter(pc.equal(rows[cols.DISPOSITION], TIE))
        if len(ties):
            ends = pc.min_max(ties[self.sequence[0]])
            yield _TIES, "", _bytes(pa.table({"ends": pa.array([ends["min"], ends["max"]])}))

    def _upserts(self, upserts: pa.Table) -> Iterator[_Result]:
        if not len(upserts):
            return
        io = load_file_io(self.mirror_io, self.mirror.location)
        ordered = _sorted(upserts, self.keys)
        for written in write_rows(self.mirror, io, ordered):
            path = written.data_file.file_path
            yield _FILE, path, pickle.dumps(written.data_file)
            if self.index_files is not None:
                yield _ENTRIES, path, self._entries(written.rows)

    def _tombstones(self, tombstones: pa.Table) -> Iterator[_Result]:
        if not len(tombstones):
            return
        if self.index_files is not None:
            yield _TOMBSTONE_ENTRIES, "", self._entries(tombstones)
        for name, value in self.stamp:
            stamps = pa.array([value] * len(tombstones))
            tombstones = tombstones.append_column(name, stamps)
        io = load_file_io(self.tombstones_io, self.tombstones.location)
        for file in write_data_files(self.tombstones, io, tombstones):
            yield _TOMBSTONES, file.file_path, pickle.dumps(file)

    def _entries(self, rows: pa.Table) -> bytes:
        hashes = compute_pk_hash([rows[key] for key in self.keys], self.seed)
        columns = {"first": pa.array(hashes.first)}
        if hashes.second is not None:
            columns["second"] = pa.array(hashes.second)
        columns["sequence"] = encode_sequences([rows[name] for name in self.sequence])
        return _bytes(pa.table(columns))


def _of(rows: pa.Table, dispositions: Sequence[str], columns: Sequence[str]) -> pa.Table:
    """Return some columns of the rows that come to these ends."""
    chosen = pc.is_in(rows[cols.DISPOSITION], pa.array(dispositions))
    return rows.select(list(columns)).filter(chosen)


def _vectors(rows: pa.Table) -> Iterator[_Result]:
    replaced = rows.filter(pc.is_valid(rows[cols.ROW_FILE]))
    if not len(replaced):
        return
    files = replaced[cols.ROW_FILE].combine_chunks().dictionary_encode()
    numbers = np.asarray(files.indices)
    positions = replaced[cols.ROW_POSITION].to_numpy()
    order = np.argsort(numbers, kind="stable")
    starts = np.searchsorted(numbers[order], np.arange(1, len(files.dictionary)))
    for file, places in zip(files.dictionary.to_pylist(), np.split(order, starts), strict=True):
        yield _VECTOR, file, BitMap64(positions[places]).serialize()


def _tallies(rows: pa.Table) -> Iterator[_Result]:
    counted = rows.group_by(cols.DISPOSITION).aggregate(
        [
            ([], "count_all"),
            *((name, "sum") for name in cols.SUMMED),
        ]
    )
    for row in counted.to_pylist():
        sums = (row[f"{name}_sum"] or 0 for name in cols.SUMMED)
        yield _TALLY, row[cols.DISPOSITION], pickle.dumps(Tally(row["count_all"], *sums))


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
    changes: Decided,
    shape: Shape,
    mirror: Table,
    tombstones: Table,
    stamp: dict[str, object],
    root: Root | None,
) -> Written:
    """Write a batch in its tasks; nothing is committed.

    Args:
        changes: each key once, with the rank that says what is done, and where its row is.
        stamp: what every tombstone carries beside key and sequence.
        root: of the index that is to be kept; None if there is none.
    """
    final = changes.frame
    task = _WriteRows(
        _without_history(mirror.metadata),
        dict(mirror.io.properties),
        _without_history(tombstones.metadata),
        dict(tombstones.io.properties),
        tuple(shape.columns.names),
        shape.keys,
        shape.sequence,
        None if root is None else _index_files(root, final),
        root.seed if root else 0,
        tuple(stamp.items()),
        changes.task,
    )
    if changes.task is None:
        final = final.select(
            *(tr.final_value(name, shape).alias(name) for name in shape.columns.names),
            *(cols.RANK, cols.DISPOSITION, cols.ROW_FILE, cols.ROW_POSITION, *cols.SUMMED),
            *(name for name in final.columns if name == cols.WINS_TIE),
        )
    written = Written()
    for row in map_batches(final, task, _RESULT).toArrow().to_pylist():
        _collect(written, row["kind"], row["name"], row["payload"])
    return written


def _index_files(root: Root, changes: DataFrame) -> dict[str, str]:
    """Return the paths of files in which rows of repeated events may lie.

    An event that is sent again is mostly one of a moment ago. To all tasks of a batch, all paths of
    an old mirror are sent only if events are known to contradict merged ones.
    """
    most = len(root.files) if cols.WINS_TIE in changes.columns else _RECENT_FILES
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


def _collect(written: Written, kind: str, name: str, payload: bytes) -> None:
    if kind == _FILE:
        written.data_files.append(pickle.loads(payload))  # noqa: S301 - of our own tasks
    elif kind == _TOMBSTONES:
        written.tombstones.append(pickle.loads(payload))  # noqa: S301 - of our own tasks
    elif kind == _VECTOR:
        positions = BitMap64.deserialize(payload)
        written.deleted[name] = written.deleted.get(name, BitMap64()) | positions
    elif kind == _TALLY:
        more: Tally = pickle.loads(payload)  # noqa: S301 - of our own tasks
        written.tally[name] = written.tally.get(name, Tally()).plus(more)
    elif kind == _TIES:
        written.ties.append(_table(payload))
    elif kind == _ENTRIES:
        written.entries[name] = _table(payload)
    else:
        written.tombstone_entries.append(_table(payload))


def _bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


def _table(payload: bytes) -> pa.Table:
    with pa.ipc.open_stream(payload) as stream:
        return stream.read_all()


def new_entries(written: Written, ordinals: dict[str, int]) -> Entries | None:
    """Return the index entries of a batch, given the ordinals of its files."""
    runs = [
        _run(table, ordinals[path], np.arange(len(table)))
        for path, table in written.entries.items()
    ]
    runs += [_run(table, TOMBSTONE, -1) for table in written.tombstone_entries]
    return concat_entries(runs) if runs else None


def _run(table: pa.Table, file: int, positions: Any) -> Entries:
    second = table["second"].to_numpy() if "second" in table.column_names else None
    return make_entries(table["first"].to_numpy(), second, file, positions, table["sequence"])
