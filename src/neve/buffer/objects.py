"""A buffer in an object store: each group commit is a whole segment, put if absent.

The first put under a number wins, whichever process made it. To end a stream, any process may put
the closing segment under its next number; a receiver that was wrongly thought dead finds it there
and begins a new stream.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import ObjectStore as Bucket
from obstore.store import S3Store

from neve import failpoints
from neve.buffer.frame import (
    NO_SALT,
    frame_parts,
    heads_only,
    preamble,
)
from neve.buffer.identity import ensure_identity
from neve.buffer.layout import (
    Kind,
    Part,
    StoredFile,
    new_stream,
    parse_part,
    part_path,
    signal_lease_path,
)
from neve.buffer.object_lease import ObjectLease
from neve.buffer.store import LostStreamError
from neve.buffer.stream import ends_stream
from neve.errors import NotFoundError, StorageError, UnsupportedError
from neve.limits import KIB, MIB
from neve.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from obstore.store import S3Config

    from neve.buffer.frame import ReadRange
    from neve.buffer.payload import Request
    from neve.buffer.spec import ObjectStorage

# The slowest line on which a put is waited for: 1 Mbit/s, which no receiver can live with for long.
LEAST_BYTES_PER_SECOND = 128 * KIB
# Puts up to this size have the time of any other request.
SMALL_PUT_BYTES = MIB
COPIES_AT_ONCE = 16
PROBE_PREFIX = "probe"
# Every segment is sealed here, so nothing waits for a stream to be closed. Closing the stream of a
# receiver that was only idle makes it begin a new one.
IDLE_SECONDS = 3600.0
# Of that time: how often streams are listed to find idle ones.
LOOK_SHARE = 1 / 60


def open_bucket(location: str, storage: ObjectStorage, upload_bytes: int = 0) -> Bucket:
    """Return a client for `s3://bucket/prefix`.

    Time-outs count silence: an answer may take any time while its bytes arrive. But the client
    takes the sending of a body for silence, too. So a put has, in addition, the time that its bytes
    take on the slowest line.

    Args:
        upload_bytes: the largest body that the client is to put.
    """
    config: S3Config = {"virtual_hosted_style_request": not storage.path_style}
    if storage.endpoint:
        config["endpoint"] = storage.endpoint
    if storage.region:
        config["region"] = storage.region
    if storage.access_key_id:
        config["access_key_id"] = storage.access_key_id
    if storage.secret_access_key:
        config["secret_access_key"] = storage.secret_access_key
    silence_seconds = storage.timeout_seconds + upload_bytes / LEAST_BYTES_PER_SECOND
    bucket: Bucket = S3Store.from_url(
        location,
        config=config,
        client_options={
            "allow_http": True,
            "connect_timeout": timedelta(seconds=storage.connect_timeout_seconds),
            "read_timeout": timedelta(seconds=silence_seconds),
            # Of a whole request, however large: not bounded.
            "timeout": timedelta(days=1),
        },
        # Not after a time-out, which is settled by whoever has made the put.
        retry_config={
            "max_retries": 2,
            "retry_timeout": timedelta(seconds=storage.timeout_seconds),
        },
    )
    return bucket


class ObjectStore:
    """The `BufferStore` of a bucket."""

    def __init__(
        self,
        bucket: Bucket,
        *,
        open_for_puts: Callable[[int], Bucket] | None = None,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        """Use a client of a bucket.

        Args:
            open_for_puts: returns a client for puts of up to so many bytes, where one is needed.
        """
        self._bucket = bucket
        self._open_for_puts = open_for_puts
        # By the most bytes of a put, a power of two.
        self._for_puts: dict[int, Bucket] = {}
        self._idle_seconds = idle_seconds
        self._next_look_for_abandoned = 0.0

    def check_conditions(self) -> None:
        """Refuse a store on which two receivers could overwrite each other.

        Raises:
            UnsupportedError: a put succeeded although its key existed.
            StorageError: the store cannot be reached or written.
        """
        path = f"{PROBE_PREFIX}/{secrets.token_hex(8)}"
        try:
            if not self.put_new(path, b"first"):
                raise UnsupportedError("the object store reports a key that was never written")
            if self.put_new(path, b"second"):
                raise UnsupportedError(
                    "the object store ignores If-None-Match, so acknowledged data can be lost",
                    hint="use a store with conditional writes, or a local directory",
                )
        finally:
            with contextlib.suppress(StorageError):
                self.delete([path])

    def begin(self, signal: str) -> ObjectLog:
        return ObjectLog(self, new_stream(signal, ensure_identity(self)))

    def files(self, prefix: str) -> list[StoredFile]:
        with _storage_errors("cannot list the buffer", prefix):
            files = [
                StoredFile(meta["path"], meta["size"], int(meta["last_modified"].timestamp() * 1e9))
                for batch in obstore.list(self._bucket, prefix or None, chunk_size=1000)
                for meta in batch
            ]
        return sorted(files, key=lambda file: file.path)

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        with _storage_errors("cannot read the buffer", path):
            if length is None:
                return obstore.get(self._bucket, path).bytes().to_bytes()[start:]
            return obstore.get_range(self._bucket, path, start=start, length=length).to_bytes()

    @contextlib.contextmanager
    def open_file(self, path: str) -> Iterator[ReadRange]:
        yield partial(self.read, path)

    def put_new(self, path: str, data: bytes) -> bool:
        with _storage_errors("cannot write to the buffer", path):
            try:
                bucket = self._bucket_for_put(len(data))
                obstore.put(bucket, path, data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
        return True

    def _bucket_for_put(self, size: int) -> Bucket:
        if size <= SMALL_PUT_BYTES or self._open_for_puts is None:
            return self._bucket
        most = 1 << (size - 1).bit_length()
        if most not in self._for_puts:
            # Two threads may open two, of which one is kept.
            self._for_puts[most] = self._open_for_puts(most)
        return self._for_puts[most]

    def move(self, targets: Mapping[str, str]) -> None:
        if targets:
            # Each takes as long as a put, and a batch may have hundreds of segments.
            with ThreadPoolExecutor(min(COPIES_AT_ONCE, len(targets))) as pool:
                list(pool.map(self._copy, targets, targets.values()))
        self.delete(list(targets))

    def _copy(self, source: str, target: str) -> None:
        # Another process may have moved it.
        with (
            _storage_errors("cannot move an object of the buffer", source),
            contextlib.suppress(FileNotFoundError),
        ):
            obstore.copy(self._bucket, source, target)

    def delete(self, paths: Sequence[str]) -> None:
        errors = _storage_errors("cannot remove from the buffer", f"{len(paths)} objects")
        with errors, contextlib.suppress(FileNotFoundError):
            if paths:
                obstore.delete(self._bucket, paths)

    def remove_stream(self, stream: str) -> None:
        """Nothing is left of a stream without objects."""

    def free_bytes(self) -> int | None:
        return None

    def lease(self, name: str, seconds: float) -> ObjectLease:
        # Below the signal, so that the signal's own listing shows it.
        return ObjectLease(self, signal_lease_path(name), seconds)

    def close_abandoned(self) -> list[str]:
        # Consolidation calls this at every poll, and a listing costs money.
        now = time.monotonic()
        if now < self._next_look_for_abandoned:
            return []
        self._next_look_for_abandoned = now + LOOK_SHARE * self._idle_seconds
        files = [file for signal in Signal for file in self.files(signal.value)]
        parts = [part for part in map(parse_part, files) if part]
        closed = []
        for stream, of_stream in groupby(parts, key=lambda part: part.stream):
            last = max(of_stream, key=lambda part: part.number)
            # If the put fails, a segment was put in between: the receiver is alive.
            is_abandoned = self._is_idle(last) and not ends_stream(self, last)
            if is_abandoned and self._put_closing_segment(stream, last.number + 1):
                closed.append(stream)
        return closed

    def end_stream(self, stream: str) -> None:
        while True:
            parts = [part for part in map(parse_part, self.files(stream)) if part]
            last = max(parts, key=lambda part: part.number, default=None)
            if last is not None and ends_stream(self, last):
                return
            # Also for a stream without segments: a put in doubt may still arrive under number 1.
            if self._put_closing_segment(stream, last.number + 1 if last else 1):
                return

    def _put_closing_segment(self, stream: str, number: int) -> bool:
        path = part_path(stream, number, Kind.SEGMENT)
        return self.put_new(path, heads_only([], closing=True))

    def _is_idle(self, last: Part) -> bool:
        return time.time_ns() - last.file.modified_unix_nano > self._idle_seconds * 1e9


class ObjectLog:
    """The `Log` of a bucket. One put is in flight at a time, so numbers have no gaps."""

    def __init__(self, store: ObjectStore, stream: str) -> None:
        self.stream = stream
        self._store = store
        self._number = 1
        self._head = b""
        self.fsync_seconds = 0.0

    @property
    def open_bytes(self) -> int:
        return 0

    @property
    def _path(self) -> str:
        return part_path(self.stream, self._number, Kind.SEGMENT)

    def commit(self, requests: Sequence[Request]) -> None:
        head, *payloads = frame_parts(requests, NO_SALT)
        self._head = preamble(NO_SALT) + head
        failpoints.reach("buffer.put_begun")
        began = time.perf_counter()
        put = self._store.put_new(self._path, b"".join([self._head, *payloads]))
        self.fsync_seconds = time.perf_counter() - began
        failpoints.reach("buffer.put_done")
        # A put that was repeated inside the client finds its own first attempt.
        if not put and not self._is_ours():
            raise LostStreamError(f"{self.stream} was closed by another process")
        self._number += 1

    def _is_ours(self) -> bool:
        return self._store.read(self._path, 0, len(self._head)) == self._head

    def settle(self) -> bool:
        empty = heads_only([], closing=False)
        stored = False
        # With something else under its number, the put in doubt can no longer arrive.
        if not self._store.put_new(self._path, empty):
            stored = self._is_ours()
            if not stored and self._store.read(self._path) != empty:
                raise LostStreamError(f"{self.stream} was closed by another process")
        failpoints.reach("buffer.settled")
        self._number += 1
        return stored

    def seal(self) -> None:
        """Do nothing: a put segment is sealed."""

    def close(self) -> None:
        self._store.put_new(self._path, heads_only([], closing=True))

    def abandon(self) -> None:
        """Do nothing: no lock is held."""


@contextlib.contextmanager
def _storage_errors(what: str, path: str) -> Iterator[None]:
    """Raise the errors of the client as those of a store."""
    try:
        yield
    except FileNotFoundError as error:
        raise NotFoundError(f"{what}: {path} does not exist") from error
    except (BaseError, OSError) as error:
        # Behind its first line, the client's message is a debug dump.
        reason = str(error).partition("\n")[0]
        raise StorageError(f"{what}: {path}: {reason}", retryable=True) from error
