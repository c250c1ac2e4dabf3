"""The files that a catalog's tables consist of, read and written without an engine.

One `FileStore` has the credentials of one catalog. Nothing is ever overwritten: a write finds the
name free, or says that it is taken.
"""

from __future__ import annotations

import io
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from obstore.exceptions import BaseError
from obstore.store import from_url

from neve import failpoints
from neve.errors import (
    ConflictError,
    CorruptionError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from neve.lake.local_faults import one_line
from neve.lake.local_files import LocalFiles
from neve.lake.object_access import object_access
from neve.lake.object_files import ObjectFiles
from neve.lake.profile import CatalogProfile
from neve.lake.ranged_file import RangedFile
from neve.lake.s3_files import S3Files
from neve.lake.store_faults import repeated
from neve.lake.store_paths import StorePath, store_path
from neve.lake.stored_files import (
    PART_BYTES,
    Content,
    FileFacts,
    StoredFiles,
    file_digest,
    md5,
    part_ranges,
)
from neve.limits import MIB

Result = TypeVar("Result")

# How names of files begin that try a store out.
PROBE_PREFIX = "neve-probe-"
# Requests that ask for sizes, at the same time.
_SIZES_AT_ONCE = 32
# Parts of large files at the same time, of all files together: what bounds the memory of copies,
# beside one part for each file that is copied.
_PARTS_AT_ONCE = 8
# A smaller file is read and written here: fewer requests than a copy inside the store.
_SMALL_BYTES = MIB
_ANY_SIZE = 1 << 62


@dataclass(frozen=True)
class Copied:
    """A file that was copied.

    Args:
        checksum: of the bytes that were read and that the target has; see `FileStore.checksum`.
            `store:…` is the ETag of a copy that the store made by itself.
        existed: the target had it already, with the same bytes.
    """

    size: int
    checksum: str
    existed: bool = False


class FileStore:
    """Files by any spelling of their path: `s3://`, `s3a://`, `file:`, `/…`, other stores'.

    Paths are taken letter by letter: `%20` in a path is three letters of the name. Requests that
    fail in passing are repeated; every method may be called from many threads.
    """

    def __init__(self, profile: CatalogProfile, vended: Mapping[str, str] | None = None) -> None:
        self._access = object_access(profile, vended or {})
        self._buckets: dict[tuple[str, str], StoredFiles] = {}
        # Buckets whose ETags were seen to be MD5s, and those where one was not.
        self._md5_tags: set[StoredFiles] = set()
        self._opaque_tags: set[StoredFiles] = set()
        self._lock = threading.Lock()
        self._parts = ThreadPoolExecutor(_PARTS_AT_ONCE, "parts")

    def close(self) -> None:
        self._parts.shutdown()

    def __enter__(self) -> FileStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, path: str) -> bytes:
        """Return the bytes of a file.

        Raises:
            NotFoundError: there is no such file.
            CorruptionError: the store has another MD5 of it.
        """
        content = self._call("cannot read", path, lambda files, key: files.get(key, _ANY_SIZE))
        data = content.data or b""
        if content.digest:
            self._confirm_read(path, md5(data), content)
        return data

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Return part of a file; fewer bytes where it ends earlier."""
        if length == 0:
            return b""
        return self._call(
            "cannot read", path, lambda files, key: files.get_range(key, offset, length)
        )

    def open(self, path: str) -> io.BufferedReader:
        """Open a file for reading: seekable, as pyarrow wants it."""
        facts = self._facts(path)
        if facts is None:
            raise NotFoundError(f"cannot read: {path} does not exist")
        return io.BufferedReader(RangedFile(partial(self.read_range, path), facts.size), 1 << 20)

    def size(self, path: str) -> int | None:
        """Return how long a file is; None: it does not exist."""
        facts = self._facts(path)
        return facts.size if facts else None

    def sizes(self, paths: Sequence[str]) -> dict[str, int | None]:
        """Return how long files are, many at once."""
        with ThreadPoolExecutor(_SIZES_AT_ONCE) as pool:
            return dict(zip(paths, pool.map(self.size, paths), strict=True))

    def list_sizes(self, prefix: str) -> dict[str, int]:
        """Return every file below a directory; paths begin as `prefix` is spelled."""
        directory = prefix.rstrip("/") + "/"
        bucket, key = self._locate(directory)
        listing = repeated(lambda: list(bucket.sizes(key)), "cannot list", prefix)
        return {directory + found[len(key) :]: size for found, size in listing}

    def write_new(self, path: str, content: bytes) -> bool:
        """Write a file if nothing has its name. Atomic, durable.

        Returns:
            False: something is there. It may be this very content, of an attempt whose answer was
            lost.
        """
        facts = self._call("cannot write", path, lambda files, key: files.put_new(key, content))
        if facts:
            self._confirm_written(path, len(content), md5(content), facts)
        return facts is not None

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files; one that does not exist is no error."""
        for path in paths:
            self._call("cannot delete", path, lambda files, key: files.delete([key]))

    def check_conditional_put(self, directory: str) -> None:
        """Refuse a store on which two writers could overwrite each other; leaves nothing there.

        Raises:
            UnsupportedError: a file replaced another.
        """
        path = f"{directory.rstrip('/')}/{PROBE_PREFIX}{secrets.token_hex(8)}"
        try:
            self.write_new(path, b"first")
            if self.write_new(path, b"second"):
                raise UnsupportedError(
                    f"the store of {directory} ignores If-None-Match: a file can be overwritten",
                    hint="move to a store with conditional writes, or to a local directory",
                )
        finally:
            self.delete([path])

    def checksum(self, path: str) -> str:
        """Return the MD5 of a file: read it, whatever the store says of it.

        Of a file that is longer than a part, it is the MD5 of the parts' MD5s and their count,
        as S3 has it; the length of the parts follows from the length of the file.
        """
        size = self.size(path)
        if size is None:
            raise NotFoundError(f"cannot read: {path} does not exist")
        digests = [md5(self.read_range(path, *part)) for part in part_ranges(size)]
        return file_digest(digests)

    def copy_in(
        self,
        source: FileStore,
        source_path: str,
        target_path: str,
        *,
        size: int | None = None,
        on_bytes: Callable[[int], None] = lambda _: None,
    ) -> Copied:
        """Copy a file from another store, or inside this one.

        Idempotent: a target that has the same bytes already is left alone. Atomic: the target is
        there as a whole or not at all.

        Args:
            size: how long the source must be; None: any length.
            on_bytes: is told each part before it is written, and may wait.

        Raises:
            CorruptionError: the source has another length, or the target another checksum.
            ConflictError: another file is at the target.
        """
        if self._is_one_store(source, source_path, target_path):
            size = self._source_size(source, source_path, size)
            if size > _SMALL_BYTES:
                return self._copy_inside(source_path, target_path, size, on_bytes)
        if size is None or size <= PART_BYTES:
            content = source._call(
                "cannot copy", source_path, lambda files, key: files.get(key, PART_BYTES)
            )
            _check_length(source_path, size, content.size)
            if content.data is not None:
                return self._copy_whole(source, source_path, target_path, content, on_bytes)
        return self._copy_parts(source, source_path, target_path, size, on_bytes)

    def _is_one_store(self, source: FileStore, source_path: str, target_path: str) -> bool:
        schemes = {store_path(source_path).scheme, store_path(target_path).scheme}
        return schemes == {"s3"} and source._access == self._access

    def _copy_inside(
        self, source_path: str, target_path: str, size: int, on_bytes: Callable[[int], None]
    ) -> Copied:
        if self._facts(target_path) is None:
            place = store_path(source_path)
            facts = self._call(
                "cannot copy",
                target_path,
                lambda files, key: files.copy_new(place.bucket, place.key, key, size),
            )
            on_bytes(size)
            if facts is not None:
                return Copied(size, f"store:{facts.digest}")
        return self._existing(target_path, size, lambda: self.checksum(source_path))

    def _copy_whole(
        self,
        source: FileStore,
        source_path: str,
        target_path: str,
        content: Content,
        on_bytes: Callable[[int], None],
    ) -> Copied:
        data = content.data or b""
        checksum = md5(data)
        source._confirm_read(source_path, checksum, content)
        on_bytes(len(data))
        if self.write_new(target_path, data):
            return Copied(len(data), checksum)
        return self._existing(target_path, len(data), lambda: checksum)

    def _copy_parts(
        self,
        source: FileStore,
        source_path: str,
        target_path: str,
        size: int | None,
        on_bytes: Callable[[int], None],
    ) -> Copied:
        actual = self._source_size(source, source_path, size)
        if self._facts(target_path) is not None:
            return self._existing(target_path, actual, lambda: source.checksum(source_path))
        upload = self._call("cannot write", target_path, lambda files, key: files.upload(key))

        def copy_part(number: int, offset: int, length: int) -> str:
            data = source.read_range(source_path, offset, length)
            _check_length(source_path, length, len(data))
            on_bytes(length)
            digest = repeated(
                lambda: upload.write_part(number, offset, data), "cannot write", target_path
            )
            failpoints.reach("lake.part_written")
            return digest

        parts: list[Future[str]] = []
        try:
            for number, (offset, length) in enumerate(part_ranges(actual)):
                parts.append(self._parts.submit(copy_part, number, offset, length))
            checksum = file_digest([part.result() for part in parts])
            facts = repeated(upload.finish, "cannot write", target_path)
        finally:
            for part in parts:
                part.cancel()
            wait(parts)
            with suppress(StorageError):
                repeated(upload.abort, "cannot write", target_path)
        if facts is None:
            return self._existing(target_path, actual, lambda: checksum)
        self._confirm_written(target_path, actual, checksum, facts)
        return Copied(actual, checksum)

    @staticmethod
    def _source_size(source: FileStore, path: str, size: int | None) -> int:
        actual = source.size(path)
        if actual is None:
            raise NotFoundError(f"cannot copy: {path} does not exist")
        _check_length(path, size, actual)
        return actual

    def _confirm_read(self, path: str, checksum: str, facts: FileFacts) -> None:
        """Compare what was read with what the store says of the file.

        Only where ETags are MD5s: some other file of the bucket has shown it, and no encryption.
        """
        if facts.digest is None or "-" in facts.digest:
            return
        files, key = self._locate(path)
        if facts.digest == checksum:
            self._md5_tags.add(files)
        elif files in self._md5_tags and repeated(
            lambda: files.has_md5_tag(key), "cannot read", path
        ):
            raise _damaged(path)

    def _confirm_written(self, path: str, size: int, checksum: str, facts: FileFacts) -> None:
        """Compare what was written with what the store says of the file.

        A different ETag is damage, or no MD5: reading the file tells, once for a bucket.
        """
        files, _ = self._locate(path)
        if facts.size != size:
            raise _damaged(path)
        if facts.digest in (None, checksum) or files in self._opaque_tags:
            return
        if self.checksum(path) != checksum:
            raise _damaged(path)
        self._opaque_tags.add(files)

    def _existing(self, path: str, size: int, checksum: Callable[[], str]) -> Copied:
        """Accept a file that is at the target already, if it is the same."""
        facts = self._facts(path)
        if facts is None:
            raise StorageError(
                f"the upload of {path} was ended by somebody else",
                hint="run the command again: it goes on where it stopped",
                retryable=True,
            )
        if facts.size == size:
            expected = checksum()
            if expected == facts.digest or expected == self.checksum(path):
                return Copied(size, expected, existed=True)
        raise ConflictError(
            f"another file is at {path} already",
            hint="choose another --location, or remove what an earlier move left there",
        )

    def _facts(self, path: str) -> FileFacts | None:
        return self._call("cannot read", path, lambda files, key: files.facts(key))

    def _call(self, what: str, path: str, request: Callable[[StoredFiles, str], Result]) -> Result:
        files, key = self._locate(path)
        return repeated(lambda: request(files, key), what, path)

    def _locate(self, path: str) -> tuple[StoredFiles, str]:
        place = store_path(path)
        bucket = (place.scheme, place.bucket)
        with self._lock:
            if bucket not in self._buckets:
                self._buckets[bucket] = self._open_bucket(place)
            return self._buckets[bucket], place.key

    def _open_bucket(self, place: StorePath) -> StoredFiles:
        if place.scheme == "file":
            return LocalFiles()
        if place.scheme == "s3":
            return S3Files(place.bucket, self._access)
        try:
            return ObjectFiles(from_url(f"{place.scheme}://{place.bucket}/"))
        except (BaseError, ValueError) as error:
            raise UnsupportedError(
                f"files of {place.scheme}://{place.bucket} cannot be reached: {one_line(error)}",
                hint="a move reads and writes local directories and object stores",
            ) from error


def _check_length(path: str, expected: int | None, actual: int) -> None:
    if expected is not None and expected != actual:
        raise CorruptionError(
            f"{path} has {actual} bytes, and the table's metadata says {expected}",
            hint="the file was truncated or replaced; restore it, or expire its snapshots",
        )


def _damaged(path: str) -> CorruptionError:
    return CorruptionError(
        f"{path} has other bytes than its store's checksum says",
        hint="the file is damaged, or was on its way; run the command again, or restore the file",
    )
