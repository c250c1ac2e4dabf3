"""Open, map, list and check the files of an index."""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyiceberg.io import FileIO

from neve.errors import CorruptionError, StorageError, UnsupportedError
from neve.lake.puffin import PuffinWriter, read_blob, read_footer

_CHECKSUM = "crc32"


@contextmanager
def opened(io: FileIO, path: str) -> Iterator[tuple[Any, int]]:
    """Open a file of an index for reading and say its size.

    Raises:
        CorruptionError: it is missing.
        StorageError: the store does not let it be read now.
    """
    with _explained(path):
        source = io.new_input(path)
        stream = source.open(seekable=True)
        # Opening has asked for the size already, where pyarrow did it.
        size = stream.size() if hasattr(stream, "size") else len(source)
    with stream:
        yield stream, size


def _missing(path: str) -> CorruptionError:
    return CorruptionError(
        f"index file {path} is missing", hint="the index is rebuilt from the table"
    )


@contextmanager
def _explained(path: str) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        raise _missing(path) from error
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error}", retryable=True) from error


def add_checked(writer: PuffinWriter, blob_type: str, text: str, **metadata: Any) -> None:
    """Write a text as a compressed blob, with a checksum among its properties."""
    payload = text.encode()
    checksum = {_CHECKSUM: str(zlib.crc32(payload))}
    writer.add(blob_type, payload, properties=checksum, compress=True, **metadata)


def read_checked(stream: Any, size: int, name: str, *blob_types: str) -> list[str]:
    """Read texts that `add_checked` wrote.

    Raises:
        CorruptionError: a blob is missing, or not what was written.
    """
    blobs = {blob.type: blob for blob in read_footer(stream, size, name).blobs}
    texts = []
    for blob_type in blob_types:
        if blob_type not in blobs:
            raise CorruptionError(f"{name} is no index: it has no blob of type {blob_type}")
        payload = read_blob(stream, blobs[blob_type], name)
        if str(zlib.crc32(payload)) != blobs[blob_type].properties.get(_CHECKSUM):
            raise CorruptionError(f"{name} is corrupt: {blob_type} does not have its checksum")
        texts.append(payload.decode())
    return texts


def list_files(io: FileIO, location: str) -> dict[str, int]:
    """Return the files of an index by path, each with its time of modification in milliseconds."""
    from pyarrow.fs import FileSelector
    from pyiceberg.io.pyarrow import PyArrowFileIO

    if not isinstance(io, PyArrowFileIO):
        raise UnsupportedError(f"{type(io).__name__} cannot list the files of an index")
    scheme, host, path = PyArrowFileIO.parse_location(location, io.properties)
    selector = FileSelector(path, allow_not_found=True)
    return {
        f"{location}/{file.base_name}": file.mtime_ns // 1_000_000
        for file in io.fs_by_scheme(scheme, host).get_file_info(selector)
        if file.is_file
    }


def file_stamp(path: Path, name: str) -> tuple[int, int, int]:
    """Return what changes when a file does. Raises CorruptionError where there is none."""
    with _explained(name):
        status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def map_local(path: Path, name: str) -> mmap.mmap:
    """Map a local file. Raises as `opened`."""
    try:
        with _explained(name), path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except ValueError as error:
        # A file of no bytes cannot be mapped.
        raise CorruptionError(f"index file {name} cannot be read: {error}") from error
