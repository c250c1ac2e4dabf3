"""A table and its tombstones as plain files, changed by hand: no catalog, no JVM."""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import load_file_io
from pyiceberg.typedef import Record
from pyroaring import BitMap64

from neve.index.cache import BucketCache
from neve.index.columns import IndexedColumn, IndexedColumns
from neve.index.compaction import compact_buckets, with_compacted
from neve.index.entries import SEVERAL, TOMBSTONE
from neve.index.hashing import compute_pk_hash
from neve.index.refresh import build_root, refresh_root
from neve.index.root import Root
from neve.index.search import IndexReader
from neve.index.shuffle import Source
from neve.lake.live_files import FileChanges, LiveFile
from neve.lake.puffin import PuffinWriter
from neve.lake.spark_tasks import LocalTasks
from neve.lake.vectors import DeletionVector, encode_vector

_numbers = itertools.count()
MARKS = {TOMBSTONE: None, SEVERAL: "several"}
# When all tombstones were written, which their entries say instead of a position.
BURIED_SECONDS = 1_700_000_000
"""What stands in place of a file in `Workbench.contents`."""


@dataclass
class Files:
    """A snapshot: rows of each data file, the deleted positions, and the files of tombstones."""

    rows: dict[str, list[tuple[Any, Any]]] = field(default_factory=dict)
    deleted: dict[str, set[int]] = field(default_factory=dict)
    vectors: dict[str, DeletionVector] = field(default_factory=dict)
    buried: dict[str, list[tuple[Any, Any]]] = field(default_factory=dict)

    def live(self) -> list[tuple[Any, str, int, Any]]:
        """Return key, file, position and sequence of each row."""
        return [
            (key, path, position, sequence)
            for path, rows in self.rows.items()
            for position, (key, sequence) in enumerate(rows)
            if position not in self.deleted.get(path, ())
        ]

    def keys(self) -> set[Any]:
        return {row[0] for row in self.live()}

    def duplicate_keys(self) -> set[Any]:
        counts = Counter(row[0] for row in self.live())
        return {key for key, count in counts.items() if count > 1}

    def file(self, path: str) -> LiveFile:
        return LiveFile(path, 0, Record(), len(self.rows[path]), 1, self.vectors.get(path))

    def buried_files(self) -> list[LiveFile]:
        return [LiveFile(path, 0, Record(), len(rows), 1) for path, rows in self.buried.items()]


