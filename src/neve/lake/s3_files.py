"""Files of S3 and of stores that speak its protocol.

obstore does the many small requests: it is several times as fast. boto3 does what obstore cannot:
uploads in parts that refuse to overwrite, copies inside the store, and keys with empty segments
(`a//b`), which other engines write.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from neve.lake.object_access import ObjectAccess
from neve.lake.object_files import ObjectFiles, digest_of, is_plain
from neve.lake.s3_store import s3_store
from neve.lake.stored_files import Bytes, Content, FileFacts, ListedFile, part_ranges

# Parts of one file that the store copies at the same time.
_COPIES_AT_ONCE = 8
_CONNECTIONS = 64
_ABSENT = frozenset({"404", "NoSuchKey", "NotFound"})
_PRESENT = frozenset({"PreconditionFailed", "412"})


class S3Files:
    """The `StoredFiles` of a bucket."""

    def __init__(self, bucket: str, access: ObjectAccess) -> None:
        self._bucket = bucket
        self._access = access

    @cached_property
    def _objects(self) -> ObjectFiles:
        return ObjectFiles(s3_store(self._bucket, self._access))

    @cached_property
    def _client(self) -> Any:
        access = self._access
        return boto3.Session().client(
            "s3",
            endpoint_url=access.endpoint,
            region_name=access.region,
            aws_access_key_id=access.access_key_id,
            aws_secret_access_key=access.secret_access_key,
            aws_session_token=access.session_token,
            config=Config(
                s3={
                    "addressing_style": "path" if access.path_style else "virtual",
                    # The store compares the MD5 of each part. To sign a SHA-256 as well costs a
                    # quarter of the throughput, here and there.
                    "payload_signing_enabled": False,
                },
                connect_timeout=access.connect_timeout_seconds,
                read_timeout=access.timeout_seconds,
                retries={"total_max_attempts": 1},
                max_pool_connections=_CONNECTIONS,
                # Stores that are not AWS may not know other checksums than MD5.
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            ),
        )

    def facts(self, key: str) -> FileFacts | None:
        if is_plain(key):
            return self._objects.facts(key)
        try:
            answer = self._client.head_object(Bucket=self._bucket, Key=key)
        except ClientError as error:
            if _code(error) in _ABSENT:
                return None
            raise
        return FileFacts(answer["ContentLength"], digest_of(answer.get("ETag")))

    def get(self, key: str, most_bytes: int) -> Content:
        if is_plain(key):
            return self._objects.get(key, most_bytes)
        answer = self._get_object(key)
        size = answer["ContentLength"]
        with answer["Body"] as body:
            data = body.read() if size <= most_bytes else None
        return Content(size, digest_of(answer.get("ETag")), data)

    def get_range(self, key: str, offset: int, length: int) -> Bytes:
        if is_plain(key):
            return self._objects.get_range(key, offset, length)
        answer = self._get_object(key, Range=f"bytes={offset}-{offset + length - 1}")
        with answer["Body"] as body:
            data: bytes = body.read()
        return data

    def _get_object(self, key: str, **options: str) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = self._client.get_object(
                Bucket=self._bucket, Key=key, **options
            )
        except ClientError as error:
            if _code(error) in _ABSENT:
                raise FileNotFoundError(key) from error
            raise
        return answer

    def put_new(self, key: str, data: Bytes) -> FileFacts | None:
        if is_plain(key):
            return self._objects.put_new(key, data)
        return self._put_object(key, bytes(data), len(data))

    def put_stream(self, key: str, parts: Iterator[Bytes], size: int) -> FileFacts | None:
        return self._put_object(key, _Body(parts), size)

    def _put_object(self, key: str, body: bytes | _Body, size: int) -> FileFacts | None:
        try:
            answer = self._client.put_object(
                Bucket=self._bucket, Key=key, Body=body, ContentLength=size, IfNoneMatch="*"
            )
        except ClientError as error:
            if _code(error) in _PRESENT:
                return None
            raise
        return FileFacts(size, digest_of(answer.get("ETag")))

    def upload(self, key: str) -> S3Upload:
        return S3Upload(self._client, self._bucket, key)

    def copy_new(
        self, source_bucket: str, source_key: str, key: str, size: int
    ) -> FileFacts | None:
        """Copy inside the store, in the parts that a copy through this machine would have.

        So the digest is the same; and unlike CopyObject, the end of an upload takes a condition
        on every store.
        """
        upload = self.upload(key)
        source = {"Bucket": source_bucket, "Key": source_key}

        def copy_part(numbered: tuple[int, tuple[int, int]]) -> None:
            upload.copy_part(numbered[0], source, *numbered[1])

        try:
            with ThreadPoolExecutor(_COPIES_AT_ONCE) as pool:
                list(pool.map(copy_part, enumerate(part_ranges(size))))
            return upload.finish()
        finally:
            upload.abort()

    def sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
        for file in self.files(prefix):
            yield file.path, file.size

    def files(self, prefix: str) -> Iterator[ListedFile]:
        pages = self._client.get_paginator("list_objects_v2")
        for page in pages.paginate(Bucket=self._bucket, Prefix=prefix):
            for item in page.get("Contents", ()):
                yield ListedFile(item["Key"], item["Size"], item["LastModified"].timestamp())

    def directories(self, prefix: str) -> Iterator[str]:
        pages = self._client.get_paginator("list_objects_v2")
        for page in pages.paginate(Bucket=self._bucket, Prefix=prefix, Delimiter="/"):
            for item in page.get("CommonPrefixes", ()):
                yield item["Prefix"][len(prefix) : -1]

    def has_md5_tag(self, key: str) -> bool:
        answer = self._client.head_object(Bucket=self._bucket, Key=key)
        by_kms = str(answer.get("ServerSideEncryption", "")).startswith("aws:kms")
        return not by_kms and "SSECustomerAlgorithm" not in answer

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._client.delete_object(Bucket=self._bucket, Key=key)


class _Body:
    """The body of a request from the parts of a file."""

    def __init__(self, parts: Iterator[Bytes]) -> None:
        self._parts = parts

    def read(self, _size: int = -1) -> Bytes:
        """Return a whole part, however little was asked for: http.client sends what it gets."""
        return next(self._parts, b"")


class S3Upload:
    """A multipart upload that ends only if no file has the name."""

    def __init__(self, client: Any, bucket: str, key: str) -> None:
        self._client = client
        self._where = {"Bucket": bucket, "Key": key}
        self._id: str | None = client.create_multipart_upload(**self._where)["UploadId"]
        self._digests: dict[int, str] = {}
        self._size = 0

    def write_part(self, number: int, offset: int, data: Bytes, digest: str) -> None:
        self._client.upload_part(
            **self._where,
            UploadId=self._id,
            PartNumber=number + 1,
            Body=bytes(data),
            ContentMD5=b64encode(bytes.fromhex(digest)).decode(),
        )
        self._part_done(number, offset + len(data), digest)

    def copy_part(self, number: int, source: dict[str, str], offset: int, length: int) -> None:
        answer = self._client.upload_part_copy(
            **self._where,
            UploadId=self._id,
            PartNumber=number + 1,
            CopySource=source,
            CopySourceRange=f"bytes={offset}-{offset + length - 1}",
        )
        self._part_done(number, offset + length, answer["CopyPartResult"]["ETag"].strip('"'))

    def _part_done(self, number: int, end: int, digest: str) -> None:
        self._digests[number] = digest
        self._size = max(self._size, end)

    def finish(self) -> FileFacts | None:
        parts = [
            {"PartNumber": number + 1, "ETag": f'"{digest}"'}
            for number, digest in sorted(self._digests.items())
        ]
        try:
            answer = self._client.complete_multipart_upload(
                **self._where,
                UploadId=self._id,
                MultipartUpload={"Parts": parts},
                IfNoneMatch="*",
            )
        except ClientError as error:
            # Without the upload, an attempt before has ended it, and its answer was lost.
            if _code(error) in _PRESENT | {"NoSuchUpload"}:
                return None
            raise
        self._id = None
        return FileFacts(self._size, digest_of(answer.get("ETag")))

    def abort(self) -> None:
        if self._id is not None:
            self._client.abort_multipart_upload(**self._where, UploadId=self._id)
            self._id = None


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code"))
