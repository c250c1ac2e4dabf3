"""Files of this machine's file system.

A file is written under a temporary name, synced, and linked to its name: it is there as a whole
or not at all, and a link never replaces a file.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path

from neve import failpoints
from neve.lake.stored_files import Bytes, Content, FileFacts, ListedFile, put_in_order

# Not hidden: Iceberg's remove_orphan_files takes away what a killed process left.
TEMPORARY_PREFIX = "copying-"
# Hidden: Spark and DuckDB read every other file of a directory.
HIDDEN_PREFIX = ".writing-"


class LocalFiles:
    """The `StoredFiles` of this machine; keys are absolute paths.

    Args:
        temporary_prefix: how names of files begin that are not complete.
    """

    def __init__(self, temporary_prefix: str = TEMPORARY_PREFIX) -> None:
        self._temporary_prefix = temporary_prefix

    def facts(self, key: str) -> FileFacts | None:
        try:
            return FileFacts(Path(key).stat().st_size)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def get(self, key: str, most_bytes: int) -> Content:
        with Path(key).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            return Content(size, data=file.read() if size <= most_bytes else None)

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        with Path(key).open("rb") as file:
            file.seek(offset)
            return file.read(length)

    def put_new(self, key: str, data: Bytes) -> FileFacts | None:
        return put_in_order(self.upload(key), iter([data]))

    def put_stream(self, key: str, parts: Iterator[Bytes], size: int) -> FileFacts | None:  # noqa: ARG002 - S3's
        return put_in_order(self.upload(key), parts)

    def upload(self, key: str) -> LocalUpload:
        return LocalUpload(Path(key), self._temporary_prefix)

    def copy_new(
        self, source_bucket: str, source_key: str, key: str, size: int
    ) -> FileFacts | None:
        raise NotImplementedError

    def sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
        for key, status in _files_below(prefix):
            yield key, status.st_size

    def files(self, prefix: str) -> Iterator[ListedFile]:
        for key, status in _files_below(prefix):
            yield ListedFile(key, status.st_size, status.st_mtime)

    def directories(self, prefix: str) -> Iterator[str]:
        try:
            with os.scandir(prefix) as entries:
                yield from (each.name for each in entries if each.is_dir(follow_symlinks=False))
        except FileNotFoundError:
            return

    def has_md5_tag(self, key: str) -> bool:  # noqa: ARG002 - the port's
        return False

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            Path(key).unlink(missing_ok=True)


def _files_below(prefix: str) -> Iterator[tuple[str, os.stat_result]]:
    # A prefix need not end at a directory: neither do the keys of a bucket.
    for path in _paths_below(prefix.rpartition("/")[0] or "/"):
        if path.startswith(prefix):
            try:
                yield path, Path(path).stat()
            except (FileNotFoundError, NotADirectoryError):
                # Deleted meanwhile, as temporary files of other writers are.
                continue
            except OSError as error:
                # A link that leads to itself is no file, as one that leads nowhere.
                if error.errno != errno.ELOOP:
                    raise


def _paths_below(directory: str) -> Iterator[str]:
    """Yield the files below a directory, one by one: it may have a million.

    Links to directories are not followed. A directory that cannot be read is an error, so that
    nobody takes it for an empty one; one that was deleted meanwhile is none.
    """
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield from _paths_below(entry.path)
                elif not (entry.is_symlink() and Path(entry.path).is_dir()):
                    yield entry.path
    except (FileNotFoundError, NotADirectoryError):
        return


class LocalUpload:
    """A file that is written under a temporary name."""

    def __init__(self, path: Path, temporary_prefix: str = TEMPORARY_PREFIX) -> None:
        self._path = path
        _make_directory(path.parent)
        self._temporary: Path | None = path.with_name(temporary_prefix + secrets.token_hex(8))
        self._file = os.open(self._temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)

    def write_part(self, number: int, offset: int, data: Bytes, digest: str) -> None:  # noqa: ARG002 - S3's
        rest = memoryview(data)
        while rest:
            written = os.pwrite(self._file, rest, offset)
            rest, offset = rest[written:], offset + written

    def finish(self) -> FileFacts | None:
        if self._temporary is None:
            return FileFacts(self._path.stat().st_size)
        os.fsync(self._file)
        size = os.fstat(self._file).st_size
        failpoints.reach("lake.file_written")
        try:
            os.link(self._temporary, self._path)
        except FileExistsError:
            self.abort()
            return None
        self.abort()
        _sync_directory(self._path.parent)
        return FileFacts(size)

    def abort(self) -> None:
        if self._temporary is not None:
            os.close(self._file)
            self._temporary.unlink(missing_ok=True)
            self._temporary = None


def _make_directory(directory: Path) -> None:
    """Make a directory that outlives a power cut, as the file in it will."""
    missing = [each for each in (directory, *directory.parents) if not each.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    for made in reversed(missing):
        _sync_directory(made.parent)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
