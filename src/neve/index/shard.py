"""A shard: sorted entries in a Puffin file, cut into buckets by the top bits of the hash.

The last blob is the directory: where each bucket lies, and the first hash and the checksum of each
of its blocks. The root has the directory's place and checksum, so the footer is for other readers.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO

from neve.errors import CorruptionError
from neve.index.disk_cache import DiskCache
from neve.index.entries import Entries, Integers, merge_entries
from neve.index.hash_bucket import BucketLayout, encode_bucket
from neve.index.splitmix import Hashes
from neve.lake.paths import local_path
from neve.lake.puffin import PuffinWriter

BUCKET_BLOB = "neve-index-bucket-v2"
DIRECTORY_BLOB = "neve-index-directory-v2"
TARGET_BUCKET_ROWS = 1 << 18
_MOST_BITS = 16


@dataclass(frozen=True)
class ShardRef:
    """A shard as its root names it: all that is needed to open it."""

    path: str
    size: int
    generation: int
    """Of two entries for a key, the one of the higher generation counts."""
    bits: int
    rows: int
    directory_offset: int
    directory_length: int
    directory_crc: int


@dataclass(frozen=True)
class BucketRef:
    """A bucket as its shard's directory names it."""

    bucket: int
    offset: int
    length: int
    layout: BucketLayout


def bits_for(rows: int) -> int:
    """Return how many top bits of the hash make buckets of about TARGET_BUCKET_ROWS at most."""
    return min(_MOST_BITS, ((max(1, rows) - 1) // TARGET_BUCKET_ROWS).bit_length())


def bucket_of(first: Any, bits: int) -> Any:
    """Return the bucket of each hash: its top bits."""
    return (first >> np.uint64(64 - bits)).astype(np.int64) if bits else np.zeros(len(first), int)


def bucket_bounds(bucket: int, bits: int) -> tuple[int, int]:
    """Return the lowest and the highest hash of a bucket, both inclusive."""
    width = 1 << (64 - bits)
    return bucket * width, (bucket + 1) * width - 1


def bucket_ranges(bits: int, count: int) -> list[range]:
    """Divide all buckets among so many tasks, or fewer."""
    count = min(1 << bits, count)
    bounds = [(number << bits) // count for number in range(count + 1)]
    return [range(start, stop) for start, stop in pairwise(bounds)]


def split_buckets(entries: Entries, bits: int) -> Iterator[tuple[int, Entries]]:
    """Sort entries by bucket and hash, the last of each key only; empty buckets are left out.

    A bucket at a time fits into the processor's cache, which all of them would not.
    """
    order, slices = order_by_bucket(entries.first, bits)
    for bucket, rows in slices.items():
        yield bucket, merge_entries([entries.take(order[rows])])


def order_by_bucket(first: Hashes, bits: int) -> tuple[Integers, dict[int, slice]]:
    """Return an order by bucket, and where in it the hashes of each bucket are."""
    buckets = bucket_of(first, bits).astype(np.uint16)
    order = np.argsort(buckets, kind="stable")  # of 16 bits: a radix sort
    counts = np.bincount(buckets, minlength=1 << bits)
    stops = np.cumsum(counts)
    return order, {
        int(bucket): slice(int(stops[bucket] - counts[bucket]), int(stops[bucket]))
        for bucket in np.flatnonzero(counts)
    }


def write_shard(
    io: FileIO, path: str, buckets: Iterable[tuple[int, Entries]], bits: int, generation: int
) -> ShardRef:
    """Write sorted buckets, each key once, as a new file. Holds one bucket at a time.

    Not atomic: a shard that no root names is an orphan, and harmless.
    """
    cache = None if local_path(path) else DiskCache.of(io.properties)
    with ExitStack() as stack:
        stream = stack.enter_context(io.new_output(path).create(overwrite=False))
        if cache is not None:
            # The next lookup is often made on the machine that writes.
            stream = stack.enter_context(cache.copying(path.rpartition("/")[2], stream))
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
    for number, entries in buckets:
        if not len(entries):
            continue
        payload, layout = encode_bucket(entries)
        blob = writer.add(
            BUCKET_BLOB, payload, properties={"bucket": str(number), "rows": str(layout.rows)}
        )
        written.append(BucketRef(number, blob.offset, blob.length, layout))
    directory = encode_directory(written)
    blob = writer.add(DIRECTORY_BLOB, directory)
    return ShardRef(
        path=path,
        size=writer.size,
        generation=generation,
        bits=bits,
        rows=sum(bucket.layout.rows for bucket in written),
        directory_offset=blob.offset,
        directory_length=blob.length,
        directory_crc=zlib.crc32(directory),
    )


def encode_directory(buckets: list[BucketRef]) -> bytes:
    """Write a directory as one Arrow record batch, a row for each bucket."""
    rows = [
        {"bucket": ref.bucket, "offset": ref.offset, "length": ref.length, **vars(ref.layout)}
        for ref in buckets
    ]
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
    lists = {name: table.column(name) for name in ("fences", "checksums", "ends")}
    directory = {}
    for number, row in enumerate(table.drop_columns(list(lists)).to_pylist()):
        arrays = {name: lists[name][number].values for name in lists}
        place = BucketRef(
            row.pop("bucket"),
            row.pop("offset"),
            row.pop("length"),
            BucketLayout(
                **row, **{name: part and part.to_numpy() for name, part in arrays.items()}
            ),
        )
        directory[place.bucket] = place
    return directory


_DIRECTORY_SCHEMA = pa.schema(
    [
        ("bucket", pa.int64()),
        ("offset", pa.int64()),
        ("length", pa.int64()),
        ("rows", pa.int64()),
        ("fences", pa.list_(pa.uint64())),
        ("checksums", pa.list_(pa.uint32())),
        ("ends", pa.list_(pa.int64())),
        ("has_second_hash", pa.bool_()),
        ("file_bytes", pa.int64()),
        ("position_bytes", pa.int64()),
    ]
)
