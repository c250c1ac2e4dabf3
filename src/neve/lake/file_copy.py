"""Copy a file between two stores, or inside one: whole, compared, never over another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from neve import failpoints
from neve.errors import CorruptionError, NotFoundError, StorageError
from neve.lake.paths import store_path
from neve.lake.store_faults import WRITING, repeated
from neve.lake.stored_files import (
    PART_BYTES,
    Bytes,
    Content,
    FileFacts,
    StoredFiles,
    file_digest,
    is_written_whole,
    md5,
    new_md5,
    part_ranges,
)
from neve.limits import MIB

if TYPE_CHECKING:
    from neve.lake.file_store import FileStore

# A smaller file is read and written here: fewer requests than a copy inside the store.
_SMALL_BYTES = MIB
# A file that was damaged on its way is sent again.
_ATTEMPTS = 3


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


class FileCopy:
    """One file that is copied; `FileStore.copy_in` has the contract."""

    def __init__(
        self,
        source: FileStore,
        target: FileStore,
        source_path: str,
        target_path: str,
        on_bytes: Callable[[int], None],
    ) -> None:
        self.source, self.target = source, target
        self.source_path, self.target_path = source_path, target_path
        self._on_bytes = on_bytes

    def run(self, size: int | None) -> Copied:
        if self._is_inside_one_store():
            size = self._source_facts(size).size
            if size > _SMALL_BYTES:
                return self._copy_inside(size)
        if size is None or size <= PART_BYTES:
            content = self.source.request(
                "cannot copy", self.source_path, lambda files, key: files.get(key, PART_BYTES)
            )
            _check_length(self.source_path, size, content.size)
            if content.data is not None:
                return self._copy_small(content, content.data)
        facts = self._source_facts(size)
        if self.target.facts(self.target_path) is not None:
            return self._accept_existing(facts.size, self._source_checksum)
        if not is_written_whole(facts.size):
            return self._copy_parts(facts.size)
        return self._copy_stream(facts)

    def _is_inside_one_store(self) -> bool:
        schemes = {store_path(self.source_path).scheme, store_path(self.target_path).scheme}
        return schemes == {"s3"} and self.source.access == self.target.access

    def _source_facts(self, size: int | None) -> FileFacts:
        facts = self.source.facts(self.source_path)
        if facts is None:
            raise NotFoundError(f"cannot copy: {self.source_path} does not exist")
        _check_length(self.source_path, size, facts.size)
        return facts

    def _source_checksum(self) -> str:
        return self.source.checksum(self.source_path)

    def _accept_existing(self, size: int, checksum: Callable[[], str]) -> Copied:
        known = self.target.check_existing(self.target_path, size, checksum)
        return Copied(size, known, existed=True)

    def _copy_inside(self, size: int) -> Copied:
        if self.target.facts(self.target_path) is None:
            place = store_path(self.source_path)
            facts = self.target.request(
                "cannot copy",
                self.target_path,
                lambda files, key: files.copy_new(place.bucket, place.key, key, size),
            )
            self._on_bytes(size)
            if facts is not None:
                return Copied(size, f"store:{facts.digest}")
        return self._accept_existing(size, self._source_checksum)

    def _copy_small(self, content: Content, data: Bytes) -> Copied:
        checksum = md5(data)
        self.source.confirm_read(self.source_path, checksum, content)
        self._on_bytes(len(data))
        if self.target.write_new(self.target_path, data, checksum):
            return Copied(len(data), checksum)
        return self._accept_existing(len(data), lambda: checksum)

    def _copy_stream(self, facts: FileFacts) -> Copied:
        """Write the file by one request, while it is read in parts."""
        for attempt in range(1, _ATTEMPTS + 1):
            stream = _Stream(self, facts.size)
            written = self.target.request(WRITING, self.target_path, stream.put)
            if written is None:
                return self._accept_existing(facts.size, self._source_checksum)
            checksum = stream.checksum
            try:
                self.source.confirm_read(self.source_path, checksum, facts)
                self.target.confirm_written(self.target_path, facts.size, checksum, written)
                break
            except CorruptionError:
                # It is ours: nothing had the name before.
                self.target.delete([self.target_path])
                if attempt == _ATTEMPTS:
                    raise
        return Copied(facts.size, checksum)

    def _copy_parts(self, size: int) -> Copied:
        """Write the parts of a file side by side."""
        upload = self.target.request(
            WRITING, self.target_path, lambda files, key: files.upload(key)
        )

        def copy_part(number: int, offset: int, length: int) -> str:
            data = self.read_part(offset, length)
            self._on_bytes(length)
            digest = md5(data)
            repeated(
                lambda: upload.write_part(number, offset, data, digest),
                WRITING,
                self.target_path,
            )
            failpoints.reach("lake.part_written")
            return digest

        parts: list[Future[str]] = []
        try:
            for number, (offset, length) in enumerate(part_ranges(size)):
                parts.append(self.target.parts.submit(copy_part, number, offset, length))
            checksum = file_digest([part.result() for part in parts])
            facts = repeated(upload.finish, WRITING, self.target_path)
        finally:
            for part in parts:
                part.cancel()
            wait(parts)
            with suppress(StorageError):
                repeated(upload.abort, WRITING, self.target_path)
        if facts is None:
            return self._accept_existing(size, lambda: checksum)
        self.target.confirm_written(self.target_path, size, checksum, facts)
        return Copied(size, checksum)

    def read_part(self, offset: int, length: int) -> Bytes:
        data = self.source.view_range(self.source_path, offset, length)
        _check_length(self.source_path, length, len(data))
        return data

    def tell(self, size: int) -> None:
        self._on_bytes(size)


class _Stream:
    """The parts of a file in order, each read while the one before is sent."""

    def __init__(self, copy: FileCopy, size: int) -> None:
        self._copy = copy
        self._size = size
        self._told = 0
        self._digest = new_md5()

    @property
    def checksum(self) -> str:
        return self._digest.hexdigest()

    def put(self, files: StoredFiles, key: str) -> FileFacts | None:
        """Make one attempt; the next one begins anew."""
        self._digest = new_md5()
        return files.put_stream(key, self._parts(), self._size)

    def _parts(self) -> Iterator[Bytes]:
        ranges = part_ranges(self._size)
        submit = self._copy.target.parts.submit
        ahead = submit(self._copy.read_part, *ranges[0])
        for (offset, length), following in zip(ranges, [*ranges[1:], None], strict=True):
            data = ahead.result()
            if following is not None:
                ahead = submit(self._copy.read_part, *following)
            self._digest.update(data)
            if offset >= self._told:
                self._told = offset + length
                self._copy.tell(length)
            yield data
            failpoints.reach("lake.part_written")


def _check_length(path: str, expected: int | None, actual: int) -> None:
    if expected is not None and expected != actual:
        raise CorruptionError(
            f"{path} has {actual} bytes, and the table's metadata says {expected}",
            hint="the file was truncated or replaced; restore it, or expire its snapshots",
        )
