"""A buffer in a local directory, shared by processes of one machine."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from neve import failpoints
from neve.buffer.disk_lease import DiskLease
from neve.buffer.disk_log import LOCK_NAME, DiskLog, close_stream
from neve.buffer.files import (
    DIRECTORY_MODE,
    make_directory,
    put_new_file,
    storage_errors,
    sync_directory,
    try_lock,
)
from neve.buffer.frame import whole_bytes
from neve.buffer.identity import ensure_identity
from neve.buffer.layout import (
    Kind,
    Part,
    StoredFile,
    lease_path,
    new_stream,
    parse_part,
    part_path,
)
from neve.buffer.stream import ends_stream
from neve.errors import CorruptionError, NotFoundError, StorageError
from neve.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from neve.buffer.frame import ReadRange

logger = logging.getLogger(__name__)


class DiskStore:
    """The `BufferStore` of a directory. A stream's writer holds a flock on its `lock` file."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def begin(self, signal: str) -> DiskLog:
        stream = new_stream(signal, ensure_identity(self))
        directory = self._root / stream
        # Under a hidden name until it is locked: nobody can take it for abandoned in between.
        hidden = directory.with_name(f".{directory.name}")
        errors = storage_errors("cannot begin a buffer stream", self._root)
        with errors, contextlib.ExitStack() as undo:
            make_directory(directory.parent, self._root)
            hidden.mkdir(DIRECTORY_MODE)
            lock = try_lock(hidden / LOCK_NAME, os.O_CREAT)
            if lock is None:
                raise StorageError(f"{hidden} is locked by another process", retryable=True)
            undo.callback(os.close, lock)
            failpoints.reach("buffer.named")
            hidden.rename(directory)
            sync_directory(directory)
            sync_directory(directory.parent)
            undo.pop_all()
        return DiskLog(self._root, stream, lock)

    def files(self, prefix: str) -> list[StoredFile]:
        with storage_errors("cannot list the buffer", self._root):
            return sorted(self._walk(prefix), key=lambda file: file.path)

    def _walk(self, prefix: str) -> Iterator[StoredFile]:
        # Files may go at any moment: another process retires them.
        try:
            children = list(os.scandir(self._root / prefix))
        except (FileNotFoundError, NotADirectoryError):
            return
        for child in children:
            if child.name.startswith("."):
                continue
            path = f"{prefix}/{child.name}" if prefix else child.name
            if child.is_dir(follow_symlinks=False):
                yield from self._walk(path)
                continue
            with contextlib.suppress(FileNotFoundError):
                stat = child.stat()
                yield StoredFile(path, stat.st_size, stat.st_mtime_ns)

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        with (
            storage_errors("cannot read the buffer", path),
            (self._root / path).open("rb") as file,
        ):
            file.seek(start)
            return file.read() if length is None else file.read(length)

    @contextlib.contextmanager
    def open_file(self, path: str) -> Iterator[ReadRange]:
        with (
            storage_errors("cannot read the buffer", path),
            (self._root / path).open("rb", buffering=0) as file,
        ):
            yield lambda start, length: os.pread(file.fileno(), length, start)

    def put_new(self, path: str, data: bytes) -> bool:
        with storage_errors("cannot write to the buffer", path):
            make_directory((self._root / path).parent, self._root)
            return put_new_file(self._root / path, data)

    def move(self, targets: Mapping[str, str]) -> None:
        directories = set()
        with storage_errors("cannot move files of the buffer", self._root):
            for source, target in targets.items():
                path = self._root / target
                make_directory(path.parent, self._root)
                # Another process may have moved it.
                with contextlib.suppress(FileNotFoundError):
                    os.utime(self._root / source)
                    (self._root / source).rename(path)
                directories.add(path.parent)
            for directory in directories:
                sync_directory(directory)

    def delete(self, paths: Sequence[str]) -> None:
        with storage_errors("cannot remove from the buffer", self._root):
            for path in paths:
                (self._root / path).unlink(missing_ok=True)

    def remove_stream(self, stream: str) -> None:
        with storage_errors("cannot remove a buffer stream", stream):
            shutil.rmtree(self._root / stream, ignore_errors=True)

    def free_bytes(self) -> int | None:
        with storage_errors("cannot measure the buffer's disk", self._root):
            make_directory(self._root, self._root)
            return shutil.disk_usage(self._root).free

    def lease(self, name: str, seconds: float) -> DiskLease:
        return DiskLease(self._root, self._root / lease_path(name), seconds)

    def close_abandoned(self) -> list[str]:
        closed = []
        for lock_path in self._lock_files():
            stream = lock_path.parent.relative_to(self._root).as_posix()
            try:
                if self._close_abandoned(lock_path, stream):
                    closed.append(stream)
            except (OSError, StorageError, NotFoundError) as error:
                # One stream that cannot be read must not keep a receiver from starting. It stays
                # as it is; the next call tries again.
                text = "buffer stream %s cannot be closed: %s"
                logger.error(text, stream, error)  # noqa: TRY400 - survived, so without a trace
        return closed

    def _lock_files(self) -> list[Path]:
        # Not by pathlib's glob: it makes objects for each stream, and most have no lock any more.
        locks = []
        for signal in Signal:
            unreadable = (FileNotFoundError, NotADirectoryError, PermissionError)
            with contextlib.suppress(*unreadable), os.scandir(self._root / signal.value) as streams:
                paths = (f"{stream.path}/{LOCK_NAME}" for stream in streams)
                locks += [Path(path) for path in paths if os.path.exists(path)]  # noqa: PTH110 - as above
        return sorted(locks)

    def end_stream(self, stream: str) -> None:
        lock_path = self._root / stream / LOCK_NAME
        with storage_errors("cannot end a buffer stream", stream):
            lock = try_lock(lock_path)
            if lock is not None:
                try:
                    self._recover(stream)
                finally:
                    os.close(lock)
            elif lock_path.exists():
                raise StorageError(f"{stream} is being closed by another process", retryable=True)

    def _close_abandoned(self, lock_path: Path, stream: str) -> bool:
        lock = try_lock(lock_path)
        if lock is None:
            return False
        try:
            if lock_path.parent.name.startswith("."):
                # Its receiver died before the stream began.
                shutil.rmtree(lock_path.parent, ignore_errors=True)
                return False
            self._recover(stream)
        finally:
            os.close(lock)
        return True

    def _recover(self, stream: str) -> None:
        parts = [part for part in map(parse_part, self.files(stream)) if part]
        for part in parts:
            if part.kind is Kind.OPEN:
                self._seal_tail(part)
        remaining = [part for part in map(parse_part, self.files(stream)) if part]
        last = max(remaining, key=lambda part: part.number, default=None)
        number = last.number if last else 0
        if last is None or last.kind is not Kind.SEGMENT or not ends_stream(self, last):
            number += 1
        close_stream(self._root, stream, number)

    def _seal_tail(self, part: Part) -> None:
        """Seal what a dead receiver left open, without what it never acknowledged.

        Idempotent: a crash in between leaves it to the next call.
        """
        path = self._root / part.file.path
        data = path.read_bytes()
        try:
            end = whole_bytes(data)
        except CorruptionError as error:
            # Nothing is cut: consolidation reports the damage again and keeps the segment.
            text = "buffer segment %s is damaged: %s"
            logger.error(text, part.file.path, error)  # noqa: TRY400 - survived as well
            end = len(data)
        if end == 0:
            path.unlink()
        else:
            self._cut_and_rename(path, part, end)
        sync_directory(path.parent)
        if end < len(data):
            logger.warning("cut %s torn bytes off %s", len(data) - end, part.file.path)

    def _cut_and_rename(self, path: Path, part: Part, end: int) -> None:
        with path.open("r+b") as file:
            file.truncate(end)
            # Also without a cut: a process that died may have left its last write unsynced.
            os.fsync(file.fileno())
        failpoints.reach("buffer.recovered")
        path.rename(self._root / part_path(part.stream, part.number, Kind.SEGMENT, end))
