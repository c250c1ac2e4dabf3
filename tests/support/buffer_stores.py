"""Stores to try a buffer on, and ways for them to fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

from obstore.store import MemoryStore

from neve.buffer.disk import DiskStore
from neve.buffer.objects import ObjectStore
from neve.buffer.reader import BufferReader
from neve.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from neve.buffer.store import BufferStore


def disk(path: Path) -> Callable[[], BufferStore]:
    """Return what opens the same directory again and again, as processes would."""
    return lambda: DiskStore(path)


def memory() -> Callable[[], BufferStore]:
    """Return what opens the same bucket again and again."""
    bucket = MemoryStore()
    # Everything counts as idle: a receiver that is not there any more cannot be told by a lock.
    return lambda: ObjectStore(bucket, idle_seconds=-1)


class DoubtfulStore(ObjectStore):
    """An object store that can lose requests, or only their responses."""

    def __init__(self, bucket: MemoryStore) -> None:
        super().__init__(bucket)
        self.lose_requests = 0
        self.lose_responses = 0
        self.in_flight: list[tuple[str, bytes]] = []

    def put_new(self, path: str, data: bytes) -> bool:
        if self.lose_requests:
            self.lose_requests -= 1
            self.in_flight.append((path, data))
            raise StorageError("connection reset", retryable=True)
        put = super().put_new(path, data)
        if self.lose_responses:
            self.lose_responses -= 1
            raise StorageError("timed out", retryable=True)
        return put

    def deliver(self) -> list[bool]:
        """Let requests arrive that were thought lost."""
        late, self.in_flight = self.in_flight, []
        return [super(DoubtfulStore, self).put_new(path, data) for path, data in late]


def payloads(store: BufferStore, signal: str = "logs") -> list[bytes]:
    """Return every payload a consumer would get, in order."""
    reader = BufferReader(store, dedup_seconds=300)
    return [
        payload
        for stream in reader.streams(signal)
        for segment in reader.segments(stream.stream)
        for batch in reader.read(segment)
        for payload in batch.column("payload").to_pylist()
    ]
