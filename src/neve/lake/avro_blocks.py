"""The blocks of Avro files: compressed and not, by codecs that fastavro does not bring, too."""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

_SYNC_BYTES: Final = 16
_CHECKSUM_BYTES: Final = 4
_RAW_DEFLATE: Final = -15
CODECS: Final = ("null", "deflate", "snappy", "zstandard")


@dataclass(frozen=True)
class BlockPlace:
    """How many records a block has, where it begins, in bytes behind the header, and ends."""

    records: int
    start: int
    end: int


def locate_blocks(blocks: bytes) -> Iterator[BlockPlace]:
    """Yield where the blocks lie, without decompressing them. Raises EOFError: one is cut off.

    Args:
        blocks: what follows the header of an Avro file.
    """
    stream = io.BytesIO(blocks)
    while (start := stream.tell()) < len(blocks):
        records, size = _read_long(stream), _read_long(stream)
        end = stream.tell() + size + _SYNC_BYTES
        if size < 0 or end > len(blocks):
            raise EOFError
        stream.seek(end)
        yield BlockPlace(records, start, end)


def read_blocks(blocks: bytes, codec: str) -> Iterator[tuple[int, bytes]]:
    """Yield how many records each block has, and the records, decompressed.

    Args:
        blocks: what follows the header of an Avro file.

    Raises:
        EOFError: a block is not complete.
        ValueError, OSError, zlib.error: a block is damaged.
    """
    stream = io.BytesIO(blocks)
    while stream.tell() < len(blocks):
        records, size = _read_long(stream), _read_long(stream)
        block = _read(stream, size)
        _read(stream, _SYNC_BYTES)
        yield records, _decompress(block, codec)


def block_bytes(records: int, content: bytes, codec: str, sync: bytes) -> bytes:
    """Return a block as it lies in a file."""
    block = _compress(content, codec)
    return _long(records) + _long(len(block)) + block + sync


def decompress_blocks(blocks: bytes, codec: str, sync: bytes) -> bytes:
    """Return what follows the header of an Avro file, as it would be without compression."""
    plain = (
        block_bytes(records, block, "null", sync) for records, block in read_blocks(blocks, codec)
    )
    return b"".join(plain)


def _decompress(block: bytes, codec: str) -> bytes:
    if codec == "null":
        return block
    if codec == "deflate":
        return zlib.decompress(block, _RAW_DEFLATE)
    if codec == "zstandard":
        with pa.CompressedInputStream(pa.BufferReader(block), "zstd") as stream:
            return bytes(stream.read())
    block, checksum = block[:-_CHECKSUM_BYTES], block[-_CHECKSUM_BYTES:]
    plain = bytes(pa.Codec("snappy").decompress(block, _read_varint(io.BytesIO(block))))
    if checksum != _checksum(plain):
        raise ValueError(checksum)
    return plain


def _compress(block: bytes, codec: str) -> bytes:
    if codec == "null":
        return block
    if codec == "deflate":
        deflate = zlib.compressobj(wbits=_RAW_DEFLATE)
        return deflate.compress(block) + deflate.flush()
    if codec == "zstandard":
        return bytes(pa.compress(block, codec="zstd", asbytes=True))
    return bytes(pa.compress(block, codec="snappy", asbytes=True)) + _checksum(block)


def _checksum(plain: bytes) -> bytes:
    return zlib.crc32(plain).to_bytes(_CHECKSUM_BYTES, "big")


def _read(stream: io.BytesIO, size: int) -> bytes:
    data = stream.read(size)
    if size < 0 or len(data) != size:
        raise EOFError
    return data


def _read_long(stream: io.BytesIO) -> int:
    number = _read_varint(stream)
    return (number >> 1) ^ -(number & 1)


def _read_varint(stream: io.BytesIO) -> int:
    number = shift = 0
    while True:
        (byte,) = _read(stream, 1)
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number
        shift += 7


def _long(number: int) -> bytes:
    """Encode a number that is not negative, as Avro does."""
    number <<= 1
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])
