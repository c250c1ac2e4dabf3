"""Changes as files: new rows as data files, old rows as deletion vectors, one commit.

The tasks write; what comes back to the driver is small: files, bitmaps, index entries.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import load_file_io
from pyiceberg.table.metadata import TableMetadata
from pyroaring import BitMap64
from pyspark.sql import types as T

from neve.index.entries import TOMBSTONE, Entries, concat_entries, make_entries
from neve.index.hashing import KeyHasher
from neve.index.sequences import encode_sequences
from neve.lake.data_files import write_data_files, write_rows
from neve.lake.frames import map_batches
from neve.merge import columns as cols
from neve.merge import transforms as tr
from neve.merge.decision import ABSENT, REMOVE, TIE, UPSERT
from neve.merge.repeats import MOST_EVENTS
from neve.merge.report import Tally
from neve.merge.shape import Shape

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

    from neve.merge.locators import Decided, Task

_RESULT = T.StructType(
    [
        T.StructField("kind", T.StringType()),
        T.StructField("name", T.StringType()),
        T.StructField("payload", T.BinaryType()),
    ]
)
_FILE, _VECTOR, _ENTRIES, _BURIED, _BURIED_ENTRIES = "file", "vector", "entries", "buried", "graves"
_TALLY, _TIES = "tally", "ties"
_CHANGES = (UPSERT, REMOVE, ABSENT, tr.DUPLICATE)


@dataclass
class Written:
    """What the tasks of a batch wrote."""

    data_files: list[DataFile] = field(default_factory=list)
    # By the mirror's file, as the locator named it.
    deleted: dict[str, BitMap64] = field(default_factory=dict)
    tombstones: list[DataFile] = field(default_factory=list)
    # Index entries by new file's path, still without their files' ordinals.
    entries: dict[str, pa.Table] = field(default_factory=dict)
    buried: list[pa.Table] = field(default_factory=list)
    # Events of a sequence that the mirror has, unless they are many.
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
    hash_keys: KeyHasher | None  # None: there is no index to be kept
    stamp: tuple[tuple[str, object], ...]
    applied: tuple[str, ...]
    # What is to be done to the batches before.
    first: Task | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        ready = batches if self.first is None else self.first(batches)
        found = [batch for batch in ready if len(batch)]
        if not found:
            return
        everything = pa.Table.from_batches(found)
        results = list(_tallies(everything))
        if TIE not in self.applied:
            results += self._ties(everything)
        chosen = pc.is_in(everything[cols.DISPOSITION], pa.array(self.applied))
        rows = everything.filter(chosen)
        results += self._vectors(rows)
        rows = rows.filter(pc.not_equal(rows[cols.DISPOSITION], tr.DUPLICATE))
        results += [*self._upserts(rows), *self._graves(rows)]
        kinds, labels, payloads = zip(*results, strict=True) if results else ((), (), ())
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(kinds, pa.string()),
                pa.array(labels, pa.string()),
                pa.array(payloads, pa.binary()),
            ],
            names=["kind", "name", "payload"],
        )

    def _ties(self, rows: pa.Table) -> Iterator[tuple[str, str, bytes]]:
        ties = rows.filter(pc.equal(rows[cols.DISPOSITION], TIE))
        if 0 < len(ties) <= MOST_EVENTS:
            yield _TIES, "", _bytes(ties.select([*self.columns, *cols.OF_TIE]))

    def _upserts(self, rows: pa.Table) -> Iterator[tuple[str, str, bytes]]:
        upserts = rows.filter(pc.not_equal(rows[cols.RANK], tr.DELETE_RANK))
        if not len(upserts):
            return
        io = load_file_io(self.mirror_io, self.mirror.location)
        ordered = _sorted(upserts.select(list(self.columns)), self.keys)
        for written in write_rows(self.mirror, io, ordered):
            path = written.data_file.file_path
            yield _FILE, path, pickle.dumps(written.data_file)
            if self.hash_keys is not None:
                yield _ENTRIES, path, self._entries(self.hash_keys, written.rows)

    def _vectors(self, rows: pa.Table) -> Iterator[tuple[str, str, bytes]]:
        replaced = rows.filter(pc.is_valid(rows[cols.ROW_FILE]))
        for file in pc.unique(replaced[cols.ROW_FILE]).to_pylist():
            here = replaced.filter(pc.equal(replaced[cols.ROW_FILE], file))
            positions = BitMap64(here[cols.ROW_POSITION].to_numpy())
            yield _VECTOR, file, positions.serialize()

    def _graves(self, rows: pa.Table) -> Iterator[tuple[str, str, bytes]]:
        deletes = rows.filter(pc.equal(rows[cols.RANK], tr.DELETE_RANK))
        if not len(deletes):
            return
        buried = deletes.select(list(dict.fromkeys((*self.keys, *self.sequence))))
        if self.hash_keys is not None:
            yield _BURIED_ENTRIES, "", self._entries(self.hash_keys, buried)
        for name, value in self.stamp:
            buried = buried.append_column(name, pa.array([value] * len(buried)))
        io = load_file_io(self.tombstones_io, self.tombstones.location)
        for file in write_data_files(self.tombstones, io, buried):
            yield _BURIED, file.file_path, pickle.dumps(file)

    def _entries(self, hash_keys: KeyHasher, rows: pa.Table) -> bytes:
        hashes = hash_keys([rows[key] for key in self.keys])
        columns = {"first": pa.array(hashes.first)}
        if hashes.second is not None:
            columns["second"] = pa.array(hashes.second)
        columns["sequence"] = encode_sequences([rows[name] for name in self.sequence])
        return _bytes(pa.table(columns))


def _tallies(rows: pa.Table) -> Iterator[tuple[str, str, bytes]]:
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
    hash_keys: KeyHasher | None,
    *,
    with_ties: bool,
) -> Written:
    """Write a batch in its tasks; nothing is committed.

    Args:
        changes: each key once, with the rank that says what is done, and where its row is.
        stamp: what every tombstone carries beside key and sequence.
        hash_keys: of the index that is to be kept; None if there is none.
        with_ties: events of a sequence that the mirror has are among the changes, and have won.
    """
    task = _WriteRows(
        _without_history(mirror.metadata),
        dict(mirror.io.properties),
        _without_history(tombstones.metadata),
        dict(tombstones.io.properties),
        tuple(shape.columns.names),
        shape.keys,
        shape.sequence,
        hash_keys,
        tuple(stamp.items()),
        (*_CHANGES, TIE) if with_ties else _CHANGES,
        changes.task,
    )
    final = changes.frame
    if changes.task is None:
        final = final.select(
            *(tr.final_value(name, shape).alias(name) for name in shape.columns.names),
            *(cols.RANK, cols.DISPOSITION, *cols.OF_TIE, *cols.SUMMED),
        )
    written = Written()
    for row in map_batches(final, task, _RESULT).toArrow().to_pylist():
        _collect(written, row["kind"], row["name"], row["payload"])
    return written


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
    elif kind == _BURIED:
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
        written.buried.append(_table(payload))


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
    runs += [_run(table, TOMBSTONE, -1) for table in written.buried]
    return concat_entries(runs) if runs else None


def _run(table: pa.Table, file: int, positions: Any) -> Entries:
    second = table["second"].to_numpy() if "second" in table.column_names else None
    return make_entries(table["first"].to_numpy(), second, file, positions, table["sequence"])
