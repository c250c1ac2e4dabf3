"""Content encodings, unpacked under a limit that a hostile body cannot exceed."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from neve.errors import MalformedError, TooLargeError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping

# What a client may say in Content-Encoding or grpc-encoding.
IDENTITY = ("", "identity", "none")
CODECS: Mapping[str, Literal["gzip", "zstd"]] = MappingProxyType({"gzip": "gzip", "zstd": "zstd"})

# Bodies are read in steps of this size: memory follows what a body really holds, and at most one
# step beyond the limit is ever unpacked.
STEP_BYTES = 1 << 20


def decompress(body: bytes, encoding: str, limit: int) -> bytes:
    """Unpack a request body of at most `limit` bytes.

    Raises:
        TooLargeError: the body is longer than `limit`; no more than that was unpacked.
        UnsupportedError: the encoding is not one of OTLP's, or Neve's zstd.
        MalformedError: the compressed data is corrupt or cut short.
    """
    name = encoding.strip().lower()
    if name in IDENTITY:
        unpacked = body
    elif name in CODECS:
        unpacked = _inflate(body, name, limit)
    else:
        raise UnsupportedError(
            f"content encoding {encoding!r} is not supported",
            hint="Send gzip, zstd or no compression.",
        )
    if len(unpacked) > limit:
        raise TooLargeError(
            f"the request is larger than {limit} bytes after decompression",
            hint="Send smaller batches, or raise receive.max_request_bytes.",
        )
    return unpacked


def _inflate(body: bytes, codec: str, limit: int) -> bytes:
    """Unpack at most `limit + 1` bytes, across gzip members and zstd frames."""
    if not body:
        raise MalformedError(f"the {codec} body is empty")
    steps = []
    room = limit + 1
    try:
        with pa.CompressedInputStream(pa.BufferReader(body), CODECS[codec]) as stream:
            while room and (step := stream.read(min(room, STEP_BYTES))):
                steps.append(step)
                room -= len(step)
    except OSError as error:
        raise MalformedError(f"the {codec} body cannot be unpacked: {error}") from error
    return steps[0] if len(steps) == 1 else b"".join(steps)
