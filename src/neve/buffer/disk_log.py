"""A stream written to a local directory: append, fsync, rename when sealed."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from typing import TYPE_CHECKING

from neve import failpoints
from neve.buffer.files import create_file, put_new_file, sync_data, sync_directory, write_all
from neve.buffer.frame import PREAMBLE_BYTES, SALT_BYTES, frame_parts, heads_only, preamble
from neve.buffer.layout import Kind, part_path
from neve.buffer.store import LostStreamError
from neve.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from neve.buffer.payload import Request

LOCK_NAME = "lock"


class DiskLog:
    """The `Log` of a directory. `lock` is a descriptor that holds the stream's flock."""

    def __init__(self, root: Path, stream: str, lock: int) -> None:
        self.stream = stream
        self._root = root
        self._lock: int | None = lock
        self._number = 1
        self._fd: int | None = None
        self._durable_bytes = 0
        self._salt = b""
        self.fsync_seconds = 0.0

    @property
    def open_bytes(self) -> int:
        return self._durable_bytes

    @property
    def _open_path(self) -> Path:
        return self._root / part_path(self.stream, self._number, Kind.OPEN)

    @property
    def _sealed_path(self) -> Path:
        name = part_path(self.stream, self._number, Kind.SEGMENT, self._durable_bytes)
        return self._root / name

    def commit(self, requests: Sequence[Request]) -> None:
        with _storage_errors("cannot append to the buffer"):
            fd = self._create() if self._fd is None else self._fd
            head, *payloads = frame_parts(requests, self._salt)
            size = write_all(fd, [head])
            failpoints.reach("buffer.torn")
            size += write_all(fd, payloads)
            failpoints.reach("buffer.written")
            began = time.perf_counter()
            sync_data(fd)
            self.fsync_seconds = time.perf_counter() - began
            failpoints.reach("buffer.synced")
            self._check_in_place(fd)
            self._durable_bytes += size

    def _create(self) -> int:
        # O_APPEND, so that a write after a truncation cannot leave a hole.
        fd = self._fd = create_file(self._open_path, os.O_WRONLY | os.O_APPEND)
        self._salt = secrets.token_bytes(SALT_BYTES)
        write_all(fd, [preamble(self._salt)])
        # Durable before the first frame: recovery takes a damaged preamble for damage.
        os.fsync(fd)
        sync_directory(self._open_path.parent)
        self._durable_bytes = PREAMBLE_BYTES
        failpoints.reach("buffer.created")
        return fd

    def _check_in_place(self, fd: int) -> None:
        """Raise if the file was deleted or moved: fsync succeeds on those as well."""
        try:
            at_path = os.stat(self._open_path)  # noqa: PTH116 - beside os.fstat, for comparison
        except FileNotFoundError:
            at_path = None
        if at_path is None or not os.path.samestat(at_path, os.fstat(fd)):
            # If a moved file comes back one day, it holds what was acknowledged and no more.
            os.ftruncate(fd, self._durable_bytes)
            raise LostStreamError(f"the buffer's directory of {self.stream} was removed")

    def settle(self) -> bool:
        # After a failed fsync the kernel may mark pages as clean that never reached the disk, so
        # nothing is appended behind them: the segment ends where it was last known to be durable.
        with _storage_errors("cannot recover the buffer"):
            if self._fd is None:
                return False
            if self._durable_bytes > PREAMBLE_BYTES:
                self._cut()
                self._rename()
                self._end_segment(next_number=self._number + 1)
            else:
                self._open_path.unlink(missing_ok=True)
                sync_directory(self._open_path.parent)
                # No reader saw the number. It is used again, as readers would wait for a gap.
                self._end_segment(next_number=self._number)
        return False

    def _cut(self) -> None:
        if self._fd is not None and not self._sealed_path.exists():
            os.ftruncate(self._fd, self._durable_bytes)
            self._check_in_place(self._fd)
            os.fsync(self._fd)

    def seal(self) -> None:
        with _storage_errors("cannot seal a buffer segment"):
            if self._fd is None:
                return
            self._rename()
            self._end_segment(next_number=self._number + 1)

    def _rename(self) -> None:
        # The name may have changed in an earlier attempt whose directory sync failed.
        if not self._sealed_path.exists():
            self._open_path.rename(self._sealed_path)
        failpoints.reach("buffer.renamed")
        sync_directory(self._sealed_path.parent)
        failpoints.reach("buffer.sealed")

    def _end_segment(self, *, next_number: int) -> None:
        if self._fd is not None:
            os.close(self._fd)
        self._fd = None
        self._durable_bytes = 0
        self._number = next_number

    def close(self) -> None:
        self.seal()
        with _storage_errors("cannot close a buffer stream"):
            close_stream(self._root, self.stream, self._number)
        self.abandon()

    def abandon(self) -> None:
        for fd in (self._fd, self._lock):
            if fd is not None:
                # Nothing depends on it: what is durable was synced before.
                with contextlib.suppress(OSError):
                    os.close(fd)
        # Another file may get the same descriptors: they must not be closed twice.
        self._fd = self._lock = None


def close_stream(root: Path, stream: str, number: int) -> None:
    """End a stream whose lock the caller holds. Idempotent."""
    closing = part_path(stream, number, Kind.SEGMENT)
    put_new_file(root / closing, heads_only([], closing=True))
    failpoints.reach("buffer.closed")
    # A stream without a lock file is closed; `close_abandoned` looks for lock files only.
    (root / stream / LOCK_NAME).unlink(missing_ok=True)


@contextlib.contextmanager
def _storage_errors(what: str) -> Iterator[None]:
    """Raise the errors of the file system as those of a log."""
    try:
        yield
    except FileNotFoundError as error:
        raise LostStreamError(f"{what}: {error.filename} was removed") from error
    except OSError as error:
        hint = "free space or repair the file system; requests are refused until then"
        raise StorageError(f"{what}: {error}", hint=hint, retryable=True) from error
