"""What a file store needs of each kind of storage: one small port, spoken in keys. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from neve.limits import MIB

# Files are read in parts of this size; a file up to this size is read by one request.
PART_BYTES = 8 * MIB
# A file up to this size is written by one request, as rclone does it, which was measured to be
# faster. A larger one is written in parts.
WHOLE_BYTES = 200 * MIB
# What S3 allows.
MOST_PARTS = 10_000

# What a library has read is handed on as it is: a copy takes as long as a tenth of the whole way.
Bytes = bytes | memoryview


@dataclass(frozen=True)
class FileFacts:
    """What a store knows of a file.

    Args:
        digest: the MD5 that the store computed, see `file_digest`; None: it gives none.
    """

    size: int
    digest: str | None = None


@dataclass(frozen=True)
class ListedFile:
    """A file of a listing.

    Args:
        modified: when it was written, in seconds since 1970, by the store's clock.
    """

    path: str
    size: int
    modified: float


@dataclass(frozen=True)
class Content(FileFacts):
    """A file and its bytes; None: it is longer than was asked for."""

    data: Bytes | None = None


class Upload(Protocol):
    """A file that is written in parts, in any order, and is not visible before `finish`."""

    def write_part(self, number: int, offset: int, data: Bytes, digest: str) -> None:
        """Write a part, the first is 0; `digest` is its MD5. Writing it again is harmless."""

    def finish(self) -> FileFacts | None:
        """Make the file visible; None: another file has the name, and this one is discarded."""

    def abort(self) -> None:
        """Discard the parts."""


class StoredFiles(Protocol):
    """The files of a directory tree or a bucket. Keys are taken letter by letter.

    Each call is one attempt. It raises FileNotFoundError where there is no such file, and
    otherwise what the library raises: `store_faults` gives both their meaning.
    """

    def facts(self, key: str) -> FileFacts | None:
        """Return what is known of a file; None: it does not exist."""

    def get(self, key: str, most_bytes: int) -> Content:
        """Read a whole file, unless it is longer than `most_bytes`."""

    def get_range(self, key: str, offset: int, length: int) -> Bytes:
        """Read part of a file: fewer bytes where it ends earlier."""

    def put_new(self, key: str, data: Bytes) -> FileFacts | None:
        """Write a file; None: there is one already, perhaps of a lost first attempt."""

    def put_stream(self, key: str, parts: Iterator[Bytes], size: int) -> FileFacts | None:
        """Write a file from its parts in order; None: there is one already."""

    def upload(self, key: str) -> Upload:
        """Begin a file that is written in parts."""

    def copy_new(
        self, source_bucket: str, source_key: str, key: str, size: int
    ) -> FileFacts | None:
        """Copy inside the store; None: there is one already.

        Raises:
            NotImplementedError: this store cannot.
        """

    def sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Yield key and size of every file whose key begins so."""

    def files(self, prefix: str) -> Iterator[ListedFile]:
        """Yield every file whose key begins so, page by page; its path is the key."""

    def directories(self, prefix: str) -> Iterator[str]:
        """Yield the names that follow a prefix, which ends with a slash, up to the next slash."""

    def has_md5_tag(self, key: str) -> bool:
        """Whether the ETag of a file is its MD5: that of an encrypted object is not."""

    def delete(self, keys: Sequence[str]) -> None:
        """Delete files; one that does not exist is no error."""


def is_written_whole(size: int) -> bool:
    """Whether a file is written by one request."""
    return size <= WHOLE_BYTES


def part_bytes(size: int) -> int:
    """Return how long the parts of a file are: it depends on the size of the file only."""
    smallest = -(-size // MOST_PARTS)
    return max(PART_BYTES, -(-smallest // MIB) * MIB)


def part_ranges(size: int) -> list[tuple[int, int]]:
    """Return offset and length of each part of a file."""
    step = part_bytes(size)
    return [(offset, min(step, size - offset)) for offset in range(0, size, step)]


def put_in_order(upload: Upload, parts: Iterator[Bytes]) -> FileFacts | None:
    """Write a file part by part, for stores that take no stream."""
    offset = 0
    try:
        for number, data in enumerate(parts):
            upload.write_part(number, offset, data, "")
            offset += len(data)
        return upload.finish()
    finally:
        upload.abort()


def md5(data: Bytes) -> str:
    """Return the MD5 as S3 reports it. It detects damage, and no forgery."""
    digest = new_md5()
    digest.update(data)
    return digest.hexdigest()


def new_md5() -> hashlib._Hash:
    return hashlib.md5(usedforsecurity=False)


def file_digest(parts: Sequence[str]) -> str:
    """Return the digest of a file from those of its parts, as S3 does it.

    One part: its MD5. Several: the MD5 of their MD5s, and their number.
    """
    if len(parts) == 1:
        return parts[0]
    digest = md5(b"".join(map(bytes.fromhex, parts)))
    return f"{digest}-{len(parts)}" if parts else digest
