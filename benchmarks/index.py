"""What the index takes: bytes on disk, time to build, to search and to hash keys.

    python -m benchmarks.index [rows]

One core, fixed seeds, a local disk. Times are of the processor, since other work on the machine
says nothing about the index. The opponent of a search decodes compressed Parquet, bucket by bucket.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import load_file_io

from neve.index import compute_pk_hash, splitmix64
from neve.index.cache import BucketCache
from neve.index.compaction import (
    add_delta,
    compact_buckets,
    plan_compaction,
    with_compacted,
    write_entries,
)
from neve.index.entries import Entries, SequenceType, make_entries
from neve.index.root import KeyColumn, Root
from neve.index.search import IndexReader
from neve.index.shard import bits_for, bucket_of, split_buckets

if TYPE_CHECKING:
    from collections.abc import Callable

SEED = 7
ROWS = 10_000_000
STRINGS = 2_000_000
FILES = 50
MERGES = 200
ROUNDS = 3


def seconds(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Return the processor time of the best of some rounds."""
    taken = []
    for _ in range(rounds):
        before = time.process_time()
        work()
        taken.append(time.process_time() - before)
    return min(taken)


def tell(name: str, value: float, unit: str, wanted: str, ratio: float | None = None) -> None:
    line = {"name": name, "value": round(value, 4), "unit": unit}
    print(json.dumps({**line, "ratio": ratio and round(ratio, 2), "wanted": wanted}), flush=True)


def entries_of(keys: Any) -> Entries:
    """Rows of sequential keys, spread over files; sequences of 64 random bits, the hardest kind."""
    sequences = splitmix64(keys + (1 << 40)).view(np.int64)
    return make_entries(splitmix64(keys), None, keys % FILES, keys // FILES, sequences)


def root_of(shard: Any, sequence_type: SequenceType, *, has_second_hash: bool) -> Root:
    return Root(
        table_uuid="benchmark",
        snapshot_id=1,
        key_columns=(KeyColumn("id", 1),),
        sequence_columns=("sequence",),
        sequence_type=sequence_type,
        has_second_hash=has_second_hash,
        bits=shard.bits,
        files=tuple(f"file-{number}" for number in range(FILES)),
        shards=(shard,),
    )


def hashing() -> None:
    integers = pa.array(np.arange(ROWS))
    rate = ROWS / seconds(lambda: compute_pk_hash([integers]))
    tell("index_hash_bigint", rate, "keys/s", "")
    texts = strings(STRINGS)
    rate = STRINGS / seconds(lambda: compute_pk_hash([texts]))
    some = texts.slice(0, 100_000).to_pylist()
    loop = len(some) / seconds(
        lambda: [hashlib.blake2b(one.encode(), digest_size=16).digest() for one in some]
    )
    tell("index_hash_36_characters", rate, "keys/s", ">= 20000000", rate / loop)
    pair = [integers.slice(0, STRINGS), texts]
    tell("index_hash_composite", STRINGS / seconds(lambda: compute_pk_hash(pair)), "keys/s", "")


def strings(count: int) -> pa.Array:
    """Random keys as UUIDs are written: 36 characters."""
    data = np.random.default_rng(SEED).integers(0, 16, (count, 36), np.uint8)
    data = np.frombuffer(b"0123456789abcdef", np.uint8)[data]
    data[:, [8, 13, 18, 23]] = ord("-")
    offsets = np.arange(count + 1, dtype=np.int32) * 36
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.string(), count, buffers)


def build(directory: str, rows: int) -> Root:
    """Build the index of an integer key; then that of a text key, with log positions as text."""
    io = load_file_io({}, directory)
    entries = entries_of(np.arange(rows))
    shards: list[Any] = []
    taken = seconds(lambda: shards.append(write_entries(io, directory, entries, 1)), 1)
    tell("index_build_bigint", rows / taken, "rows/s", "")
    tell("index_bytes_bigint", shards[0].size / rows, "bytes/row", "<= 24")

    count = min(rows, STRINGS)
    keys = np.arange(count)
    positions = [f"{1 << 36 | 8 * n:016x}/{1 << 36 | 8 * n + 3:016x}" for n in range(count)]
    textual = make_entries(
        *compute_pk_hash([strings(count)]), keys % FILES, keys // FILES, pa.array(positions)
    )
    shard = write_entries(io, directory, textual, 1)
    tell("index_bytes_string", shard.size / count, "bytes/row", "<= 40")
    Path(shard.path).unlink()
    return root_of(shards[0], SequenceType.INTEGER, has_second_hash=False)


