"""File operations that are durable when they return.

A new or renamed file survives a power cut only once its directory was synced too (fsync(2)).

Files and directories of a buffer are created for their owner alone: requests hold users' data.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from typing import TYPE_CHECKING

from neve.errors import NotFoundError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

# Linux takes at most 1024 parts in one writev (IOV_MAX).
MAX_PARTS = 1024
FILE_MODE = 0o600
DIRECTORY_MODE = 0o700


def sync_directory(directory: Path) -> None:
    """Make what was created, renamed or removed in a directory durable."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_data(fd: int) -> None:
    """Make a file's content durable. macOS has no fdatasync, which syncs less metadata."""
    sync = getattr(os, "fdatasync", os.fsync)
    sync(fd)


def make_directory(directory: Path, buffer: Path) -> None:
    """Create a directory with its parents, each durable. Idempotent.

    Args:
        buffer: this directory and those below it are for their owner alone.
    """
    if directory.is_dir():
        return
    make_directory(directory.parent, buffer)
    is_private = directory == buffer or buffer in directory.parents
    directory.mkdir(DIRECTORY_MODE if is_private else 0o777, exist_ok=True)
    sync_directory(directory.parent)


def create_file(path: Path, flags: int) -> int:
    """Create a file that must not exist, and return its descriptor."""
    return os.open(path, flags | os.O_CREAT | os.O_EXCL, FILE_MODE)


def write_all(fd: int, parts: Sequence[bytes]) -> int:
    """Append all parts, in as few calls as it takes, and return their length."""
    left = [memoryview(part) for part in parts if part]
    total = sum(map(len, left))
    while left:
        written = os.writev(fd, left[:MAX_PARTS])
        while left and written >= len(left[0]):
            written -= len(left.pop(0))
        if written:
            left[0] = left[0][written:]
    return total


def put_new_file(path: Path, data: bytes) -> bool:
    """Create a file whole or not at all, durable on return; False when it exists already."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        fd = create_file(temporary, os.O_WRONLY)
        try:
            write_all(fd, [data])
            os.fsync(fd)
        finally:
            os.close(fd)
        try:
            # Unlike a rename, a link refuses to replace what another process put there first.
            os.link(temporary, path)
        except FileExistsError:
            return False
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    sync_directory(path.parent)
    return True


def try_lock(path: Path, flags: int = 0) -> int | None:
    """Return a descriptor that holds the lock; None if another holds it or the file is missing."""
    try:
        fd = os.open(path, os.O_RDWR | flags, FILE_MODE)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The previous holder of the lock may have removed the file.
        if os.fstat(fd).st_nlink:
            return fd
    except BlockingIOError:
        pass
    os.close(fd)
    return None


@contextlib.contextmanager
def storage_errors(what: str, path: object) -> Iterator[None]:
    """Raise the errors of the file system as those of a store."""
    try:
        yield
    except FileNotFoundError as error:
        raise NotFoundError(f"{what}: {error.filename or path} does not exist") from error
    except OSError as error:
        raise StorageError(f"{what}: {path}: {error}", retryable=True) from error
