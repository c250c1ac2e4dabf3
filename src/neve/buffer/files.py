"""File-system steps that are durable when they return.

A new or renamed file survives a power cut only once its directory was synced too (fsync(2)).
"""

from __future__ import annotations

import contextlib
import os
import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# Linux takes at most 1024 parts in one writev (IOV_MAX).
MAX_PARTS = 1024


def sync_directory(directory: Path) -> None:
    """Make what was created, renamed or removed in a directory durable."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_directory(directory: Path) -> None:
    """Create a directory with its parents, each durable. Idempotent."""
    if directory.is_dir():
        return
    make_directory(directory.parent)
    directory.mkdir(exist_ok=True)
    sync_directory(directory.parent)


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
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
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
