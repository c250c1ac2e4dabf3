"""Read few rows of Parquet files here, without Spark, where it is certain what Spark would read.

Certain means: Parquet files with field ids, plain types (`plain_types.py`), no defaults. All else,
and all that is larger than the limits, raises `NeedsSparkError` before much was read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from neve.lake.metadata_json import field_names
from neve.lake.paths import local_path
from neve.lake.plain_types import NeedsSparkError, field_id, holds, spark_field
from neve.lake.positions import read_positions

if TYPE_CHECKING:
    from neve.lake.chosen_files import ChosenFile
    from neve.lake.manifests import FileEntry
    from neve.lake.metadata_json import MetadataJson

Positions: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

# Rows that are decoded at a time, of which few may be wanted.
_BATCH_ROWS = 8192
# Types whose partition values are in manifests as Arrow takes them.
_PLAIN_CONSTANTS = frozenset(
    ("boolean", "int", "long", "date", "timestamp", "timestamptz", "string", "binary")
)


@dataclass
class Allowance:
    """How much may still be read. Memory is bounded by `decoded_bytes` and twice `kept_bytes`."""

    files: int
    stored_bytes: int
    decoded_bytes: int
    rows: int
    kept_bytes: int

    def take(self, **amounts: int) -> None:
        """Raise NeedsSparkError where there is not so much left."""
        for name, amount in amounts.items():
            left = getattr(self, name) - amount
            if left < 0:
                raise NeedsSparkError(f"it exceeds the limit of {name.replace('_', ' ')}")
            setattr(self, name, left)

    def fresh(self) -> Allowance:
        """Return a copy that can be used up."""
        return Allowance(*(getattr(self, one.name) for one in fields(self)))


@dataclass(frozen=True)
class PlainRows:
    """Rows, and their positions in the file."""

    rows: pa.Table
    positions: Positions


class TableFiles(Protocol):
    """A table's metadata, and whole files or parts of them."""

    @property
    def metadata(self) -> MetadataJson: ...

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes: ...

    def read_many(self, paths: Sequence[str]) -> list[bytes]: ...


