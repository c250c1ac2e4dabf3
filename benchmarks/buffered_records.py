"""Records in a buffer, as a receiver stores them, for benchmarks of consolidation."""

from __future__ import annotations

import gzip
import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import decode as samples
from benchmarks.decode import RECORDS, SEED
from neve.buffer.buffer import Buffer, open_buffer, open_reader
from neve.buffer.payload import NO_SENDER, Codec, Request
from neve.buffer.spec import BufferSpec
from neve.signals import Signal
from neve.telemetry.decode import decode

_DAY_NANOS = 86_400 * 10**9


@dataclass(frozen=True)
class Data:
    """Records as the receiver stores requests, and where `write_parquet` puts them decoded."""

    signal: Signal
    records: int
    buffer: BufferSpec
    parquet: Path

    @property
    def table(self) -> str:
        return self.signal.value


@cache
def make_request(signal: Signal, number: int) -> tuple[int, bytes]:
    """Return a request of a thousand records as it came, compressed; and how long it was before.

    Ids are its own: repeated ones would make smaller files than real records do.
    """
    message = getattr(samples, signal.value)(Random(SEED + number))
    plain = message.SerializeToString()
    return len(plain), gzip.compress(plain, 6, mtime=0)


def make_data(directory: Path, signal: Signal, size: int) -> Data:
    """Fill a buffer with about so many stored bytes."""
    buffer, rows = BufferSpec(str(directory / "buffer")), directory / "rows"
    rows.mkdir(parents=True)
    stored = number = 0
    with open_buffer(buffer, [signal.value]) as writer:
        while stored < size:
            raw_bytes, payload = make_request(signal, number)
            append(writer, signal, payload, raw_bytes, RECORDS, number)
            stored, number = stored + len(payload), number + 1
    return Data(signal, number * RECORDS, buffer, rows)


def write_parquet(data: Data) -> None:
    """Write what is buffered as Parquet."""
    for part, batch in enumerate(read_buffer(data.buffer, data.signal)):
        pq.write_table(decoded(data.signal, batch), data.parquet / f"{part}.parquet")


def make_days(directory: Path, days: int) -> Data:
    """Fill a buffer with one request of a log for each of so many days."""
    request = Signal.LOGS.request()
    scope = request.resource_logs.add().scope_logs.add()
    for day in range(days):
        scope.log_records.add(time_unix_nano=(day + 1) * _DAY_NANOS)
    plain = request.SerializeToString()
    buffer = BufferSpec(str(directory / "days"))
    with open_buffer(buffer, ["logs"]) as writer:
        append(writer, Signal.LOGS, gzip.compress(plain), len(plain), days, 0)
    return Data(Signal.LOGS, days, buffer, directory)


def append(
    buffer: Buffer, signal: Signal, payload: bytes, raw_bytes: int, records: int, number: int
) -> None:
    request = Request(
        payload=payload,
        codec=Codec.GZIP,
        raw_bytes=raw_bytes,
        records=records,
        received_unix_nano=time.time_ns(),
        sender=NO_SENDER,
        content_hash=hashlib.sha256(number.to_bytes(8, "big")).digest(),
    )
    buffer.append(signal.value, request).durable.result(60)


def read_buffer(spec: BufferSpec, signal: Signal) -> Iterator[pa.RecordBatch]:
    reader = open_reader(spec)
    for stream in reader.streams(signal.value):
        for segment in reader.segments(stream.stream):
            yield from reader.read(segment)


def decoded(signal: Signal, requests: pa.RecordBatch) -> pa.Table:
    columns = (requests.column(name) for name in ("payload", "received_unix_nano", "sender_name"))
    return pa.concat_tables(
        table for part in decode(signal, *columns) for table in part.tables.values()
    )
