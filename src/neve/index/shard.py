"""A shard: a sorted run of entries in a Puffin file, cut into buckets by the hash's top bits.

The last blob is the directory: where each bucket and its columns lie, and the checksums of their
blocks. Who names the shard knows the directory's place and checksum, so the footer is for others.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO

from neve.errors import CorruptionError
from neve.index.entries import Entries, merge_entries
from neve.index.hash_bucket import (
    FILE,
    FIRST,
    POSITION,
    SECOND,
    SEQUENCE,
    BucketLayout,
    Span,
    encode_bucket,
)
from neve.lake.puffin import PuffinWriter

BUCKET_BLOB = "neve-index-bucket-v1"
DIRECTORY_BLOB = "neve-index-directory-v1"
TARGET_BUCKET_ROWS = 1 << 18
_MOST_BITS = 16
_COLUMNS = (FIRST, SECOND, FILE, POSITION, SEQUENCE)


@dataclass(frozen=True)
class ShardRef:
    """A shard as its root names it: all that is needed to open it."""

    path: str
    size: int
    generation: int
    """Of two entries for a key, that of the higher generation is the newer."""
    bits: int
    rows: int
    directory_offset: int
    directory_length: int
    directory_crc: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class BucketRef:
    """A bucket as its shard's directory names it."""

    bucket: int
    offset: int
    length: int
    layout: BucketLayout


def bits_for(rows: int, bucket_rows: int = TARGET_BUCKET_ROWS) -> int:
    """Return how many top bits of the hash make buckets of at most about `bucket_rows`."""
    return min(_MOST_BITS, max(0, (max(1, rows) - 1) // bucket_rows).bit_length())


def bucket_of(first: Any, bits: int) -> Any:
    """Return the bucket of each hash: its top bits."""
    return (first >> np.uint64(64 - bits)).astype(np.int64) if bits else np.zeros(len(first), int)


def bucket_bounds(bucket: int, bits: int) -> tuple[int, int]:
    """Return the lowest and the highest hash of a bucket, both inclusive."""
    width = 1 << (64 - bits)
    return bucket * width, (bucket + 1) * width - 1


def split_buckets(entries: Entries, bits: int) -> Iterator[tuple[int, Entries]]:
    """Sort entries into buckets and in those, the last of a key only; empty ones are left out.

    A bucket at a time fits into the processor's cache, which all of them would not.
    """
    buckets = bucket_of(entries.first, bits).astype(np.uint16)
    order = np.argsort(buckets, kind="stable")  # of 16 bits: a radix sort
    stops = np.cumsum(np.bincount(buckets, minlength=1 << bits))
    start = 0
    for bucket, stop in enumerate(stops.tolist()):
        if stop > start:
            yield bucket, merge_entries([entries.take(order[start:stop])])
        start = stop


def write_shard(
    io: FileIO, path: str, buckets: Iterable[tuple[int, Entries]], bits: int, generation: int
) -> ShardRef:
    """Write sorted buckets, each key once, as a new file. Holds one bucket at a time.

    Not atomic: a shard that no root names is an orphan, and harmless.
    """
    with io.new_output(path).create(overwrite=False) as stream:
        writer = PuffinWriter(stream)
        shard = write_buckets(writer, path, buckets, bits, generation)
        writer.finish()
    return replace(shard, size=writer.size)


def write_buckets(
    writer: PuffinWriter,
    path: str,
    buckets: Iterable[tuple[int, Entries]],
    bits: int,
    generation: int,
) -> ShardRef:
    """Write buckets and their directory as blobs; the size is known when the footer is written."""
    written: list[BucketRef] = []
    for bucket, entries in buckets:
        if not len(entries):
            continue
        payload, layout = encode_bucket(entries)
        blob = writer.add(
            BUCKET_BLOB, payload, properties={"bucket": str(bucket), "rows": str(layout.rows)}
        )
        written.append(BucketRef(bucket, blob.offset, blob.length, layout))
    directory = encode_directory(written)
    blob = writer.add(DIRECTORY_BLOB, directory)
    return ShardRef(
        path=path,
        size=writer.size,
        generation=generation,
        bits=bits,
        rows=sum(one.layout.rows for one in written),
        directory_offset=blob.offset,
        directory_length=blob.length,
        directory_crc=zlib.crc32(directory),
    )


def encode_directory(buckets: list[BucketRef]) -> bytes:
    """Write a directory as one Arrow record batch, a row for each bucket."""
    rows = []
    for one in buckets:
        row: dict[str, Any] = {
            "bucket": one.bucket,
            "offset": one.offset,
            "length": one.length,
            "rows": one.layout.rows,
            "fences": one.layout.fences,
            "checksums": one.layout.checksums,
        }
        for name, span in one.layout.spans.items():
            row[f"{name}_offset"], row[f"{name}_length"] = span.offset, span.length
        rows.append(row)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _DIRECTORY_SCHEMA) as stream:
        stream.write_table(pa.Table.from_pylist(rows, _DIRECTORY_SCHEMA))
    return bytes(sink.getvalue())


def decode_directory(data: bytes, shard: ShardRef) -> dict[int, BucketRef]:
    """Read a directory.

    Raises:
        CorruptionError: it is not what was written.
    """
    if zlib.crc32(data) != shard.directory_crc:
        raise CorruptionError(
            f"index shard {shard.path} is corrupt: its directory does not have its checksum",
            hint="the index is rebuilt from the table",
        )
    table = pa.ipc.open_stream(data).read_all().combine_chunks()
    lists = {name: table.column(name) for name in ("fences", "checksums")}
    plain = table.drop_columns(list(lists)).to_pylist()
    found = {}
    for number, row in enumerate(plain):
        fences, checksums = (lists[name][number].values.to_numpy() for name in lists)
        spans = {
            name: Span(row[f"{name}_offset"], row[f"{name}_length"])
            for name in _COLUMNS
            if row[f"{name}_offset"] is not None
        }
        layout = BucketLayout(row["rows"], spans, fences, checksums)
        found[row["bucket"]] = BucketRef(row["bucket"], row["offset"], row["length"], layout)
    return found


_DIRECTORY_SCHEMA = pa.schema(
    [
        ("bucket", pa.int64()),
        ("offset", pa.int64()),
        ("length", pa.int64()),
        ("rows", pa.int64()),
        ("fences", pa.list_(pa.uint64())),
        ("checksums", pa.list_(pa.uint32())),
        *((f"{name}_{part}", pa.int64()) for name in _COLUMNS for part in ("offset", "length")),
    ]
)