class PlainReader:
    """Reads rows of a table's files: the columns of a schema, found by their ids.

    Raises:
        NeedsSparkError: the schema has types that are not plain.
    """

    def __init__(self, table: TableFiles, schema_id: int, allowance: Allowance) -> None:
        self._table = table
        self._allowance = allowance
        self._fields: Sequence[Mapping[str, Any]] = table.metadata.schema(schema_id)["fields"]
        self.columns = StructType([spark_field(each) for each in self._fields])
        self.schema = numbered(to_arrow_schema(self.columns))
        self._specs = {each["spec-id"]: each["fields"] for each in table.metadata.partition_specs}
        self._nested_ids = {number for number, _ in field_names(self._fields)}
        self._contents: dict[str, pa.Buffer] = {}

    def fetch(self, files: Iterable[ChosenFile]) -> None:
        """Read files of other machines at the same time, since each costs a request."""
        far = {each.entry.path: each.entry for each in files if local_path(each.entry.path) is None}
        self._allowance.take(stored_bytes=sum(each.bytes for each in far.values()))
        self._contents = dict(
            zip(far, map(pa.py_buffer, self._table.read_many(list(far))), strict=True)
        )

    def rows(self, file: ChosenFile, positions: BitMap64 | None = None) -> PlainRows:
        """Return the rows at some positions, or all, that deletes do not hide.

        Raises:
            NeedsSparkError: only Spark can read the file, or it is too large.
        """
        if file.entry.format != "PARQUET":
            raise NeedsSparkError(f"a file has the format {file.entry.format}")
        self._allowance.take(files=1)
        hidden = self._hidden(file)
        try:
            with self._open(file.entry) as opened:
                return self._read(opened, file.entry, positions, hidden)
        except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
            # Spark says what is wrong with it. Of a damaged page, Arrow raises OSError.
            raise NeedsSparkError(f"a file cannot be read here: {type(error).__name__}") from error

    def _hidden(self, file: ChosenFile) -> BitMap64:
        sizes = [each.length or each.bytes for each in file.deletes]
        self._allowance.take(files=len(sizes), stored_bytes=sum(sizes))
        return read_positions(self._table.read, file.deletes).get(file.entry.path, BitMap64())

    def _open(self, entry: FileEntry, **options: Any) -> pq.ParquetFile:
        if entry.path in self._contents:
            return pq.ParquetFile(pa.BufferReader(self._contents[entry.path]), **options)
        try:
            return pq.ParquetFile(pa.OSFile(str(local_path(entry.path))), **options)
        except OSError:
            # Java says what is wrong with it, above all that it has expired.
            self._table.read(entry.path, 0, 1)
            raise NeedsSparkError("a file cannot be opened here") from None

    def _read(
        self,
        file: pq.ParquetFile,
        entry: FileEntry,
        positions: BitMap64 | None,
        hidden: BitMap64,
    ) -> PlainRows:
        columns = self._columns_of(file.schema_arrow, entry)
        names = [each.name for each in columns if isinstance(each, pa.Field)]
        if not names:
            raise NeedsSparkError("a file has none of the columns")
        count = file.metadata.num_rows
        self._allowance.take(rows=count if positions is None else len(positions))
        chosen = BitMap64(range(count)) if positions is None else positions
        wanted = np.asarray((chosen - hidden).to_array(), dtype=np.int64)
        wanted = wanted[wanted < count]
        groups, offsets = _choose(file.metadata, wanted)
        self._allowance.take(**_sizes(file.metadata, groups, set(names)))
        repeated = _repeated_texts(file.metadata, groups, set(names), self._allowance.kept_bytes)
        with self._open(entry, metadata=file.metadata, read_dictionary=repeated) as encoded:
            decoded = encoded.iter_batches(_BATCH_ROWS, groups, names) if len(wanted) else ()
            batches = [self._shaped(batch, columns) for batch in _chosen(decoded, offsets)]
        return PlainRows(pa.Table.from_batches(batches, self.schema), wanted)

    def _columns_of(self, present: pa.Schema, entry: FileEntry) -> list[pa.Field | pa.Scalar]:
        """Return for each column where its values are: in the file, or the same in all rows."""
        by_id = {field_id(each): each for each in present}
        names = set(present.names)
        if None in by_id or len(by_id) < len(present) or len(names) < len(present):
            raise NeedsSparkError("the columns of a file have no ids of their own")
        if any("." in name for name in names):
            raise NeedsSparkError("a column of a file has a dot in its name")
        constants = self._constants(entry)
        columns: list[pa.Field | pa.Scalar] = []
        for field, target in zip(self._fields, self.schema, strict=True):
            found = by_id.get(field["id"])
            if field["id"] in constants:
                columns.append(pa.scalar(constants[field["id"]], target.type))
            elif found is None and not field["required"]:
                columns.append(pa.scalar(None, target.type))
            elif found is not None and holds(field, found):
                columns.append(found)
            else:
                raise NeedsSparkError(f"a file has another type of the column {field['name']}")
        return columns

    def _constants(self, entry: FileEntry) -> dict[int, Any]:
        """Return partition values by the id of their column: they count, not what the file has."""
        types = {each["id"]: each["type"] for each in self._fields}
        parts = self._specs[entry.spec_id]
        if len(parts) != len(entry.partition):
            raise NeedsSparkError("a file has another partition than its spec")
        constants = {}
        for part, value in zip(parts, entry.partition, strict=True):
            if part["transform"] != "identity":
                continue
            kind = types.get(part["source-id"])
            if kind is None and part["source-id"] in self._nested_ids:
                raise NeedsSparkError("a nested column is a partition")
            if kind is not None and (isinstance(kind, dict) or kind not in _PLAIN_CONSTANTS):
                raise NeedsSparkError(f"a partition has the type {kind}")
            constants[part["source-id"]] = value
        return constants

    def _shaped(
        self, batch: pa.RecordBatch, columns: Sequence[pa.Field | pa.Scalar]
    ) -> pa.RecordBatch:
        # Before they are made: a file of some hundred bytes may hold gigabytes of equal texts.
        self._allowance.fresh().take(kept_bytes=sum(map(_text_bytes, batch.columns)))
        arrays = [
            _decoded(batch.column(each.name)).cast(target.type)
            if isinstance(each, pa.Field)
            else pa.repeat(each, batch.num_rows)
            for each, target in zip(columns, self.schema, strict=True)
        ]
        shaped = pa.record_batch(arrays, schema=self.schema)
        self._allowance.take(kept_bytes=shaped.nbytes)
        return shaped


