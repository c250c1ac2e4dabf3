"""Unpack gzip and zstd step by step, so that a hostile body cannot fill memory.

The receiver checks requests with these functions and consolidation reads them back with the same
ones: what was accepted can always be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from isal import igzip_lib

from neve.limits import KIB, MAX_GZIP_MEMBERS

if TYPE_CHECKING:
    from collections.abc import Mapping

# Memory follows what a body really holds: so much is unpacked at a time.
STEP_BYTES = 128 * KIB
# What remains of the input behind a gzip member is copied: so much of it is given at a time.
INPUT_BYTES = 64 * KIB

GZIP_ERROR: Any = igzip_lib.error  # its types call it an instance


class CompressionError(Exception):
    """The compressed bytes are damaged or cut short."""


def gunzip(body: bytes | memoryview) -> Iterator[bytes]:
    """Yield what a gzip body holds, over all its members.

    Raises:
        CompressionError: at the step that cannot be unpacked.
    """
    view = memoryview(body)
    position = 0
    for _ in range(MAX_GZIP_MEMBERS):
        member = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
        while not member.eof:
            if member.needs_input and position == len(view):
                raise CompressionError("the gzip data is cut short")
            given = view[position : position + INPUT_BYTES] if member.needs_input else b""
            position += len(given)
            try:
                step = member.decompress(given, STEP_BYTES)
            except GZIP_ERROR as error:
                raise CompressionError(f"the gzip data is damaged: {error}") from error
            if step:
                yield step
        position -= len(member.unused_data)
        if position == len(view):
            return
    raise CompressionError(f"the gzip data has more than {MAX_GZIP_MEMBERS} members")


def gunzip_small(body: bytes, most_bytes: int) -> bytes | None:
    """Return what a small gzip body holds, in one step.

    None when it holds more than `most_bytes`, has several members or is damaged: `gunzip` says.
    """
    member = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
    try:
        unpacked = member.decompress(body, most_bytes)
    except GZIP_ERROR:
        return None
    return unpacked if member.eof and not member.unused_data else None


def unzstd(body: bytes | memoryview) -> Iterator[bytes]:
    """Yield what a zstd body holds, over all its frames. Raises CompressionError."""
    try:
        with pa.CompressedInputStream(pa.BufferReader(body), "zstd") as stream:
            while step := stream.read(STEP_BYTES):
                yield step
    except OSError as error:
        raise CompressionError(f"the zstd data is damaged: {error}") from error


UNPACK: Mapping[str, Callable[[bytes | memoryview], Iterator[bytes]]] = MappingProxyType(
    {"gzip": gunzip, "zstd": unzstd}
)
