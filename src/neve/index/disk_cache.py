"""A cache of shards on this machine's disk, shared by its processes, within a limit of bytes.

A shard of an object store has a sparse file here, with the ranges that were read of it at their
places. Nothing says which ranges are there: whoever reads a block checks it against the checksum
in the shard's directory, and a hole, a damaged block and one that another process is just writing
are all read from the store again. So there is no state to keep right between processes.

Files appear under their names at once, with their full length, and have mode 600. Past
the limit, the file that was not used for the longest time is removed; who has it mapped reads on.
"""

from __future__ import annotations

import logging
import mmap
import os
import stat
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neve.config.merging import MergeSettings

logger = logging.getLogger(__name__)

DIRECTORY_PROPERTY, BYTES_PROPERTY = "neve.index-cache.directory", "neve.index-cache.bytes"
"""Properties of a FileIO that tell tasks of the cache."""


def cache_properties(settings: MergeSettings) -> dict[str, str]:
    """Return what a FileIO tells tasks of the cache."""
    properties = {BYTES_PROPERTY: str(settings.index_cache_bytes)}
    if settings.index_cache_directory:
        properties[DIRECTORY_PROPERTY] = settings.index_cache_directory
    return properties


def default_directory() -> Path:
    """Return where the cache is if nothing is configured: a directory of this user."""
    return Path(tempfile.gettempdir()) / f"neve-index-{os.geteuid()}"


@dataclass(frozen=True)
class DiskCache:
    """A directory of sparse files. Every method may fail with OSError: then there is no cache."""

    directory: Path
    limit_bytes: int

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> DiskCache | None:
        """Return the cache that a FileIO's properties name; None: there is none."""
        limit_bytes = int(properties.get(BYTES_PROPERTY, 0))
        if limit_bytes <= 0:
            return None
        return cls(Path(properties.get(DIRECTORY_PROPERTY) or default_directory()), limit_bytes)

    def open(self, name: str, size: int) -> SparseFile:
        """Open the file of a shard; it is made if there is none of this size."""
        self._prepare()
        path = self.directory / name
        with suppress(FileNotFoundError):
            return SparseFile.open(path, size)
        with self._new_file(name) as file:
            os.ftruncate(file.descriptor, size)
        return SparseFile.open(path, size)

    @contextmanager
    def copying(self, name: str, stream: Any) -> Iterator[Any]:
        """Return a stream that keeps a copy of what is written to another one, if it can."""
        with ExitStack() as stack:
            try:
                self._prepare()
                copy = _CopyingStream(stream, stack.enter_context(self._new_file(name)))
            except OSError as error:
                logger.warning("no copy of %s is kept in %s: %s", name, self.directory, error)
                yield stream
                return
            yield copy
        with suppress(OSError):
            self.evict()

    def evict(self) -> None:
        """Remove the files that were not used for the longest time, until the limit is kept."""
        used = []
        for entry in os.scandir(self.directory):
            with suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                used.append((status.st_atime_ns, status.st_blocks * 512, entry.path))
        total = sum(size for _, size, _ in used)
        for _, size, path in sorted(used):
            if total <= self.limit_bytes:
                return
            with suppress(FileNotFoundError):
                Path(path).unlink()
            total -= size

    def _prepare(self) -> None:
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = self.directory.lstat()
        # Below a directory that all may write to, another user could have made it.
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            raise PermissionError(f"{self.directory} is not a directory of this user")

    @contextmanager
    def _new_file(self, name: str) -> Iterator[_NewFile]:
        """Write a file under another name, then give it its own. Atomic."""
        temporary = self.directory / f"new-{uuid.uuid4()}"
        descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        file = _NewFile(descriptor)
        try:
            yield file
            if file.is_whole:
                temporary.replace(self.directory / name)
        finally:
            os.close(descriptor)
            temporary.unlink(missing_ok=True)


@dataclass
class _NewFile:
    descriptor: int
    is_whole: bool = True


@dataclass
class SparseFile:
    """A file of the cache, mapped into memory."""

    data: mmap.mmap
    _descriptor: int
    _stamp: tuple[int, int] = (0, 0)

    @classmethod
    def open(cls, path: Path, size: int) -> SparseFile:
        """Map a file. Raises FileNotFoundError: there is none of this size."""
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        if os.fstat(descriptor).st_size != size:
            os.close(descriptor)
            path.unlink(missing_ok=True)
            raise FileNotFoundError(path)
        return cls(mmap.mmap(descriptor, size, access=mmap.ACCESS_COPY), descriptor)

    def write(self, offset: int, data: Any) -> None:
        """Write bytes where they are in the shard; of a full disk only this process has them."""
        view, at = memoryview(data), offset
        try:
            while len(view):
                written = os.pwrite(self._descriptor, view, at)
                view, at = view[written:], at + written
        except OSError as error:
            logger.warning("the index cache cannot be written: %s", error)
            # The mapping is private: what is written to it does not go to the file.
            self.data[offset : offset + len(data)] = bytes(data)
        self._stamp = self._present_stamp()

    def has_changed(self) -> bool:
        """Tell whether the file was written or removed by others since this was last asked.

        Also marks it as used.
        """
        before, self._stamp = self._stamp, self._present_stamp()
        with suppress(OSError):
            os.utime(self._descriptor, ns=(time.time_ns(), self._stamp[1]))
        return before != self._stamp

    def is_removed(self) -> bool:
        """Tell whether the file was evicted; it can be read still, and nobody else sees it."""
        return os.fstat(self._descriptor).st_nlink == 0

    def _present_stamp(self) -> tuple[int, int]:
        status = os.fstat(self._descriptor)
        return status.st_ino, status.st_mtime_ns

    def __del__(self) -> None:
        with suppress(OSError):
            os.close(self._descriptor)


class _CopyingStream:
    """Writes to a stream and to a file; if the file cannot be written, to the stream alone."""

    def __init__(self, stream: Any, file: _NewFile) -> None:
        self._stream = stream
        self._file = file

    def write(self, data: Any) -> None:
        self._stream.write(data)
        try:
            view = memoryview(data)
            while self._file.is_whole and len(view):
                view = view[os.write(self._file.descriptor, view) :]
        except OSError as error:
            logger.warning("no copy of an index shard is kept: %s", error)
            self._file.is_whole = False
