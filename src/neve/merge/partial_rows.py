"""What partial events meet, by the index: the rows' places, sequences and values.

A partial event lacks values that the mirror's row has. The index says where the row is, and the
task reads these values there: of row groups that such rows are in, the columns that may lack
values, and nothing of others. What is added is what a join with the mirror would add, so that all
else is decided by the same rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_type

from neve.errors import UnsupportedError
from neve.index.columns import names_by_id
from neve.index.entries import Integers, Mask
from neve.index.search import SearchResult
from neve.index.sequences import decode_sequences, encode_sequences
from neve.lake.uuids import has_uuids
from neve.merge import columns as cols
from neve.merge import transforms as tr
from neve.merge.key_lookup import KeyLookup, with_key_and_without
from neve.merge.shape import Shape

_FILES_AT_ONCE = 8
# Values that a row lacked may be long, and Spark takes no batch with 2 GiB of texts.
_BATCH_BYTES = 256 * 1024 * 1024
_LARGE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}


def require_readable(schema: Schema, shape: Shape) -> None:
    """Refuse columns whose values Spark has in another form than data files.

    Raises:
        UnsupportedError: a column that may lack values holds uuids.
    """
    types = schema_to_pyarrow(schema, include_field_ids=False)
    for name in shape.marked:
        if name in types.names and has_uuids(types.field(name).type):
            raise UnsupportedError(f"column {name} has uuids, and partial events may lack it")


@dataclass(frozen=True)
class LocateRows:
    """The task: adds to each key's folded events what the mirror has. It can be pickled."""

    keys: KeyLookup
    shape: Shape
    # Of the mirror.
    schema: Schema
    files: tuple[str, ...]

    @cached_property
    def added(self) -> list[T.StructField]:
        """The columns that are added, in order."""
        columns = self.shape.columns
        sequence = T.StructType(
            [T.StructField(name, columns[name].dataType) for name in self.shape.sequence]
        )
        return [
            T.StructField(cols.TOMBSTONE, sequence),
            T.StructField(cols.CURRENT, sequence),
            T.StructField(cols.ROW_FILE, T.StringType()),
            T.StructField(cols.ROW_POSITION, T.LongType()),
            T.StructField(cols.NUMBER, T.IntegerType()),
            T.StructField(cols.SEVERAL, T.IntegerType()),
            T.StructField(cols.CACHE_HITS, T.LongType()),
            T.StructField(cols.INDEX_BROKEN, T.LongType()),
            T.StructField(cols.INDEX_AWAY, T.LongType()),
            *(
                T.StructField(cols.BASE + name, columns[name].dataType)
                for name in self.shape.marked
            ),
        ]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for part in with_key_and_without(batch):
                if part.column(cols.OTHER).null_count:
                    yield from self._located(part)
                else:
                    yield self._with(part, {cols.NUMBER: pa.array(np.ones(len(part), np.int32))})

    def _located(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        hits, counted = self.keys.search(batch)
        is_row, count = hits.file >= 0, len(batch)
        chosen = np.flatnonzero(is_row & self._needs_row(batch, hits))
        rows = self._read(hits.file[chosen], hits.position[chosen])
        # An entry has the greatest sequence of the row and its tombstones. The row's own is known
        # where the row was read; elsewhere only that what was sent is newer.
        current = self._as_sequence(hits.sequence, is_row)
        is_tombstone = hits.has_entry & ~is_row
        if len(chosen):
            own = encode_sequences([rows[name] for name in self.shape.sequence])
            known = hits.sequence.take(pa.array(chosen)).cast(own.type)
            is_tombstone[chosen] = np.asarray(pc.less(own, known), np.bool_)
            read = pa.StructArray.from_arrays(
                [rows[name] for name in self.shape.sequence], fields=list(current.type)
            )
            current = pa.concat_arrays([current, read]).take(_replacing(count, chosen))
        columns = {
            cols.TOMBSTONE: self._as_sequence(hits.sequence, is_tombstone),
            cols.CURRENT: current,
            cols.ROW_FILE: pa.array(hits.file, mask=~is_row).cast(pa.string()),
            cols.ROW_POSITION: pa.array(hits.position, mask=~is_row),
            cols.NUMBER: pa.array(np.ones(count, np.int32)),
            cols.SEVERAL: pa.array(hits.several.astype(np.int32)),
            **counted,
            **{cols.BASE + name: _spread(rows[name], chosen, count) for name in self.shape.marked},
        }
        read_bytes = sum(column.nbytes for column in rows.values())
        step = -(-count // (1 + read_bytes // _BATCH_BYTES))
        for start in range(0, count, step):
            some = {name: column.slice(start, step) for name, column in columns.items()}
            yield self._with(batch.slice(start, step), some)

    def _needs_row(self, batch: pa.RecordBatch, hits: SearchResult) -> Mask:
        """Tell for which events the mirror's row has to be read, among those that have one."""
        count = len(batch)
        own = encode_sequences([batch.column(name) for name in self.shape.sequence])
        is_delete = np.asarray(pc.equal(batch.column(cols.RANK), tr.DELETE_RANK), np.bool_)
        is_late = np.asarray(pc.fill_null(pc.less(own, hits.sequence), False), np.bool_)
        lacks = np.zeros(count, np.bool_)
        for name in self.shape.marked:
            known = batch.column(cols.KNOWN + name)
            at = [pc.struct_field(known, ["at", part]) for part in self.shape.sequence]
            valid = np.flatnonzero(np.asarray(at[0].is_valid(), np.bool_))
            sent = encode_sequences([part.take(pa.array(valid)) for part in at])
            known = hits.sequence.take(pa.array(valid))
            is_newer = np.zeros(count, np.bool_)
            is_newer[valid] = np.asarray(
                pc.fill_null(pc.greater_equal(sent, known), True), np.bool_
            )
            lacks |= ~is_newer
        return lacks & ~is_delete & ~is_late

    def _as_sequence(self, sequences: Any, mask: Mask) -> Any:
        """Return sequences of the index as Spark has them, NULL outside the mask."""
        fields = list(to_arrow_type(self.added[0].dataType))
        wanted = pc.if_else(pa.array(mask), sequences, pa.scalar(None, sequences.type))
        columns = decode_sequences(wanted, [field.type for field in fields])
        return pa.StructArray.from_arrays(columns, fields=fields, mask=pa.array(~mask))

    def _read(self, files: Any, positions: Integers) -> dict[str, Any]:
        """Read the sequence and the values of rows, in the order in which they are asked for."""
        names = [*self.shape.sequence, *self.shape.marked]
        kinds = {name: to_arrow_type(self.shape.columns[name].dataType) for name in names}
        kinds |= {name: _LARGE.get(kinds[name], kinds[name]) for name in self.shape.marked}
        wanted = pa.schema(list(kinds.items()))
        if not len(files):
            return {field.name: pa.nulls(0, field.type) for field in wanted}
        io = load_file_io(self.keys.io_properties, self.files[0])
        order = np.lexsort((positions, files))
        ordinals, starts = np.unique(files[order], return_index=True)
        places = np.split(positions[order], starts[1:])

        def read(number: int) -> pa.Table:
            path = self.files[int(ordinals[number])]
            return _rows_at(io, path, places[number], self._ids(names), wanted)

        with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
            tables = list(pool.map(read, range(len(ordinals))))
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        table = pa.concat_tables(tables)
        return {
            name: pa.concat_arrays(table.column(name).chunks).take(pa.array(back)) for name in names
        }

    def _ids(self, names: Iterable[str]) -> dict[str, int]:
        by_name = {field.name: field.field_id for field in self.schema.fields}
        return {name: by_name[name] for name in names if name in by_name}

    def _with(self, batch: pa.RecordBatch, columns: Mapping[str, Any]) -> pa.RecordBatch:
        for field in self.added:
            kind = to_arrow_type(field.dataType)
            column = columns.get(field.name)
            column = pa.nulls(len(batch), kind) if column is None else column.cast(kind)
            batch = batch.append_column(field.name, column)
        return batch


def _replacing(count: int, chosen: Integers) -> pa.Array:
    """Return places that take further values, behind the first, for those that are chosen."""
    places = np.arange(count)
    places[chosen] = count + np.arange(len(chosen))
    return pa.array(places)


def _spread(values: Any, chosen: Integers, count: int) -> Any:
    """Put values at the chosen places, NULL elsewhere."""
    places = np.full(count, -1, np.int64)
    places[chosen] = np.arange(len(chosen))
    return values.take(pa.array(places, mask=places < 0))


def _rows_at(
    io: FileIO, path: str, positions: Integers, ids: Mapping[str, int], wanted: pa.Schema
) -> pa.Table:
    """Read rows of a data file, given by rising positions; columns that it lacks are NULL."""
    with io.new_input(path).open(seekable=True) as stream:
        file = pq.ParquetFile(stream)
        by_id = names_by_id(file.schema_arrow)
        names = {name: by_id[number] for name, number in ids.items() if number in by_id}
        parts, start = [], 0
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            here = positions[(positions >= start) & (positions < start + rows)] - start
            if len(here):
                read = file.read_row_group(group, columns=list(names.values()))
                parts.append(read.take(pa.array(here)))
            start += rows
    table = pa.concat_tables(parts)
    columns = [
        table.column(names[field.name]).cast(field.type)
        if field.name in names
        else pa.nulls(len(table), field.type)
        for field in wanted
    ]
    return pa.table(columns, schema=wanted)
