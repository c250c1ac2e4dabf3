"""Position-delete files with other paths: mapped, sorted again, the rest as it was. Pure.

https://iceberg.apache.org/spec/#position-delete-files. The column `row` holds copies of deleted
rows, which no reader needs; it is left out where pyarrow would write its types differently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq

from neve.errors import CorruptionError, UnsupportedError
from neve.lake.avro_files import AvroRecords

PATH_FIELD = 2147483546
_POSITION_FIELD = 2147483545
_PATH, _POSITION, _ROW = "file_path", "pos", "row"
_ARROW_SCHEMA = b"ARROW:schema"

Target = Callable[[str], str]


@dataclass(frozen=True)
class RewrittenDeletes:
    """A rewritten file of deletes, and what its manifest entry says of it.

    Args:
        lower, upper: the smallest and the greatest path in it; None: it has no rows.
        column_sizes: by field id; None where the format does not tell.
        split_offsets: None where the format has none.
    """

    content: bytes
    lower: str | None = None
    upper: str | None = None
    column_sizes: Mapping[int, int] | None = None
    split_offsets: Sequence[int] | None = None


def rewrite_position_deletes(
    content: bytes, path: str, file_format: str, target: Target
) -> RewrittenDeletes:
    """Return a position-delete file whose rows name other data files.

    Args:
        path: for messages.
        target: returns the path that takes the place of another.

    Raises:
        CorruptionError: this is no such file.
        UnsupportedError: nothing can be rewritten in this format.
    """
    formats = {"PARQUET": _parquet, "AVRO": _avro, "ORC": _orc}
    if file_format not in formats:
        raise UnsupportedError(f"{path}: position deletes in {file_format} cannot be rewritten")
    try:
        return formats[file_format](content, path, target)
    except (pa.ArrowException, KeyError, OSError) as error:
        raise CorruptionError(f"{path} is not a file of position deletes: {error}") from error


def _avro(content: bytes, path: str, target: Target) -> RewrittenDeletes:
    file = AvroRecords(content, path, read={_POSITION_FIELD: _POSITION}, edit={PATH_FIELD: _PATH})
    rows = []
    for values, encoded in file.encoded():
        mapped = target(values[_PATH])
        record = file.replaced((values, encoded), {_PATH: mapped})
        rows.append((mapped.encode(), values[_POSITION], record))
    rows.sort()
    lower, upper = (rows[0][0].decode(), rows[-1][0].decode()) if rows else (None, None)
    return RewrittenDeletes(file.with_records(record for _, _, record in rows), lower, upper)


def _parquet(content: bytes, _path: str, target: Target) -> RewrittenDeletes:
    file = pq.ParquetFile(pa.BufferReader(content), read_dictionary=[_PATH])
    table, lower, upper = _mapped(file.read().unify_dictionaries(), target)
    written = _write_parquet(table, file)
    if _ROW in table.column_names and not _same_columns(written.schema, file.schema):
        written = _write_parquet(table.drop_columns(_ROW), file)
    return RewrittenDeletes(
        written.content, lower, upper, _column_sizes(written), _split_offsets(written)
    )


@dataclass(frozen=True)
class _Parquet:
    content: bytes
    schema: Any
    metadata: Any


def _write_parquet(table: Any, like: Any) -> _Parquet:
    codec = "NONE"
    if like.metadata.num_row_groups:
        codec = like.metadata.row_group(0).column(0).compression
    stream = pa.BufferOutputStream()
    with pq.ParquetWriter(
        stream,
        table.schema,
        compression="NONE" if codec == "UNCOMPRESSED" else codec,
        # Arrow's own schema would say dictionary; Iceberg's writers do not have it.
        store_schema=False,
        # As Iceberg's writers do.
        store_decimal_as_integer=True,
    ) as writer:
        writer.write_table(table)
        metadata = {**(like.metadata.metadata or {})}
        metadata.pop(_ARROW_SCHEMA, None)
        writer.add_key_value_metadata(metadata)
    content = stream.getvalue().to_pybytes()
    written = pq.ParquetFile(pa.BufferReader(content))
    return _Parquet(content, written.schema, written.metadata)


def _same_columns(first: Any, second: Any) -> bool:
    # The first lines name the object and the root, which each writer calls otherwise.
    return str(first).splitlines()[2:] == str(second).splitlines()[2:]


def _column_sizes(written: _Parquet) -> dict[int, int]:
    ids = [
        int(text.rsplit("field_id=", 1)[1].split()[0]) for text in _leaf_lines(str(written.schema))
    ]
    sizes = dict.fromkeys(ids, 0)
    for group in range(written.metadata.num_row_groups):
        chunks = written.metadata.row_group(group)
        for column, field_id in enumerate(ids):
            sizes[field_id] += chunks.column(column).total_compressed_size
    sizes.pop(-1, None)
    return sizes


def _leaf_lines(schema: str) -> list[str]:
    return [line for line in schema.splitlines() if line.rstrip().endswith(";")]


def _split_offsets(written: _Parquet) -> list[int]:
    offsets = []
    for group in range(written.metadata.num_row_groups):
        first = written.metadata.row_group(group).column(0)
        offsets.append(first.dictionary_page_offset or first.data_page_offset)
    return offsets


def _orc(content: bytes, _path: str, target: Target) -> RewrittenDeletes:
    file = orc.ORCFile(pa.BufferReader(content))
    table = file.read()
    position = table.schema.get_field_index(_PATH)
    encoded = table.column(_PATH).dictionary_encode()
    field = table.schema.field(_PATH).with_type(encoded.type)
    mapped, lower, upper = _mapped(table.set_column(position, field, encoded), target)
    field = mapped.schema.field(_PATH).with_type(pa.string())
    mapped = mapped.set_column(position, field, mapped.column(_PATH).cast(pa.string()))
    written = _write_orc(mapped, file.compression)
    if _ROW in mapped.column_names and not _same_fields(written, file):
        written = _write_orc(mapped.drop_columns(_ROW), file.compression)
    return RewrittenDeletes(written, lower, upper)


def _same_fields(written: bytes, file: Any) -> bool:
    # The file's own metadata is not compared: pyarrow writes none, and no reader needs it.
    schemas = (orc.ORCFile(pa.BufferReader(written)).schema, file.schema)
    first, second = (schema.remove_metadata() for schema in schemas)
    return bool(first.equals(second, check_metadata=True))


def _write_orc(table: Any, codec: str) -> bytes:
    stream = pa.BufferOutputStream()
    orc.write_table(table, stream, compression=codec)
    return bytes(stream.getvalue().to_pybytes())


def _mapped(table: Any, target: Target) -> tuple[Any, str | None, str | None]:
    """Map the paths of a table whose column of them is a dictionary, and sort it."""
    place = table.schema.get_field_index(_PATH)
    encoded = table.column(place).combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):  # of no chunks
        encoded = pa.DictionaryArray.from_arrays(
            pa.array([], pa.int32()), pa.array([], pa.string())
        )
    # Some writers do not say that the bytes are text.
    mapped = [target(path).encode() for path in encoded.dictionary.cast(pa.string()).to_pylist()]
    # In the order of their bytes, as Iceberg compares them; two may have become the same.
    ordered = sorted(set(mapped))
    rank = {path: number for number, path in enumerate(ordered)}
    ranks = np.array([rank[path] for path in mapped], np.int32)
    keys = ranks[encoded.indices.to_numpy(zero_copy_only=False)]
    order = np.lexsort((table.column(_POSITION).to_numpy(), keys))
    keys = keys[order]
    paths = pa.DictionaryArray.from_arrays(
        pa.array(keys, pa.int32()), pa.array([path.decode() for path in ordered], pa.string())
    )
    field = table.schema.field(place).with_type(paths.type)
    table = table.take(pa.array(order)).set_column(place, field, paths)
    if not len(keys):
        return table, None, None
    return table, ordered[keys[0]].decode(), ordered[keys[-1]].decode()
