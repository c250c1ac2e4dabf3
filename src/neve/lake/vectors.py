"""Deletion vectors: which rows of a data file are deleted, as Iceberg's format v3 stores it.

The blob is a length, a magic, a 64-bit roaring bitmap and a CRC-32
(https://iceberg.apache.org/puffin-spec/#deletion-vector-v1-blob-type). Bitmaps are made here and
not in Java, since a call over py4j for each position would cost a tenth of a millisecond.
"""

from __future__ import annotations

import struct
import uuid
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyroaring import BitMap64

from neve.errors import CorruptionError, StorageError
from neve.lake.puffin import PuffinWriter, read_range

BLOB_TYPE = "deletion-vector-v1"
_MAGIC = b"\xd1\xd3\x39\x64"
_POSITION_FIELD = 2147483645  # the reserved id of the column _pos
_READS_AT_ONCE = 16
# To read past a gap is cheaper than another request.
_MOST_GAP_BYTES = 64 * 1024
_MOST_READ_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True)
class DeletionVector:
    """A data file's one deletion vector, as a table's metadata names it."""

    data_file: str
    path: str
    offset: int
    length: int
    cardinality: int
    file_size: int
    """Of the whole Puffin file."""


def encode_vector(positions: BitMap64) -> bytes:
    """Return positions as a deletion-vector-v1 blob."""
    smallest = BitMap64(positions)
    smallest.run_optimize()
    body = _MAGIC + smallest.serialize()
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def decode_vector(blob: bytes, name: str) -> BitMap64:
    """Return the positions in a deletion-vector-v1 blob.

    Raises:
        CorruptionError: it is not one, or not what was written; `name` says where it was.
    """
    if len(blob) < 12 or int.from_bytes(blob[:4], "big") != len(blob) - 8 or blob[4:8] != _MAGIC:
        raise CorruptionError(f"{name} has no deletion vector where the table says it has")
    if zlib.crc32(blob[4:-4]) != int.from_bytes(blob[-4:], "big"):
        raise CorruptionError(f"{name} has a deletion vector without its checksum")
    return BitMap64.deserialize(blob[8:-4])


def read_vector(io: FileIO, vector: DeletionVector) -> BitMap64:
    """Read the positions a vector deletes, and nothing else of its file.

    Raises:
        CorruptionError: the vector is not what was written.
        StorageError: its file is not there, or cannot be read.
    """
    return read_vectors(io, [vector])[vector.data_file]


def read_vectors(io: FileIO, vectors: Iterable[DeletionVector]) -> dict[str, BitMap64]:
    """Read the deleted positions of data files, by their paths; raise as `read_vector` does.

    Each Puffin file is opened once, some files at the same time, and vectors that lie side by side
    are read together: a merge writes the vectors of all the files it touches into one Puffin file.
    """
    by_file: defaultdict[str, list[DeletionVector]] = defaultdict(list)
    for vector in vectors:
        by_file[vector.path].append(vector)
    if len(by_file) == 1:
        return _read_file(io, *next(iter(by_file.items())))
    with ThreadPoolExecutor(_READS_AT_ONCE) as pool:
        parts = list(pool.map(lambda path: _read_file(io, path, by_file[path]), by_file))
    return {data_file: positions for part in parts for data_file, positions in part.items()}


def _read_file(io: FileIO, path: str, vectors: Iterable[DeletionVector]) -> dict[str, BitMap64]:
    positions = {}
    try:
        with io.new_input(path).open(seekable=True) as stream:
            for neighbours in _neighbours(vectors):
                start = neighbours[0].offset
                length = max(vector.offset + vector.length for vector in neighbours) - start
                data = read_range(stream, start, length, path)
                for vector in neighbours:
                    at = vector.offset - start
                    positions[vector.data_file] = _decode(data[at : at + vector.length], vector)
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error}") from error
    return positions


def _neighbours(vectors: Iterable[DeletionVector]) -> Iterator[list[DeletionVector]]:
    """Group the vectors of a Puffin file by what one read should bring."""
    group: list[DeletionVector] = []
    for vector in sorted(vectors, key=lambda vector: vector.offset):
        if group:
            gap = vector.offset - (group[-1].offset + group[-1].length)
            length = vector.offset + vector.length - group[0].offset
            if gap > _MOST_GAP_BYTES or length > _MOST_READ_BYTES:
                yield group
                group = []
        group.append(vector)
    if group:
        yield group


def _decode(blob: bytes, vector: DeletionVector) -> BitMap64:
    positions = decode_vector(blob, vector.path)
    if len(positions) != vector.cardinality:
        raise CorruptionError(
            f"{vector.path} has a deletion vector of {len(positions)} rows instead of "
            f"{vector.cardinality}"
        )
    return positions


def write_vectors(
    metadata: TableMetadata, io: FileIO, deleted: Mapping[str, BitMap64]
) -> list[DeletionVector]:
    """Write the vectors of some data files, by their paths, into one new file of the table.

    Each vector must hold all of its file's deleted rows, those deleted before, too: a data file has
    one vector. Not atomic: a file without a commit is an orphan, and harmless.
    """
    if not deleted:
        return []
    locations = load_location_provider(metadata.location, metadata.properties)
    path = locations.new_data_location(f"{uuid.uuid4()}-deletes.puffin")
    with io.new_output(path).create(overwrite=False) as stream:
        writer = PuffinWriter(stream)
        blobs = [_add_vector(writer, data_file, deleted[data_file]) for data_file in deleted]
        writer.finish()
    return [
        DeletionVector(
            data_file, path, blob.offset, blob.length, len(deleted[data_file]), writer.size
        )
        for data_file, blob in zip(deleted, blobs, strict=True)
    ]


def _add_vector(writer: PuffinWriter, data_file: str, positions: BitMap64) -> Any:
    return writer.add(
        BLOB_TYPE,
        encode_vector(positions),
        fields=[_POSITION_FIELD],
        properties={"referenced-data-file": data_file, "cardinality": str(len(positions))},
    )
