"""The files that a catalog's tables consist of, read and written without an engine.

One `FileStore` has the credentials of one catalog. Nothing is ever overwritten: a write finds the
name free, or says that it is taken.
"""

from __future__ import annotations

import io
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TypeVar

from obstore.exceptions import BaseError
from obstore.store import from_url

from neve.errors import (
    ConflictError,
    CorruptionError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from neve.lake.file_copy import Copied, FileCopy
from neve.lake.local_faults import one_line
from neve.lake.local_files import TEMPORARY_PREFIX, LocalFiles
from neve.lake.object_access import object_access
from neve.lake.object_files import ObjectFiles
from neve.lake.paths import StorePath, store_path
from neve.lake.profile import CatalogProfile
from neve.lake.ranged_file import RangedFile
from neve.lake.s3_files import S3Files
from neve.lake.store_faults import WRITING, explaining, repeated
from neve.lake.stored_files import (
    Bytes,
    FileFacts,
    ListedFile,
    StoredFiles,
    file_digest,
    is_written_whole,
    md5,
    new_md5,
    part_ranges,
)

Result = TypeVar("Result")

# How names of files begin that try a store out.
PROBE_PREFIX = "neve-probe-"
# Requests that ask for sizes, at the same time.
_SIZES_AT_ONCE = 32
# Parts of large files at the same time, of all files together: what bounds the memory of copies,
# beside one part for each file that is copied.
_PARTS_AT_ONCE = 8
_ANY_SIZE = 1 << 62
# Files of a listing that are handed on together.
_PAGE = 1000


class FileStore:
    """Files by any spelling of their path: `s3://`, `s3a://`, `file:`, `/…`, other stores'.

    Paths are taken letter by letter: `%20` in a path is three letters of the name. Requests that
    fail in passing are repeated; every method may be called from many threads. Pickled, a store is
    connected again on the other side.
    """

    def __init__(
        self,
        profile: CatalogProfile,
        vended: Mapping[str, str] | None = None,
        temporary_prefix: str = TEMPORARY_PREFIX,
    ) -> None:
        """Open nothing yet.

        Args:
            vended: properties that the catalog gave out for a table; they replace the profile's.
            temporary_prefix: how names of local files begin that are not complete.
        """
        self._arguments = profile, vended, temporary_prefix
        self._temporary_prefix = temporary_prefix
        self.access = object_access(profile, vended or {})
        self._buckets: dict[tuple[str, str], StoredFiles] = {}
        # Buckets whose ETags were seen to be MD5s, and those where one was not.
        self._md5_tags: set[StoredFiles] = set()
        self._opaque_tags: set[StoredFiles] = set()
        self._lock = threading.Lock()
        self.parts = ThreadPoolExecutor(_PARTS_AT_ONCE, "parts")

    def __reduce__(
        self,
    ) -> tuple[type[FileStore], tuple[CatalogProfile, Mapping[str, str] | None, str]]:
        return FileStore, self._arguments

    def close(self) -> None:
        self.parts.shutdown()

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
        content = self.request("cannot read", path, lambda files, key: files.get(key, _ANY_SIZE))
        data = bytes(content.data or b"")
        if content.digest:
            self.confirm_read(path, md5(data), content)
        return data

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Return part of a file; fewer bytes where it ends earlier."""
        if length == 0:
            return b""
        return bytes(self.view_range(path, offset, length))

    def view_range(self, path: str, offset: int, length: int) -> Bytes:
        """Do the same, without a copy of what the library has read."""
        return self.request(
            "cannot read", path, lambda files, key: files.get_range(key, offset, length)
        )

    def open(self, path: str) -> io.BufferedReader:
        """Open a file for reading: seekable, as pyarrow wants it."""
        facts = self.facts(path)
        if facts is None:
            raise NotFoundError(f"cannot read: {path} does not exist")
        return io.BufferedReader(RangedFile(partial(self.read_range, path), facts.size), 1 << 20)

    def size(self, path: str) -> int | None:
        """Return how long a file is; None: it does not exist."""
        facts = self.facts(path)
        return facts.size if facts else None

    def sizes(self, paths: Sequence[str]) -> dict[str, int | None]:
        """Return how long files are, many at once."""
        with ThreadPoolExecutor(_SIZES_AT_ONCE) as pool:
            return dict(zip(paths, pool.map(self.size, paths), strict=True))

    def list_sizes(self, prefix: str) -> dict[str, int]:
        """Return every file below a directory; paths begin as `prefix` is spelled."""
        directory = prefix.rstrip("/") + "/"
        bucket, key = self.locate(directory)
        listing = repeated(lambda: list(bucket.sizes(key)), "cannot list", prefix)
        return {directory + found[len(key) :]: size for found, size in listing}

    def list_files(self, prefix: str) -> Iterator[ListedFile]:
        """Yield every file below a directory, page by page: a listing of any length is never held.

        Paths begin as `prefix` is spelled. A page that cannot be had ends the listing with an
        error: whoever reads on knows of all files, or of the failure.
        """
        directory = prefix.rstrip("/") + "/"
        bucket, key = self.locate(directory)
        files = bucket.files(key)
        while True:
            # Not repeated: a listing that has failed does not go on where it was.
            with explaining("cannot list", prefix):
                page = list(islice(files, _PAGE))
            yield from (replace(each, path=directory + each.path[len(key) :]) for each in page)
            if len(page) < _PAGE:
                return

    def list_directories(self, path: str) -> Iterator[str]:
        """Yield the names of the directories in a directory, page by page; of no deeper ones."""
        bucket, key = self.locate(path.rstrip("/") + "/")
        names = bucket.directories(key)
        while True:
            # Not repeated, as in `list_files`.
            with explaining("cannot list", path):
                page = list(islice(names, _PAGE))
            yield from page
            if len(page) < _PAGE:
                return

    def write_new(self, path: str, content: Bytes, checksum: str | None = None) -> bool:
        """Write a file if nothing has its name. Atomic, durable.

        Args:
            checksum: its MD5, where that is known: it takes longer than anything else here.

        Returns:
            False: something is there. It may be this very content, of an attempt whose answer was
            lost.
        """
        facts = self.request(WRITING, path, lambda files, key: files.put_new(key, content))
        if facts:
            self.confirm_written(path, len(content), checksum or md5(content), facts)
        return facts is not None

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files; one that does not exist is no error."""
        for path in paths:
            self.request("cannot delete", path, lambda files, key: files.delete([key]))

    def check_conditional_put(self, directory: str) -> None:
        """Refuse a store on which two writers could overwrite each other; leaves nothing there.

        Raises:
            UnsupportedError: a file replaced another.
        """
        path = f"{directory.rstrip('/')}/{PROBE_PREFIX}{secrets.token_hex(8)}"
        self.write_new(path, b"first")
        try:
            if self.write_new(path, b"second"):
                raise UnsupportedError(
                    f"the store of {directory} ignores If-None-Match: a file can be overwritten",
                    hint="move to a store with conditional writes, or to a local directory",
                )
        finally:
            self.delete([path])

    def checksum(self, path: str) -> str:
        """Return the MD5 of a file: read it, whatever the store says of it.

        Of a file that is written in parts, it is the MD5 of the parts' MD5s and their count, as S3
        has it; whether it is, and how long the parts are, follows from the length of the file.
        """
        size = self.size(path)
        if size is None:
            raise NotFoundError(f"cannot read: {path} does not exist")
        parts = (self.read_range(path, *part) for part in part_ranges(size))
        if not is_written_whole(size):
            return file_digest([md5(part) for part in parts])
        digest = new_md5()
        for part in parts:
            digest.update(part)
        return digest.hexdigest()

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
        return FileCopy(source, self, source_path, target_path, on_bytes).run(size)

    def confirm_read(self, path: str, checksum: str, facts: FileFacts) -> None:
        """Compare what was read with what the store says of the file.

        Only where ETags are MD5s: some other file of the bucket has shown it, and no encryption.
        """
        if facts.digest is None or "-" in facts.digest:
            return
        files, key = self.locate(path)
        if facts.digest == checksum:
            self._md5_tags.add(files)
        elif files in self._md5_tags and repeated(
            lambda: files.has_md5_tag(key), "cannot read", path
        ):
            raise damaged(path)

    def confirm_written(self, path: str, size: int, checksum: str, facts: FileFacts) -> None:
        """Compare what was written with what the store says of the file.

        A different ETag is damage, or no MD5: reading the file tells, once for a bucket.
        """
        files, _ = self.locate(path)
        if facts.size != size:
            raise damaged(path)
        if facts.digest in (None, checksum) or files in self._opaque_tags:
            return
        if self.checksum(path) != checksum:
            raise damaged(path)
        self._opaque_tags.add(files)

    def check_existing(self, path: str, size: int, checksum: Callable[[], str]) -> str:
        """Accept a file that is there already, if it is the same; return its checksum.

        Raises:
            ConflictError: it is another.
        """
        facts = self.facts(path)
        if facts is None:
            raise StorageError(
                f"the upload of {path} was ended by somebody else",
                hint="run the command again: it goes on where it stopped",
                retryable=True,
            )
        if facts.size == size:
            expected = checksum()
            if expected == facts.digest or expected == self.checksum(path):
                return expected
        raise ConflictError(
            f"another file is at {path} already",
            hint="choose another --location, or remove what an earlier move left there",
        )

    def facts(self, path: str) -> FileFacts | None:
        """Return what the store knows of a file; None: it does not exist."""
        return self.request("cannot read", path, lambda files, key: files.facts(key))

    def request(
        self, what: str, path: str, request: Callable[[StoredFiles, str], Result]
    ) -> Result:
        """Ask the store of a path; repeat what fails in passing."""
        files, key = self.locate(path)
        return repeated(lambda: request(files, key), what, path)

    def locate(self, path: str) -> tuple[StoredFiles, str]:
        """Return the bucket of a path, and the key in it."""
        place = store_path(path)
        bucket = (place.scheme, place.bucket)
        with self._lock:
            if bucket not in self._buckets:
                self._buckets[bucket] = self._open_bucket(place)
            return self._buckets[bucket], place.key

    def _open_bucket(self, place: StorePath) -> StoredFiles:
        if place.is_local:
            return LocalFiles(self._temporary_prefix)
        if place.is_s3:
            return S3Files(place.bucket, self.access)
        try:
            return ObjectFiles(from_url(f"{place.scheme}://{place.bucket}/"))
        except (BaseError, ValueError) as error:
            raise UnsupportedError(
                f"files of {place.scheme}://{place.bucket} cannot be reached: {one_line(error)}",
                hint="a move reads and writes local directories and object stores",
            ) from error


def damaged(path: str) -> CorruptionError:
    return CorruptionError(
        f"{path} has other bytes than its store's checksum says",
        hint="the file is damaged, or was on its way; run the command again, or restore the file",
    )