def numbered(schema: pa.Schema) -> pa.Schema:
    """Call columns c0, c1, …, so that no name of a table's can be in the way."""
    return pa.schema([pa.field(f"c{place}", each.type) for place, each in enumerate(schema)])


def _choose(metadata: pq.FileMetaData, wanted: Positions) -> tuple[list[int], Positions]:
    """Return the row groups that have wanted rows, and where the rows are in these groups."""
    groups: list[int] = []
    offsets = np.empty_like(wanted)
    start = read = 0
    for number in range(metadata.num_row_groups):
        end = start + metadata.row_group(number).num_rows
        first, last = np.searchsorted(wanted, (start, end))
        if first < last:
            groups.append(number)
            offsets[first:last] = wanted[first:last] - start + read
            read += end - start
        start = end
    return groups, offsets


def _chosen(batches: Iterable[pa.RecordBatch], offsets: Positions) -> Iterator[pa.RecordBatch]:
    """Yield the rows at rising offsets, of batches that follow each other."""
    done = 0
    for batch in batches:
        first, last = np.searchsorted(offsets, (done, done + batch.num_rows))
        if first < last:
            is_whole = last - first == batch.num_rows
            yield batch if is_whole else batch.take(pa.array(offsets[first:last] - done))
        done += batch.num_rows


def _repeated_texts(
    metadata: pq.FileMetaData, groups: Sequence[int], names: set[str], most_bytes: int
) -> list[str]:
    """Return columns whose texts are in the file once each, however many rows have them.

    They are read as a dictionary and numbers, so that their size in memory is known before it is
    needed.

    Raises:
        NeedsSparkError: texts are stored as differences, and may take more memory than allowed.
    """
    repeated = set()
    for number in groups:
        group = metadata.row_group(number)
        for place in range(group.num_columns):
            chunk = group.column(place)
            name = chunk.path_in_schema
            if chunk.physical_type != "BYTE_ARRAY" or name not in names:
                continue
            if chunk.has_dictionary_page:
                repeated.add(name)
            longest = chunk.total_uncompressed_size
            rows = min(group.num_rows, _BATCH_ROWS)
            if "DELTA_BYTE_ARRAY" in chunk.encodings and rows * longest > most_bytes:
                raise NeedsSparkError(f"nobody knows how long the texts of column {name} are")
    return sorted(repeated)


def _text_bytes(column: pa.Array) -> int:
    """Return how many bytes the texts of a dictionary-encoded column take; 0 of any other."""
    if not pa.types.is_dictionary(column.type):
        return 0
    lengths = pc.binary_length(column.dictionary).take(column.indices)
    return pc.sum(lengths.cast(pa.int64())).as_py() or 0


def _decoded(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _sizes(metadata: pq.FileMetaData, groups: Sequence[int], names: set[str]) -> dict[str, int]:
    stored = decoded = 0
    for number in groups:
        group = metadata.row_group(number)
        for place in range(group.num_columns):
            chunk = group.column(place)
            if chunk.path_in_schema.split(".")[0] in names:
                stored += chunk.total_compressed_size
                decoded += chunk.total_uncompressed_size
    return {"stored_bytes": stored, "decoded_bytes": decoded}