class Workbench:
    """Writes files, and makes indexes of them."""

    def __init__(self, directory: str, kind: pa.DataType, sequence: pa.DataType) -> None:
        self.directory = directory
        self.columns = IndexedColumns(
            (IndexedColumn("id", 1, kind),), (IndexedColumn("lsn", 2, sequence),)
        )
        self.source = Source(self.columns, self.columns, {}, f"{directory}/t__index")
        self.io = load_file_io({}, directory)
        self.now = Files()

    def snapshot(self) -> Files:
        return copy.deepcopy(self.now)

    def add(self, rows: list[tuple[Any, Any]]) -> None:
        self.now.rows[self.write(rows)] = rows

    def bury(self, rows: list[tuple[Any, Any]]) -> None:
        kinds = ["delete"] * len(rows) + ["truncate"]
        path = self.write([*rows, (None, rows[0][1])], kinds)
        self.now.buried[path] = rows

    def remove(self, keys: set[Any]) -> None:
        """Delete the rows of keys by vectors, each united with the one before it."""
        for key, path, position, _ in self.now.live():
            if key in keys:
                self.now.deleted.setdefault(path, set()).add(position)
        for path, positions in self.now.deleted.items():
            vector = self.now.vectors.get(path)
            if vector is None or vector.cardinality != len(positions):
                self.now.vectors[path] = self.write_vector(path, positions)

    def drop(self, paths: list[str]) -> None:
        for path in paths:
            self.now.rows.pop(path)
            self.now.deleted.pop(path, None)
            self.now.vectors.pop(path, None)

    def compact(self, paths: list[str]) -> None:
        moved = [(key, sequence) for key, path, _, sequence in self.now.live() if path in paths]
        self.drop(paths)
        if moved:
            self.add(moved)

    def write(self, rows: list[tuple[Any, Any]], kinds: list[str] | None = None) -> str:
        path = f"{self.directory}/{next(_numbers):06d}.parquet"
        fields, arrays = [], []
        # The sequence first, and under another name than the table's: ids say which is which.
        for column, name, place in (
            (self.columns.sequence[0], "was_lsn", 1),
            (self.columns.keys[0], "id", 0),
        ):
            metadata = {"PARQUET:field_id": str(column.field_id)}
            fields.append(pa.field(name, column.type, metadata=metadata))
            arrays.append(pa.array([row[place] for row in rows], column.type))
        if kinds is not None:
            fields.append(pa.field("neve_kind", pa.string()))
            arrays.append(pa.array(kinds))
            fields.append(pa.field("neve_merged_at", pa.timestamp("us", tz="UTC")))
            arrays.append(
                pa.array([BURIED_SECONDS * 1_000_000] * len(kinds), pa.timestamp("us", tz="UTC"))
            )
        pq.write_table(pa.table(arrays, schema=pa.schema(fields)), path, row_group_size=3)
        return path

    def write_vector(self, data_file: str, positions: set[int]) -> DeletionVector:
        path = f"{self.directory}/{next(_numbers):06d}.puffin"
        with self.io.new_output(path).create() as stream:
            writer = PuffinWriter(stream)
            blob = writer.add("deletion-vector-v1", encode_vector(BitMap64(positions)))
            writer.finish()
        return DeletionVector(
            data_file, path, blob.offset, blob.length, len(positions), writer.size
        )

    def build(self, runner: Any = None) -> Root:
        root = Root(
            table_uuid="u",
            snapshot_id=0,
            key_columns=self.columns.key_columns,
            sequence_columns=self.columns.sequence_names,
            sequence_type=self.columns.sequence_type,
            has_second_hash=self.columns.has_second_hash,
            bits=0,
        )
        files = [self.now.file(path) for path in self.now.rows]
        return build_root(runner or LocalTasks(), self.source, root, files, self.now.buried_files())

    def refresh(self, root: Root, before: Files, runner: Any = None) -> Root:
        now = self.now
        both = before.rows.keys() & now.rows.keys()
        changes = FileChanges(
            tuple(now.file(path) for path in now.rows if path not in before.rows),
            tuple(before.file(path) for path in before.rows if path not in now.rows),
            {
                path: (before.vectors.get(path), now.vectors.get(path))
                for path in sorted(both)
                if before.vectors.get(path) != now.vectors.get(path)
            },
        )
        added = [one for one in now.buried_files() if one.path not in before.buried]
        chosen = runner or LocalTasks()
        return refresh_root(lambda _: chosen, self.source, root, changes, added, now.buried_files)

    def contents(self, root: Root) -> dict[int, tuple[str | None, int, Any]]:
        """Return what an index says, by hash."""
        reader = IndexReader(root, self.io, BucketCache())
        found = {}
        for bucket in range(1 << root.bits):
            entries = reader.read_bucket(bucket, reader.root.bits)
            for number in range(len(entries)):
                file = int(entries.file[number])
                path = MARKS[file] if file < 0 else root.files[file]
                place = (path, int(entries.position[number]), entries.sequence[number].as_py())
                found[int(entries.first[number])] = place
        return found

    def wanted(self) -> dict[int, tuple[str | None, int, Any]]:
        """Say what an index built now must say: the place of a row, and the greatest sequence."""
        buried: dict[Any, Any] = {}
        for key, sequence in itertools.chain(*self.now.buried.values()):
            buried[key] = max(sequence, buried.get(key, sequence))
        wanted: dict[Any, tuple[str | None, int, Any]] = {
            key: (None, BURIED_SECONDS, sequence) for key, sequence in buried.items()
        }
        wanted_rows: set[Any] = set()
        for key, path, position, sequence in self.now.live():
            place = ("several", -1) if key in wanted_rows else (path, position)
            others = wanted.get(key, (None, -1, sequence))[2]
            wanted[key] = (*place, max(sequence, others))
            wanted_rows.add(key)
        hashes = self.hashes(list(wanted))
        encoded = [
            value.encode() if isinstance(value, str) else value for _, _, value in wanted.values()
        ]
        return {
            int(one): (path, position, sequence)
            for one, (path, position, _), sequence in zip(
                hashes, wanted.values(), encoded, strict=True
            )
        }

    def hashes(self, keys: list[Any]) -> np.ndarray[Any, Any]:
        return compute_pk_hash([pa.array(keys, self.columns.keys[0].type)]).first


def as_lists(result):
    """Return a search's result in a form that can be compared."""
    return [column.tolist() for column in (result.file, result.position, result.sequence)]


def compact(io, root, plan, location):
    """Merge generations as a task does, all buckets in one."""
    task = (root.to_json(), io.properties, plan, location, range(1 << plan.bits))
    return with_compacted(root, plan, [compact_buckets(*task)])
