"""Content encodings, unpacked under a limit that a hostile body cannot exceed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from neve.compression import UNPACK, CompressionError, gunzip_small
from neve.errors import MalformedError, TooLargeError, UnsupportedError
from neve.limits import MAX_JSON_BYTES

# What a client may say in Content-Encoding or grpc-encoding for no compression.
IDENTITY = ("", "identity", "none")


@lru_cache(maxsize=64)
def codec_name(encoding: str) -> str | None:
    """Return `gzip` or `zstd`, or None for no compression.

    Raises:
        UnsupportedError: the encoding is not one of OTLP's, or Neve's zstd.
    """
    name = encoding.strip().lower()
    if name in IDENTITY:
        return None
    if name in UNPACK:
        return name
    raise UnsupportedError(
        f"content encoding {encoding!r} is not supported",
        hint="Send gzip, zstd or no compression.",
    )


def size_limit(limit: int, *, json: bool) -> int:
    """Return how many bytes a request may have, where `limit` is that of protobuf."""
    return min(limit, MAX_JSON_BYTES) if json else limit


def check_size(size: int, limit: int) -> None:
    """Refuse a request of more than `limit` bytes. Raises TooLargeError."""
    if size > limit:
        raise TooLargeError(
            f"the request is larger than {limit} bytes",
            hint="Send smaller batches, or raise receive.max_request_bytes.",
        )


def unpack_small(body: bytes, codec: str, most_bytes: int) -> bytes | None:
    """Unpack a body in one step if that is certain to be cheap; None when it is not."""
    if codec == "gzip" and len(body) <= most_bytes:
        return gunzip_small(body, most_bytes)
    return None


def unpack_steps(body: bytes, codec: str, limit: int) -> Iterator[bytes]:
    """Yield what a compressed body holds, a step at a time; at most one step beyond `limit`.

    Raises:
        TooLargeError: the body is longer than `limit`.
        MalformedError: the compressed data is damaged or cut short.
    """
    size = 0
    try:
        for step in UNPACK[codec](body):
            size += len(step)
            check_size(size, limit)
            yield step
    except CompressionError as error:
        raise MalformedError(f"the {codec} body cannot be unpacked: {error}") from error
    if not body:
        raise MalformedError(f"the {codec} body is empty")


def unpack(body: bytes, encoding: str, limit: int) -> bytes:
    """Return a whole body without its compression, of at most `limit` bytes.

    Raises:
        TooLargeError, MalformedError, UnsupportedError: see `unpack_steps` and `codec_name`.
    """
    codec = codec_name(encoding)
    if codec is None:
        check_size(len(body), limit)
        return body
    return b"".join(unpack_steps(body, codec, limit))