def search(directory: str, root: Root, rows: int) -> None:
    io = load_file_io({}, directory)
    rng = np.random.default_rng(SEED)
    decoded = write_compressed(directory, rows)
    for count in (1_000, 10_000, 100_000):
        wanted = splitmix64(rng.integers(0, rows, count))
        ours = seconds(
            lambda wanted=wanted: IndexReader(root, io, BucketCache()).search_values(wanted)
        )
        theirs = seconds(lambda wanted=wanted: search_compressed(decoded, wanted), 1)
        tell(f"index_search_{count}", ours, "s", "", theirs / ours)
        reader = IndexReader(root, io, BucketCache())
        reader.search_values(wanted)
        again = seconds(lambda reader=reader, wanted=wanted: reader.search_values(wanted))
        tell(f"index_search_{count}_again", again, "s", "")


def write_compressed(directory: str, rows: int) -> list[Path]:
    """The opponent's index: the same buckets as Parquet is usually written."""
    bits = bits_for(rows)
    paths = []
    for bucket, entries in split_buckets(entries_of(np.arange(rows)), bits):
        path = Path(directory, f"opponent-{bucket:04}.parquet")
        table = pa.table(
            {
                "first": entries.first,
                "file": entries.file,
                "position": entries.position,
                "sequence": entries.sequence,
            }
        )
        pq.write_table(
            table,
            path,
            compression="zstd",
            use_dictionary=["file"],
            column_encoding={
                "first": "DELTA_BINARY_PACKED",
                "position": "DELTA_BINARY_PACKED",
                "sequence": "PLAIN",
            },
        )
        paths.append(path)
    size = sum(path.stat().st_size for path in paths)
    tell("opponent_bytes_bigint", size / rows, "bytes/row", "")
    return paths


def search_compressed(paths: list[Path], wanted: Any) -> None:
    ordered = np.sort(wanted)
    buckets = bucket_of(ordered, (len(paths) - 1).bit_length())
    for bucket in np.unique(buckets).tolist():
        keys = ordered[buckets == bucket]
        table = pq.read_table(paths[bucket], use_threads=False)
        hashes = table.column("first").to_numpy()
        at = np.searchsorted(hashes, keys)
        for name in ("file", "position", "sequence"):
            table.column(name).to_numpy()[at]


def many_merges(directory: str, root: Root, rows: int) -> None:
    """Deltas as 200 merges of a thousandth of the rows append them, compacted as they come."""
    io = load_file_io({}, directory)
    rng = np.random.default_rng(SEED)
    wanted = splitmix64(rng.integers(0, rows, 10_000))
    before = seconds(lambda: IndexReader(root, io, BucketCache()).search_values(wanted))
    start, most, slowest = time.process_time(), 0, 0.0
    for number in range(MERGES):
        step = time.process_time()
        keys = rng.integers(0, rows, max(1, rows // 1000))
        root = add_delta(io, root, directory, entries_of(keys), number + 2)
        while plan := plan_compaction(root):
            merged = compact_buckets(
                root.to_json(), io.properties, plan, directory, range(1 << plan.bits)
            )
            root = with_compacted(root, plan, [merged])
        most = max(most, len(root.shards) - 1)
        slowest = max(slowest, time.process_time() - step)
    each = (time.process_time() - start) / MERGES
    tell("index_append_and_compact", each, "s/merge", "")
    tell("index_append_and_compact_slowest", slowest, "s", "")
    tell("index_deltas_at_most", most, "deltas", "<= 10")
    after = seconds(lambda: IndexReader(root, io, BucketCache()).search_values(wanted))
    tell("index_search_10000_after_200_merges", after, "s", "<= 3", after / before)


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    hashing()
    with tempfile.TemporaryDirectory() as directory:
        root = build(directory, rows)
        search(directory, root, rows)
        many_merges(directory, root, rows)


if __name__ == "__main__":
    main()
