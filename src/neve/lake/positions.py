"""The rows that position deletes and deletion vectors delete."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import orc, parquet
from pyroaring import BitMap64

from neve.errors import UnsupportedError
from neve.lake.manifests import FileEntry, open_avro
from neve.lake.vectors import decode_vector

ReadFile = Callable[..., bytes]
_SCHEMA = pa.schema([("file_path", pa.string()), ("pos", pa.int64())])
_COLUMNS = _SCHEMA.names


def read_positions(read: ReadFile, entries: Iterable[FileEntry]) -> dict[str, BitMap64]:
    """Return the deleted positions of each data file that position deletes name."""
    positions: dict[str, BitMap64] = {}
    for entry in entries:
        for path, deleted in _of_one(read, entry).items():
            positions[path] = positions[path] | deleted if path in positions else deleted
    return positions


def _of_one(read: ReadFile, entry: FileEntry) -> Mapping[str, BitMap64]:
    if entry.is_vector:
        blob = read(entry.path, entry.offset, entry.length)
        return {entry.data_file or "": decode_vector(blob, entry.path)}
    return positions_in(read(entry.path), entry.path, entry.format)


def positions_in(content: bytes, path: str, file_format: str) -> dict[str, BitMap64]:
    """Return the positions that a file of position deletes has of each data file.

    Raises:
        UnsupportedError: position deletes have no such format.
    """
    rows = _read_file(content, path, file_format)
    paths = pc.dictionary_encode(rows["file_path"].cast(pa.string()).combine_chunks())
    # Deletes are sorted by file as a rule, but not every writer does it.
    order = np.argsort(paths.indices.to_numpy(), kind="stable")
    positions = rows["pos"].to_numpy()[order]
    ends = np.cumsum(np.bincount(paths.indices.to_numpy(), minlength=len(paths.dictionary)))
    parts = np.split(positions, ends[:-1])
    return dict(zip(paths.dictionary.to_pylist(), map(BitMap64, parts), strict=False))


def _read_file(content: bytes, path: str, file_format: str) -> pa.Table:
    source = io.BytesIO(content)
    if file_format == "PARQUET":
        return parquet.read_table(source, columns=_COLUMNS)
    if file_format == "ORC":
        return orc.read_table(source, columns=_COLUMNS)
    if file_format == "AVRO":
        return pa.Table.from_pylist(list(open_avro(content, path).records()), _SCHEMA)
    raise UnsupportedError(f"{path}: position deletes in the format {file_format}")
