"""Files of any store that obstore knows: one client, one small class."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import obstore
from obstore.exceptions import AlreadyExistsError
from obstore.store import ObjectStore

from neve.lake.stored_files import (
    PART_BYTES,
    Bytes,
    Content,
    FileFacts,
    ListedFile,
    Upload,
    put_in_order,
)


class ObjectFiles:
    """The `StoredFiles` of a bucket; credentials of other stores than S3 come from outside."""

    def __init__(self, bucket: ObjectStore) -> None:
        self._bucket = bucket

    def facts(self, key: str) -> FileFacts | None:
        try:
            meta = obstore.head(self._bucket, key)
        except FileNotFoundError:
            return None
        return FileFacts(meta["size"], digest_of(meta["e_tag"]))

    def get(self, key: str, most_bytes: int) -> Content:
        result = obstore.get(self._bucket, key)
        meta = result.meta
        data = memoryview(result.bytes()) if meta["size"] <= most_bytes else None
        return Content(meta["size"], digest_of(meta["e_tag"]), data)

    def get_range(self, key: str, offset: int, length: int) -> Bytes:
        return memoryview(obstore.get_range(self._bucket, key, start=offset, length=length))

    def put_new(self, key: str, data: Bytes) -> FileFacts | None:
        try:
            result = obstore.put(self._bucket, key, data, mode="create", use_multipart=False)
        except AlreadyExistsError:
            # Also S3's 409, by which it asks for another attempt: nothing is there then.
            if self.facts(key) is None:
                raise
            return None
        return FileFacts(len(data), digest_of(result["e_tag"]))

    def put(self, key: str, data: Bytes) -> None:
        """Write a file, in the place of another one if there is one."""
        obstore.put(self._bucket, key, data, use_multipart=False)

    def put_stream(self, key: str, parts: Iterator[Bytes], size: int) -> FileFacts | None:  # noqa: ARG002 - S3's
        return put_in_order(self.upload(key), parts)

    def upload(self, key: str) -> Upload:
        return SpooledUpload(self, self._bucket, key)

    def copy_new(
        self, source_bucket: str, source_key: str, key: str, size: int
    ) -> FileFacts | None:
        raise NotImplementedError

    def sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
        for file in self.files(prefix):
            yield file.path, file.size

    def files(self, prefix: str) -> Iterator[ListedFile]:
        # The store's own prefixes end at a slash.
        directory = prefix.rpartition("/")[0]
        for batch in obstore.list(self._bucket, directory or None, chunk_size=1000):
            for meta in batch:
                if meta["path"].startswith(prefix):
                    modified = meta["last_modified"].timestamp()
                    yield ListedFile(meta["path"], meta["size"], modified)

    def directories(self, prefix: str) -> Iterator[str]:
        listing = obstore.list_with_delimiter(self._bucket, prefix.rstrip("/") or None)
        yield from (path.rpartition("/")[2] for path in listing["common_prefixes"])

    def has_md5_tag(self, key: str) -> bool:  # noqa: ARG002 - the port's
        return False

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            try:
                obstore.delete(self._bucket, key)
            except FileNotFoundError:
                continue


class SpooledUpload:
    """A file that is gathered on disk first: obstore takes parts in their order only.

    The name is looked at before the upload begins: a store's multipart upload has no condition.
    """

    def __init__(self, files: ObjectFiles, bucket: ObjectStore, key: str) -> None:
        self._files, self._bucket, self._key = files, bucket, key
        self._spool = tempfile.NamedTemporaryFile(prefix="neve-move-")  # noqa: SIM115 - abort

    def write_part(self, number: int, offset: int, data: Bytes, digest: str) -> None:  # noqa: ARG002 - S3's
        with Path(self._spool.name).open("r+b") as file:
            file.seek(offset)
            file.write(data)

    def finish(self) -> FileFacts | None:
        if self._files.facts(self._key):
            return None
        path = Path(self._spool.name)
        obstore.put(self._bucket, self._key, path, use_multipart=True, chunk_size=PART_BYTES)
        # Parts of our size, but not each store reports their digest.
        return FileFacts(path.stat().st_size)

    def abort(self) -> None:
        self._spool.close()


def digest_of(e_tag: str | None) -> str | None:
    """Return the MD5 in an ETag; None: the tag is something else."""
    tag = (e_tag or "").strip('"')
    digest, _, parts = tag.partition("-")
    is_md5 = len(digest) == 32 and all(letter in "0123456789abcdef" for letter in digest)
    return tag if is_md5 and (not parts or parts.isdigit()) else None


def is_plain(key: str) -> bool:
    """Whether obstore takes the key as it is: it refuses empty segments, dots, control letters."""
    segments = key.split("/")
    return key.isprintable() and not any(segment in ("", ".", "..") for segment in segments)
