"""Runs: entries on their way from data files to shards, cut into buckets and no more.

They live for the length of a build. So they are Arrow files with a batch for each bucket, which
cost nothing to write and are mapped to be read, and have neither order nor checksums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO

from neve.errors import CorruptionError, StorageError
from neve.index.entries import Entries, concat_entries
from neve.index.hash_bucket import FILE, FIRST, POSITION, SECOND, SEQUENCE
from neve.index.shard import bucket_of
from neve.lake.paths import local_path


@dataclass(frozen=True)
class RunRef:
    """A run: which batch of it is which bucket."""

    path: str
    kind: int
    rows: int
    buckets: tuple[int, ...]


def write_run_file(io: FileIO, path: str, kind: int, held: Sequence[Entries], bits: int) -> RunRef:
    """Write entries as a new file, bucket by bucket. Needs the memory of all of them twice."""
    entries = concat_entries(held)
    buckets = bucket_of(entries.first, bits).astype(np.uint16)
    ordered = entries.take(np.argsort(buckets, kind="stable"))  # of 16 bits: a radix sort
    stops = np.cumsum(np.bincount(buckets, minlength=1 << bits)).tolist()
    batch = _as_batch(ordered)
    written, start = [], 0
    with (
        io.new_output(path).create(overwrite=False) as stream,
        pa.ipc.new_file(stream, batch.schema) as writer,
    ):
        for bucket, stop in enumerate(stops):
            if stop > start:
                writer.write_batch(batch.slice(start, stop - start))
                written.append(bucket)
            start = stop
    return RunRef(path, kind, len(entries), tuple(written))


class RunFile:
    """A run that is open for reading."""

    def __init__(self, io: FileIO, run: RunRef) -> None:
        self.run = run
        self._places = {bucket: number for number, bucket in enumerate(run.buckets)}
        try:
            local = local_path(run.path)
            source = pa.memory_map(str(local)) if local else io.new_input(run.path).open()
            self._reader = pa.ipc.open_file(source)
        except FileNotFoundError as error:
            raise CorruptionError(f"{run.path} is gone: it was taken for an orphan") from error
        except (OSError, pa.ArrowInvalid) as error:
            raise StorageError(f"{run.path} cannot be read: {error}", retryable=True) from error

    def read(self, bucket: int) -> Entries | None:
        """Return the entries of a bucket, in no order."""
        if bucket not in self._places:
            return None
        batch = self._reader.get_batch(self._places[bucket])
        second = batch.column(SECOND).to_numpy() if SECOND in batch.schema.names else None
        return Entries(
            batch.column(FIRST).to_numpy(),
            second,
            batch.column(FILE).to_numpy(),
            batch.column(POSITION).to_numpy(),
            batch.column(SEQUENCE),
        )


def _as_batch(entries: Entries) -> pa.RecordBatch:
    columns: dict[str, Any] = {FIRST: entries.first}
    if entries.second is not None:
        columns[SECOND] = entries.second
    columns |= {FILE: entries.file, POSITION: entries.position, SEQUENCE: entries.sequence}
    return pa.RecordBatch.from_pydict(columns)
