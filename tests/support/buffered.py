"""What a consumer would make of a buffer: the rows of every table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from neve.buffer.disk import DiskStore
from neve.buffer.reader import REQUESTS, BufferReader
from neve.signals import Signal
from tests.support.decoding import decode_whole

if TYPE_CHECKING:
    from pathlib import Path


def buffered_rows(location: Path, service: str | None = None) -> dict[str, list[dict]]:
    """Decode all that is sealed; of one service, if it is named."""
    reader = BufferReader(DiskStore(location), dedup_seconds=300)
    rows = {}
    for signal in Signal:
        batches = [
            batch
            for stream in reader.streams(signal.value)
            for segment in reader.segments(stream.stream)
            for batch in reader.read(segment)
        ]
        requests = pa.Table.from_batches(batches, REQUESTS)
        names = ("payload", "received_unix_nano", "sender_name")
        decoded = decode_whole(signal, *(requests[name].to_pylist() for name in names))
        assert not decoded.dead_letters
        for name, table in decoded.tables.items():
            rows[name] = [
                row
                for row in table.to_pylist(maps_as_pydicts="strict")
                if service in (None, row["service_name"])
            ]
    return rows
