"""Avro files whose blocks are compressed by Snappy or Zstandard, which fastavro does not bring."""

from __future__ import annotations

import io
from typing import Final

import pyarrow as pa

_SYNC_BYTES: Final = 16
_CHECKSUM_BYTES: Final = 4
CODECS: Final = ("snappy", "zstandard")


def decompress_blocks(blocks: bytes, codec: str) -> bytes:
    """Return what follows the header of an Avro file, as it would be without compression.

    Raises:
        EOFError: a block is not complete.
        pyarrow.ArrowInvalid, OSError: a block is damaged.
    """
    stream, plain = io.BytesIO(blocks), io.BytesIO()
    while stream.tell() < len(blocks):
        records, size = _read_long(stream), _read_long(stream)
        block = _decompress(_read(stream, size), codec)
        plain.write(_long(records) + _long(len(block)) + block + _read(stream, _SYNC_BYTES))
    return plain.getvalue()


def _decompress(block: bytes, codec: str) -> bytes:
    if codec == "zstandard":
        with pa.CompressedInputStream(pa.BufferReader(block), "zstd") as stream:
            return bytes(stream.read())
    block = block[:-_CHECKSUM_BYTES]
    return bytes(pa.Codec("snappy").decompress(block, _read_varint(io.BytesIO(block))))


def _read(stream: io.BytesIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) != size:
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
