"""Open a buffer: to append to it, or to read it."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from neve.buffer.disk import DiskStore
from neve.buffer.files import make_directory
from neve.buffer.identity import ensure_identity
from neve.buffer.quota import Quota
from neve.buffer.reader import BufferReader
from neve.buffer.retire import recent_keys
from neve.buffer.window import NANOS, DedupWindow
from neve.buffer.writer import Receipt, StreamWriter
from neve.errors import ConfigError, NeveError, StorageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neve.buffer.payload import Request
    from neve.buffer.spec import BufferSpec
    from neve.buffer.store import BufferStore
    from neve.observe.durations import DurationHistogram

OBJECT_SCHEME = "s3://"
# How often the fill level is measured: a listing costs money on an object store.
MEASURE_DISK_SECONDS = 1.0
MEASURE_OBJECTS_SECONDS = 10.0


def is_object_location(location: str) -> bool:
    """Say whether a location lies in an object store."""
    return location.startswith(OBJECT_SCHEME)


def open_store(spec: BufferSpec, *, check: bool = False) -> BufferStore:
    """Return the store of a location.

    Args:
        check: for a writer. Make the directory; refuse an object store on which acknowledged data
            could be overwritten.

    Raises:
        ConfigError: the location cannot be a buffer.
    """
    if is_object_location(spec.location):
        # Imported on use: a receiver with a local buffer starts without it.
        from neve.buffer.objects import ObjectStore, open_bucket

        open_for_puts = partial(open_bucket, spec.location, spec.storage)
        objects = ObjectStore(open_for_puts(0), open_for_puts=open_for_puts)
        if check:
            objects.check_conditions()
        return objects
    path = spec.location.removeprefix("file://")
    if "://" in path:
        raise ConfigError(
            f"buffer.location {spec.location} is neither a directory nor an object store",
            hint="use a path, or s3://bucket/prefix",
        )
    directory = Path(path).absolute()
    _require_directory(directory, writes=check)
    return DiskStore(directory)


def _require_directory(directory: Path, *, writes: bool) -> None:
    """Refuse a path that is no directory or, for a writer, none that it can write to."""
    try:
        is_file = directory.exists() and not directory.is_dir()
        if writes and not is_file:
            make_directory(directory, directory)
    except (PermissionError, FileExistsError, FileNotFoundError) as error:
        raise ConfigError(
            f"buffer.location {directory} cannot be used: {error.filename}: {error.strerror}",
            hint="name a directory in buffer.location whose parent you may write to",
        ) from error
    except OSError as error:
        raise StorageError(f"buffer.location {directory} cannot be used: {error}") from error
    if is_file:
        raise ConfigError(
            f"buffer.location {directory} is a file, and a buffer is a directory",
            hint="name a directory of its own in buffer.location",
        )
    if writes and not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        raise ConfigError(
            f"buffer.location {directory} cannot be written to: Permission denied",
            hint=f"give it to user {os.geteuid()}, or name another directory in buffer.location",
        )


def open_reader(spec: BufferSpec) -> BufferReader:
    """Return the consumer's side of a buffer."""
    return BufferReader(
        open_store(spec), dedup_seconds=spec.dedup_seconds, retain_seconds=spec.retain_seconds
    )


class Buffer:
    """The receiver's side of a buffer: one stream for each signal."""

    def __init__(self, spec: BufferSpec, store: BufferStore, signals: Sequence[str]) -> None:
        ensure_identity(store)
        store.close_abandoned()
        objects = is_object_location(spec.location)
        every_seconds = MEASURE_OBJECTS_SECONDS if objects else MEASURE_DISK_SECONDS
        with ThreadPoolExecutor(len(signals) + 1) as pool:
            quota = pool.submit(Quota, spec.max_bytes, store, every_seconds)
            windows = list(pool.map(lambda signal: _window(spec, store, signal), signals))
        self._quota = quota.result()
        self._quota.start()
        self._writers = {
            signal: StreamWriter(
                signal,
                store,
                spec,
                window,
                self._quota,
                commit_interval_seconds=spec.put_interval_seconds
                if objects
                else spec.sync_interval_seconds,
            )
            for signal, window in zip(signals, windows, strict=True)
        }

    def append(self, signal: str, request: Request) -> Receipt:
        """Queue a request; it is safe once the receipt's `durable` is done.

        Raises:
            UnavailableError: it cannot be taken now; nothing of it is kept.
        """
        return self._writers[signal].append(request)

    def check_room(self, size: int, signal: str) -> None:
        """Refuse a request before it is unpacked, if `append` would refuse it.

        Cheap: it only compares numbers in memory. That it passes is no promise.

        Args:
            size: the bytes that would be stored, as far as they are known.

        Raises:
            UnavailableError: the buffer is closing, in trouble or full.
        """
        self._quota.check(size)
        if refusal := self._writers[signal].refusal(size):
            raise refusal

    @property
    def trouble(self) -> NeveError | None:
        """Why requests are refused, also while the buffer is full; None when all is well."""
        troubles = (writer.trouble for writer in self._writers.values())
        return next((trouble for trouble in troubles if trouble), None) or self._quota.full

    @property
    def is_alive(self) -> bool:
        """False once a writer has failed too often: only another process can go on."""
        return all(writer.is_alive for writer in self._writers.values())

    @property
    def used_bytes(self) -> int:
        """About how much is buffered."""
        return self._quota.used_bytes

    @property
    def fsyncs(self) -> dict[str, DurationHistogram]:
        """What commits waited for the disk or the store, by signal."""
        return {signal: writer.fsyncs for signal, writer in self._writers.items()}

    @property
    def forgotten(self) -> dict[str, int]:
        """How many requests were forgotten within the dedup window, by signal."""
        return {signal: writer.forgotten for signal, writer in self._writers.items()}

    def close(self, timeout_seconds: float) -> bool:
        """Commit what was taken, end the streams, and say whether that was done in time."""
        deadline = time.monotonic() + timeout_seconds
        for writer in self._writers.values():
            writer.stop()
        closed = [writer.close(deadline) for writer in self._writers.values()]
        self._quota.stop()
        return all(closed)

    def __enter__(self) -> Buffer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close(timeout_seconds=10.0)


def open_buffer(spec: BufferSpec, signals: Sequence[str]) -> Buffer:
    """Open a buffer to append to it.

    Ends the streams of receivers that are gone, and takes over the hashes they knew.

    Raises:
        UnsupportedError: the object store would let acknowledged data be overwritten.
        StorageError: the location cannot be reached.
        CorruptionError: the buffer's identity is damaged.
    """
    return Buffer(spec, open_store(spec, check=True), signals)


def _window(spec: BufferSpec, store: BufferStore, signal: str) -> DedupWindow:
    window = DedupWindow(spec.dedup_seconds)
    if window.is_on:
        since = time.time_ns() - int(spec.dedup_seconds * NANOS)
        for received, key in recent_keys(store, signal, since):
            window.add(key, received)
    return window
