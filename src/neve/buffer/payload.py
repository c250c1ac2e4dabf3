"""A buffered request, and the codecs its payload may be kept in.

A request that came compressed is kept as it came: compressing again would cost more than everything
else the receiver does.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from neve.compression import UNPACK, CompressionError
from neve.errors import CorruptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

# Below this, a zstd frame gains nothing.
COMPRESS_FROM_BYTES = 512
SENDER_BYTES = 16
HASH_BYTES = 32
NO_SENDER = bytes(SENDER_BYTES)


class Codec(IntEnum):
    """How a payload's bytes are stored."""

    IDENTITY = 0
    GZIP = 1
    ZSTD = 2


_CODEC_NAMES: Mapping[int, Literal["gzip", "zstd"]] = MappingProxyType(
    {Codec.GZIP: "gzip", Codec.ZSTD: "zstd"}
)


@dataclass(frozen=True, slots=True)
class Request:
    """One export request: its protobuf bytes as stored, and what identifies it."""

    payload: bytes
    codec: Codec
    raw_bytes: int
    records: int
    received_unix_nano: int
    sender: bytes
    content_hash: bytes
    # The name that the configuration gives to the sender's token; empty without one.
    sender_name: str = ""

    @property
    def key(self) -> bytes:
        """What makes two requests of one signal the same request."""
        return self.sender + self.content_hash


def pack(raw: bytes | bytearray) -> tuple[bytes, Codec]:
    """Compress a payload that came without compression, unless it is small."""
    if len(raw) < COMPRESS_FROM_BYTES:
        return bytes(raw), Codec.IDENTITY
    return pa.Codec("zstd", compression_level=1).compress(raw, asbytes=True), Codec.ZSTD


def unpack(stored: bytes | memoryview, codec: int, raw_bytes: int) -> bytes:
    """Return a payload's protobuf bytes, unpacking at most one byte more than it should have.

    Uses the very readers that the receiver checked it with (`neve.compression`). zlib and ISA-L do
    not accept the same gzip bodies, so what one refuses is tried with the other: earlier versions
    of the receiver used zlib.
    """
    if codec == Codec.IDENTITY:
        raw = bytes(stored)
    elif codec not in _CODEC_NAMES:
        raise CorruptionError(f"a buffered payload is in codec {codec}, which is not known")
    else:
        raw = _decompress(stored, _CODEC_NAMES[codec], raw_bytes)
    if len(raw) != raw_bytes:
        raise CorruptionError(f"a buffered payload has {len(raw)} bytes instead of {raw_bytes}")
    return raw


def _decompress(stored: bytes | memoryview, codec: Literal["gzip", "zstd"], size: int) -> bytes:
    """Unpack at most one byte more than `size`, or one step of the reader."""
    steps: list[bytes] = []
    unpacked = 0
    try:
        for step in UNPACK[codec](stored):
            steps.append(step)
            unpacked += len(step)
            if unpacked > size:
                break
    except CompressionError as error:
        try:
            with pa.CompressedInputStream(pa.BufferReader(stored), codec) as stream:
                return bytes(stream.read(size + 1))
        except OSError:
            raise CorruptionError(f"a buffered payload cannot be unpacked: {error}") from error
    return b"".join(steps)
