"""A lease in a directory: a locked file, whose modification time says when it was last kept."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from neve.buffer.files import make_directory, storage_errors, try_lock

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from neve.buffer.layout import StoredFile


class DiskLease:
    """The `Lease` of a directory, between processes of one machine.

    A holder that dies releases its lock at once. One that hangs keeps it: after `seconds` another
    process replaces its file, which the holder notices when it next calls `hold`.
    """

    def __init__(self, buffer: Path, path: Path, seconds: float) -> None:
        self._buffer = buffer
        self._path = path
        self._seconds = seconds
        self._lock: int | None = None

    def hold(self, listed: Sequence[StoredFile] | None = None) -> bool:  # noqa: ARG002
        with storage_errors("cannot take a lease", self._path):
            if self._lock is None:
                self._lock = self._take()
            elif self._is_lost(self._lock):
                self._close_lock()
            if self._lock is None:
                return False
            os.utime(self._lock)
            return True

    def release(self) -> None:
        with storage_errors("cannot release a lease", self._path):
            if self._lock is not None and not self._is_lost(self._lock):
                self._path.unlink(missing_ok=True)
            self._close_lock()

    def _take(self) -> int | None:
        make_directory(self._path.parent, self._buffer)
        lock = try_lock(self._path, os.O_CREAT)
        if lock is None and self._is_stale():
            self._path.unlink(missing_ok=True)
            lock = try_lock(self._path, os.O_CREAT)
        return lock

    def _is_stale(self) -> bool:
        try:
            age = time.time() - self._path.stat().st_mtime
        except FileNotFoundError:
            return False
        # A time far in the future does not count as kept either: the clock was set back.
        return abs(age) > self._seconds

    def _is_lost(self, lock: int) -> bool:
        return os.fstat(lock).st_nlink == 0

    def _close_lock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
