"""Puffin files, Iceberg's container of blobs: written as a stream, read a range at a time.

https://iceberg.apache.org/puffin-spec/. Nothing here holds more than one blob.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from neve.errors import CorruptionError, UnsupportedError

MAGIC = b"PFA1"
_TAIL = struct.Struct("<i4s4s")  # length of the footer's payload, flags, magic
_FOOTER_COMPRESSED = 1
# Enough for the footer of most files, so that one read finds it.
_FIRST_READ = 16 * 1024


@dataclass(frozen=True)
class BlobMetadata:
    """Where a blob lies in its file, and what it is."""

    type: str
    offset: int
    length: int
    fields: tuple[int, ...] = ()
    snapshot_id: int = -1
    sequence_number: int = -1
    compression_codec: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "type": self.type,
            "fields": list(self.fields),
            "snapshot-id": self.snapshot_id,
            "sequence-number": self.sequence_number,
            "offset": self.offset,
            "length": self.length,
        }
        if self.compression_codec:
            found["compression-codec"] = self.compression_codec
        if self.properties:
            found["properties"] = dict(self.properties)
        return found

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> BlobMetadata:
        return cls(
            type=found["type"],
            offset=int(found["offset"]),
            length=int(found["length"]),
            fields=tuple(found["fields"]),
            snapshot_id=int(found["snapshot-id"]),
            sequence_number=int(found["sequence-number"]),
            compression_codec=found.get("compression-codec"),
            properties=found.get("properties", {}),
        )


@dataclass(frozen=True)
class Footer:
    """What a file says of itself: its blobs in order, and its properties."""

    blobs: tuple[BlobMetadata, ...]
    properties: Mapping[str, str]
    size: int
    """In bytes, both magics and the tail included: what a StatisticsFile records."""


class PuffinWriter:
    """Write blobs one after the other to a stream, then the footer. Not atomic."""

    def __init__(self, stream: Any, properties: Mapping[str, str] | None = None) -> None:
        self._stream = stream
        self._properties = {"created-by": "Neve", **(properties or {})}
        self.blobs: list[BlobMetadata] = []
        self.size = 0
        self.footer_size = 0
        self._write(MAGIC)

    def add(
        self,
        blob_type: str,
        payload: Any,
        *,
        fields: Sequence[int] = (),
        snapshot_id: int = -1,
        sequence_number: int = -1,
        properties: Mapping[str, str] | None = None,
        compress: bool = False,
    ) -> BlobMetadata:
        """Write a blob and return where it lies; with `compress` as a zstd frame."""
        data = pa.compress(payload, codec="zstd", asbytes=True) if compress else payload
        blob = BlobMetadata(
            blob_type,
            self.size,
            len(data),
            tuple(fields),
            snapshot_id,
            sequence_number,
            "zstd" if compress else None,
            dict(properties or {}),
        )
        self._write(data)
        self.blobs.append(blob)
        return blob

    def finish(self) -> Footer:
        """Write the footer; the stream is the caller's to close."""
        footer = _encode_footer(
            {"blobs": [blob.to_json() for blob in self.blobs], "properties": self._properties}
        )
        self._write(footer)
        self.footer_size = len(footer)
        return Footer(tuple(self.blobs), self._properties, self.footer_size)

    def _write(self, data: Any) -> None:
        self._stream.write(data)
        self.size += len(data)


def read_footer(stream: Any, size: int, name: str) -> Footer:
    """Read the footer of a seekable stream of `size` bytes.

    Raises:
        CorruptionError: this is no whole Puffin file; `name` says which.
    """
    document, footer_size = _read_document(stream, size, name)
    try:
        blobs = tuple(BlobMetadata.from_json(blob) for blob in document["blobs"])
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptionError(f"{name} has a footer that cannot be read: {error}") from error
    return Footer(blobs, document.get("properties", {}), footer_size)


def edit_footer(content: bytes, name: str, edit: Callable[[dict[str, Any]], None]) -> bytes:
    """Return a file whose footer says something else; its blobs stay where they are.

    Args:
        edit: changes the footer's JSON document in place.

    Raises:
        CorruptionError: this is no whole Puffin file; `name` says which.
    """
    document, footer_size = _read_document(io.BytesIO(content), len(content), name)
    try:
        edit(document)
    except (LookupError, TypeError, AttributeError) as error:
        raise CorruptionError(f"{name} has a footer that cannot be read: {error}") from error
    return content[:-footer_size] + _encode_footer(document)


def _encode_footer(document: Mapping[str, Any]) -> bytes:
    payload = json.dumps(document).encode()
    return MAGIC + payload + _TAIL.pack(len(payload), bytes(4), MAGIC)


def _read_document(stream: Any, size: int, name: str) -> tuple[dict[str, Any], int]:
    """Return a footer's JSON document, and how long the whole footer is."""
    near = read_range(stream, max(0, size - _FIRST_READ), min(size, _FIRST_READ), name)
    if len(near) < _TAIL.size or near[-len(MAGIC) :] != MAGIC:
        raise CorruptionError(f"{name} is not a whole Puffin file: its last bytes are not PFA1")
    length, flags, _ = _TAIL.unpack(near[-_TAIL.size :])
    footer_size = len(MAGIC) + length + _TAIL.size
    if length < 0 or footer_size > size:
        raise CorruptionError(f"{name} is not a whole Puffin file: its footer is longer than it")
    if flags[0] & _FOOTER_COMPRESSED:
        raise UnsupportedError(f"{name} has a compressed footer")
    if footer_size > len(near):
        near = read_range(stream, size - footer_size, footer_size, name)
    whole = near[-footer_size:]
    if whole[: len(MAGIC)] != MAGIC:
        raise CorruptionError(f"{name} has a footer that does not begin with PFA1")
    try:
        document: dict[str, Any] = json.loads(whole[len(MAGIC) : -_TAIL.size])
    except ValueError as error:
        raise CorruptionError(f"{name} has a footer that cannot be read: {error}") from error
    return document, footer_size


def read_blob(stream: Any, blob: BlobMetadata, name: str) -> bytes:
    """Read one blob and nothing else of the file, decompressed.

    Raises:
        CorruptionError: the file ends before the blob does, or the blob cannot be decompressed.
    """
    data = read_range(stream, blob.offset, blob.length, name)
    if blob.compression_codec is None:
        return data
    if blob.compression_codec != "zstd":
        raise UnsupportedError(f"{name} has a blob compressed with {blob.compression_codec}")
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as frame:
            return bytes(frame.read())
    except OSError as error:
        raise CorruptionError(f"{name} has a blob that cannot be decompressed: {error}") from error


def read_range(stream: Any, offset: int, length: int, name: str) -> bytes:
    """Read exactly these bytes.

    Raises:
        CorruptionError: the file is shorter.
    """
    if offset < 0 or length < 0:
        raise CorruptionError(f"{name} names {length} bytes at {offset}")
    stream.seek(offset)
    data: bytes = stream.read(length)
    if len(data) != length:
        raise CorruptionError(f"{name} ends at {offset + len(data)}, before {offset + length}")
    return data
